"""Section 05: the planner. Which plan fits, how long it takes, what it costs, which wall binds.

The search is a specification: axes, rules and an order, all made of the formulas of the other
sections. Two small evaluators run it, NumPy here and ``calculator.js`` in the page.
"""

from dataclasses import dataclass
from math import prod

import sympy as sp

from .compute import BACKWARD, FORWARD
from .coupling import *
from .formula import REGISTRY, Case, Formula, Rule, Section, search_order, taken
from .memory import fits, headroom, layer_working_set, logits
from .quantities import *
from .shape import expert_layers

_section = Section(5)
formula, bound = _section.formula, _section.bound

# -- what a plan fixes -------------------------------------------------------------------------------

_cards = tensor_parallel * context_parallel  # that share a micro-batch

#: The replicas that the cards leave room for.
replicas = _section.add(Formula(
    data_parallel, sp.floor(gpus / (_cards * pipeline_parallel)),
    cases=[Case(dict(gpus=1024, tensor_parallel=8, pipeline_parallel=4), 32, "counted"), Case(dict(gpus=1024, tensor_parallel=8, pipeline_parallel=4, context_parallel=2), 16, "counted")]))

#: The micro-batches that each replica runs in a step.
micro_batches = _section.add(Formula(
    accumulation_steps, sp.floor(global_batch / (data_parallel * micro_batch * seq_len)), uses=[replicas],
    cases=[Case(dict(global_batch=2**22, data_parallel=128, micro_batch=2, seq_len=4096), 4, "counted")]))

#: Tokens of a sequence that a card keeps at least: a limit of this search, below which kernels grow thin and latency counts.
LEAST_CONTEXT = 8192
_dual = sp.Eq(schedule, 1)
_even = sp.Eq(sp.Mod(pipeline_parallel, 2), 0) & sp.Eq(sp.Mod(accumulation_steps, 2), 0)

PLAN_RULES = (
    Rule("gpus_divide", sp.Eq(sp.Mod(gpus, _cards * pipeline_parallel), 0)),  # first: with too few cards there is no replica, and nothing that follows from it
    *RULES,
    Rule("batch_divides", sp.Eq(sp.Mod(global_batch, data_parallel * micro_batch * seq_len), 0)),
    Rule("context_long", sp.Eq(context_parallel, 1) | (seq_len >= LEAST_CONTEXT * context_parallel)),
    Rule("context_divides", sp.Eq(context_parallel, 1) | sp.Eq(sp.Mod(seq_len, 2 * context_parallel), 0)),
    Rule("experts_divide", (expert_parallel <= sp.Max(1, n_experts)) & sp.Eq(sp.Mod(n_experts, expert_parallel), 0)),
    Rule("expert_group", sp.Eq(sp.Mod(data_parallel * _cards, expert_parallel), 0)),
    Rule("dual_experts", ~_dual | (n_experts > 0)),
    Rule("dual_pipe", ~_dual | (_even & sp.Eq(virtual_stages, 1))),
)

# -- section 4's formulas for other groups of cards ----------------------------------------------------

_group = data_parallel * context_parallel  # shares gradients and optimizer
_experts_group = _group * tensor_parallel / expert_parallel

_V3 = dict(params=671026419200, expert_params=653908770816, pipeline_parallel=16, zero_stage=1, data_parallel=128)
_TWO = dict(params=80e9, expert_params=16e9, tensor_parallel=2, pipeline_parallel=4, zero_stage=1, data_parallel=6, context_parallel=2)

def _some(inputs, *without):
    return {n: x for n, x in inputs.items() if n not in without}


dense_state = bound(sharded_state, "dense_state", r"M_\text{dense}", [
    Case(_TWO | dict(zero_stage=z, grad_bytes=4), 8e9 * b, "counted: over twelve cards") for z, b in ((0, 18), (1, 7), (2, 2 + 16 / 12), (3, 1.5))], params=params - expert_params, data_parallel=_group)
expert_state = bound(sharded_state, "expert_state", r"M_\text{experts}", [
    Case(_some(_V3, "params") | dict(expert_parallel=64), 0.63858e9 * (4 + 12 / 2), "DeepSeek-V3's plan: 0.639B expert parameters a card, their optimizer over two", rel=1e-4),
    *(Case(_some(_TWO, "params") | dict(expert_parallel=4, zero_stage=z, grad_bytes=4), 1e9 * b, "counted: over 6 · 2 · 2 / 4 cards") for z, b in ((0, 18), (1, 8), (2, 2 + 16 / 6), (3, 3)))], params=expert_params, tensor_parallel=expert_parallel, data_parallel=_experts_group)
dense_bytes = bound(data_parallel_bytes, "dense_bytes", r"m_\text{dense}", [
    Case(_TWO | dict(zero_stage=z, grad_bytes=4, accumulation_steps=3), 8e9 * b * 11 / 12, "counted: a ring of twelve") for z, b in ((0, 8), (1, 6), (2, 14), (3, 24))], params=params - expert_params, data_parallel=_group)
expert_bytes = bound(data_parallel_bytes, "expert_bytes", r"m_\text{experts}", [
    Case(_some(_TWO, "params") | dict(expert_parallel=4, zero_stage=z, grad_bytes=4, accumulation_steps=3), 1e9 * b * 5 / 6, "counted: a ring of six") for z, b in ((0, 8), (1, 6), (2, 14), (3, 24))],
                      params=expert_params, tensor_parallel=expert_parallel, data_parallel=_experts_group)
plan_bytes = formula(
    "plan_bytes", r"m_\text{plan}", "B", dense_bytes.result + expert_bytes.result, uses=[dense_bytes, expert_bytes], numbered=False, cases=[Case(dict(dense_bytes=30e9, expert_bytes=10e9), 40e9, "counted")])
card_bandwidth = bound(data_parallel_bandwidth, "card_bandwidth", r"W_\text{group}", [
    Case(dict(data_parallel=4, context_parallel=2, link_bandwidth=450e9, network_bandwidth=50e9, link_fraction=0.8), 360e9, "counted: inside a node"),
    Case(dict(data_parallel=32, context_parallel=2, link_bandwidth=450e9, network_bandwidth=25e9, tensor_parallel=4, network_fraction=0.5), 25e9, "counted: two network cards a node share it"),
    Case(dict(data_parallel=2, context_parallel=2, link_bandwidth=450e9, network_bandwidth=25e9, tensor_parallel=4, network_fraction=0.5), 25e9, "counted: two of the ring in a node"),
    Case(dict(data_parallel=4, context_parallel=2, link_bandwidth=450e9, network_bandwidth=50e9, tensor_parallel=8, network_fraction=0.8), 40e9, "counted: one network card each"),
    Case(dict(data_parallel=32, context_parallel=2, link_bandwidth=40e9, network_bandwidth=50e9), 32e9, "counted: bound by the link")], data_parallel=_group)
card_activations = bound(sharded_activations, "card_activations", r"M_\text{act,card}", [
    Case(dict(seq_len=2048, micro_batch=4, d_model=6144, kept_per_layer=34, tensor_parallel=2, context_parallel=4, layers_per_stage=3, in_flight=2), 6 * 0.2139e9, "as section 4's, eight ways", rel=1e-3)],
    tensor_parallel=_cards)
card_compute = bound(compute_time, "card_compute", r"t_\text{compute}", [
    Case(dict(hardware_flops_per_token=1e12, accumulation_steps=4, micro_batch=2, seq_len=1000, tensor_parallel=2, context_parallel=2, layers_per_stage=3, n_layers=10, peak_flops=1e15, kernel_efficiency=0.5), 1.2,
         "counted: half of section 4's case")], tensor_parallel=_cards)
card_tensor_time = bound(tensor_parallel_time, "card_tensor_time", r"t_\text{tensor}", [
    Case(dict(accumulation_steps=2, layers_per_stage=3, tensor_parallel=4, context_parallel=2, seq_len=1000, micro_batch=1, d_model=1000, link_bandwidth=1e9, link_fraction=0.5), 3 * 8 * 0.75 * 2e6 / 5e8, "counted: half of section 4's case"),
    Case(dict(accumulation_steps=1, layers_per_stage=1, tensor_parallel=2, context_parallel=2, seq_len=1000, micro_batch=2, d_model=1000, link_bandwidth=1e9, link_fraction=1, recompute="full"), 12e6 / 1e9, "counted: half again")],
    micro_batch=micro_batch / context_parallel)
card_pipeline_time = bound(pipeline_time, "card_pipeline_time", r"t_\text{pipeline}", [
    Case(dict(pipeline_parallel=4, accumulation_steps=8, virtual_stages=2, seq_len=1000, micro_batch=1, d_model=1000, tensor_parallel=2, network_bandwidth=1e9, network_fraction=0.5, link_bandwidth=1e9, data_parallel=2, context_parallel=2), 0.032,
         "counted: half of section 4's case"),
    Case(dict(pipeline_parallel=4, accumulation_steps=8, seq_len=1000, micro_batch=2, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e10, link_fraction=0.5, data_parallel=1, context_parallel=2), 0.0064, "counted: inside a node"),
    Case(dict(pipeline_parallel=2, accumulation_steps=8, seq_len=1000, micro_batch=2, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e10, link_fraction=0.5, data_parallel=2, context_parallel=2), 0.0064, "counted: a node is full"),
    Case(dict(pipeline_parallel=4, accumulation_steps=8, seq_len=1000, micro_batch=2, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e10, network_fraction=0.5, data_parallel=3, context_parallel=2), 0.064, "counted: over the network"),
    Case(dict(accumulation_steps=8, seq_len=1000, micro_batch=1, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e9, data_parallel=1), 0, "counted: no pipeline")],
    micro_batch=micro_batch / context_parallel, data_parallel=_group)

#: Inputs that break no rule, for cases in which other parts matter.
_LEGAL = dict(gpus=8, data_parallel=2, accumulation_steps=1, global_batch=2**20, micro_batch=1, seq_len=4096, n_layers=2, n_heads=2, gpus_per_node=8, n_experts=0)
#: Llama 3.1 405B at 128K tokens, a layer on each of 16 stages; DeepSeek-V3, one layer.
_KV = dict(accumulation_steps=1, layers_per_stage=8, seq_len=131072, micro_batch=1, n_kv_heads=8, d_head=128, tensor_parallel=8, link_bandwidth=450e9, network_bandwidth=50e9)
_EP = dict(accumulation_steps=1, layers_per_stage=1, expert_layers=1, n_layers=1, seq_len=4096, micro_batch=1, d_model=7168, n_active_experts=8, dispatch_bytes=1, link_bandwidth=160e9, network_bandwidth=50e9)

# -- memory of a plan ------------------------------------------------------------------------------------

#: DualPipe feeds the pipeline from both ends: two copies of the weights, and one micro-batch more.
second_copy = formula(
    "second_copy", r"M_\text{copy}", "B", sp.Piecewise((weight_bytes / pipeline_parallel * ((params - expert_params) / tensor_parallel + expert_params / expert_parallel), _dual), (0, True)), numbered=False,
    cases=[Case(_some(_TWO, "zero_stage", "data_parallel", "context_parallel") | dict(expert_parallel=4, schedule="dualpipe"), 2 * (8e9 + 1e9), "counted: the weights once more"), Case(_some(_TWO, "zero_stage", "data_parallel", "context_parallel"), 0, "counted: 1F1B has one copy")])

plan_state = formula(
    "plan_state", r"M_\text{state,plan}", "B", dense_state.result + expert_state.result + second_copy.result, uses=[dense_state, expert_state, second_copy], numbered=False,
    cases=[Case(dict(dense_state=1e9, expert_state=2e9, second_copy=4e9), 7e9, "counted")])

plan_activations = formula(
    "plan_activations", r"M_\text{act,plan}", "B",
    card_activations.result * sp.Piecewise(((pipeline_parallel + 1) / in_flight.result, _dual), (1, True)), uses=[card_activations, in_flight], numbered=False,
    cases=[Case(dict(card_activations=16e9, in_flight=16, pipeline_parallel=16, schedule="dualpipe"), 17e9, "DeepSeek-V3, table 2: PP + 1"), Case(dict(card_activations=16e9, in_flight=16), 16e9, "counted")])

_loss = logits.result / _cards
card_memory = formula(
    "card_memory", r"M_\text{plan}", "B",
    plan_state.result + gathered_unit.result + layer_working_set.result / _cards
    + sp.Piecewise((plan_activations.result + _loss, sp.Eq(pipeline_parallel, 1) | _dual),
                   (sp.Max(plan_activations.result, plan_activations.result * in_flight_last.result / in_flight.result + _loss), True)),
    uses=[plan_state, gathered_unit, layer_working_set, plan_activations, in_flight, in_flight_last, logits], rules=PLAN_RULES, numbered=False,
    cases=[Case(_LEGAL | dict(plan_state=10e9, gathered_unit=1e9, layer_working_set=8e9, plan_activations=20e9, in_flight=4, in_flight_last=2, logits=loss, tensor_parallel=2, context_parallel=2, seq_len=16384, pipeline_parallel=p, schedule=how, accumulation_steps=2, n_experts=1),
                m, f"counted: {what}")
           for p, loss, how, m, what in ((1, 8e9, "1f1b", 35e9, "no pipeline"), (2, 8e9, "1f1b", 33e9, "the first stage"), (2, 60e9, "1f1b", 38e9, "the last stage"), (2, 8e9, "dualpipe", 35e9, "both ends"))])

plan_headroom = bound(headroom, "plan_headroom", r"M_\text{spare,gpu}", [
    Case(_LEGAL | dict(usable_bytes=80e9, overhead_bytes=1e9, card_memory=60e9), 19e9, "counted")], numbered=True, training_memory=card_memory)

plan_fits = bound(fits, "plan_fits", r"\text{plan fits}", [
    Case(_LEGAL | dict(plan_headroom=0), 1, "counted: just fits"), Case(_LEGAL | dict(plan_headroom=-1), 0, "counted: just does not")], headroom=plan_headroom)

# -- time of a plan --------------------------------------------------------------------------------------

_micro_batch_tokens = micro_batch * seq_len / _cards
_layers = accumulation_steps * layers_per_stage.result

#: Keys and values of the other cards, once forward and twice backward.
context_time = formula(
    "context_time", r"t_\text{context}", "s",
    3 * _layers * 2 * seq_len * micro_batch * n_kv_heads * d_head / tensor_parallel * weight_bytes * (context_parallel - 1) / context_parallel
    / sp.Piecewise((link_bandwidth * link_fraction, _cards <= gpus_per_node), (network_bandwidth * network_fraction, True)), uses=[layers_per_stage], numbered=False,
    source="Grattafiori et al. 2024, Llama 3, section 3.3.2, arXiv 2407.21783",
    cases=[Case(_KV | dict(context_parallel=16), 3 * 8 * 62914560 / 40e9, "counted: 63 MB for each layer and sequence of 405B at 128K"),
           Case(_KV | dict(context_parallel=4), 3 * 8 * 50331648 / 40e9, "counted: 32 cards, four nodes"),
           Case(_KV | dict(context_parallel=1), 0, "counted: nobody to ask"),
           Case(dict(accumulation_steps=5, layers_per_stage=7, seq_len=11, micro_batch=13, n_kv_heads=4, d_head=17, tensor_parallel=2, context_parallel=2, link_bandwidth=100, network_bandwidth=1, link_fraction=0.5),
                3 * 35 * 2 * 11 * 13 * 34 * 2 / 2 / 50, "counted: inside a node")])

#: The extra work of the busiest expert.
imbalance_time = formula(
    "imbalance_time", r"t_\text{busiest}", "s",
    (FORWARD + BACKWARD) * (expert_imbalance - 1) * routed_params / n_layers * _layers * _micro_batch_tokens / (peak_flops * kernel_efficiency), uses=[layers_per_stage], numbered=False,
    cases=[Case(dict(expert_imbalance=1.5, routed_params=20e9, n_layers=10, layers_per_stage=2, accumulation_steps=3, micro_batch=5, seq_len=7000, tensor_parallel=2, context_parallel=7, peak_flops=1e15, kernel_efficiency=0.5),
                3 * 4e9 * 3 * 2500 / 5e14, "counted")])

_nodes = sp.Max(1, expert_parallel / gpus_per_node)
_inside = sp.Min(expert_parallel, gpus_per_node)
_sent = 2 * (dispatch_bytes + weight_bytes) * d_model * _layers * expert_layers.result / n_layers * _micro_batch_tokens

#: Dispatch and combine, forward and backward: once to each node that a token visits, and inside the node to its experts.
expert_time = formula(
    "expert_time", r"t_\text{experts}", "s",
    expert_imbalance * _sent * (sp.Min(routing_nodes, n_active_experts, _nodes) * (1 - 1 / _nodes) / (network_bandwidth * network_fraction)
                                + n_active_experts * (1 - 1 / _inside) / (link_bandwidth * link_fraction)), uses=[layers_per_stage, expert_layers], numbered=False,
    source="DeepSeek-AI 2024, DeepSeek-V3, section 3.2.2, arXiv 2412.19437",
    cases=[Case(_EP | dict(expert_parallel=64, routing_nodes=4), 2 * 3 * 4096 * 7168 * (4 * 7 / 8 / 40e9 + 8 * 7 / 8 / 128e9), "counted: one layer of DeepSeek-V3, at most four nodes, dispatch in FP8"),
           Case(_EP | dict(expert_parallel=8), 2 * 3 * 4096 * 7168 * 8 * 7 / 8 / 128e9, "counted: inside a node"),
           Case(_EP | dict(expert_parallel=256, routing_nodes=64), 2 * 3 * 4096 * 7168 * (8 * 31 / 32 / 40e9 + 7 / 128e9), "counted: no more nodes than experts"),
           Case(_EP | dict(expert_parallel=16, routing_nodes=64, expert_imbalance=1.5), 1.5 * 2 * 3 * 4096 * 7168 * (2 * 1 / 2 / 40e9 + 7 / 128e9), "counted: two nodes, busiest expert"),
           Case(_EP | dict(expert_parallel=1), 0, "counted: each card has all experts"),
           Case(_EP | dict(expert_parallel=8, tensor_parallel=2, context_parallel=2, accumulation_steps=3, layers_per_stage=5, expert_layers=20, n_layers=40, micro_batch=7, weight_bytes=4, dispatch_bytes=3),
                2 * 7 * 1024 * 7 * 7168 * 15 / 2 * 7 / 128e9, "counted: 15 layers, half with experts")])

plan_bubble_time = formula(
    "plan_bubble_time", r"t_\text{bubble}", "s",
    (card_compute.result + card_tensor_time.result) * sp.Piecewise(((pipeline_parallel - 2) / (3 * accumulation_steps), _dual), (pipeline_bubble.result / (1 - pipeline_bubble.result), True)),
    uses=[card_compute, card_tensor_time, pipeline_bubble], numbered=False, source="DeepSeek-AI 2024, DeepSeek-V3, table 2, arXiv 2412.19437: (PP/2 − 1)(F&B + B − 3W), a weight gradient being a third",
    cases=[Case(dict(card_compute=6, card_tensor_time=2, pipeline_bubble=0.2), 2, "counted: a fifth of ten"),
           Case(dict(card_compute=6, card_tensor_time=3, pipeline_bubble=0.2, pipeline_parallel=16, accumulation_steps=120, schedule="dualpipe"), 7 * (1 + 2 / 3 - 1) * 9 / 120, "DeepSeek-V3, table 2, with its 120 micro-batches")])

plan_exposed_time = bound(exposed_time, "plan_exposed_time", r"t_\text{exposed}", [
    Case(dict(plan_bytes=40e9, card_bandwidth=40e9, card_compute=2, accumulation_steps=4, zero_stage=1), 0.75, "counted: 1 − 0.5 · 2/4"),
    Case(dict(plan_bytes=40e9, card_bandwidth=40e9, card_compute=1, accumulation_steps=4, zero_stage=3), 0.5, "counted: 1 − 0.5"),
    Case(dict(plan_bytes=40e9, card_bandwidth=40e9, card_compute=3, zero_stage=3), 0, "counted: hidden")],
    data_parallel_bytes=plan_bytes, data_parallel_bandwidth=card_bandwidth, compute_time=card_compute)

_split = sp.Piecewise((1, sp.Eq(zero_stage, 0)), (_group, True))
_experts_split = sp.Piecewise((1, sp.Eq(zero_stage, 0)), (_experts_group, True))
plan_optimizer_time = formula(
    "plan_optimizer_time", r"t_\text{optimizer}", "s",
    optimizer_time.result / pipeline_parallel * ((1 - expert_params / params) / (tensor_parallel * _split) + expert_params / params / (expert_parallel * _experts_split)), uses=[optimizer_time], numbered=False,
    cases=[Case(_TWO | dict(optimizer_time=0.96, expert_parallel=4), 0.24 * (0.8 / 24 + 0.2 / 24), "counted: ZeRO-1"),
           Case(_TWO | dict(optimizer_time=0.96, expert_parallel=4, zero_stage=0), 0.24 * (0.8 / 2 + 0.2 / 4), "counted: each replica does all of its part")])

#: DualPipe hides the experts' exchange behind the other micro-batch's compute.
exposed_expert_time = formula(
    "exposed_expert_time", r"t_\text{experts,exposed}", "s", sp.Max(0, expert_time.result - sp.Piecewise((card_compute.result, _dual), (0, True))), uses=[expert_time, card_compute], numbered=False,
    cases=[Case(dict(expert_time=3, card_compute=2, schedule="dualpipe"), 1, "counted"), Case(dict(expert_time=3, card_compute=2), 3, "counted"), Case(dict(expert_time=1, card_compute=2, schedule="dualpipe"), 0, "counted: hidden")])

_PARTS = [card_compute, card_tensor_time, plan_bubble_time, card_pipeline_time, plan_exposed_time, plan_optimizer_time, context_time, exposed_expert_time, imbalance_time]
card_step_time = formula(
    "card_step_time", r"t_\text{plan}", "s", sum(part.result for part in _PARTS), uses=_PARTS, rules=PLAN_RULES, numbered=False,
    cases=[Case(_LEGAL | {part.name: 2 ** (i + 1) for i, part in enumerate(_PARTS)}, 2 ** (len(_PARTS) + 1) - 2, "counted")])

card_mfu = bound(step_mfu, "card_mfu", r"\text{MFU}_\text{plan}", [
    Case(_LEGAL | dict(training_flops_per_token=1e12, accumulation_steps=4, micro_batch=2, seq_len=16384, tensor_parallel=2, context_parallel=2, pipeline_parallel=2, peak_flops=1e15, card_step_time=16.384 * 4), 0.25, "counted")],
    step_time=card_step_time, tensor_parallel=_cards)

_links = (replicas, micro_batches)
plan_gpu_memory, plan_step_time, plan_step_mfu = (f.connect(*_links) for f in (card_memory, card_step_time, card_mfu))
plan_headroom, plan_fits = (f.connect(*_links) for f in (plan_headroom, plan_fits))

plan_time = formula(
    "plan_time", r"T_\text{plan}", "s", tokens / global_batch * plan_step_time.result / goodput, uses=[plan_step_time],
    cases=[Case(_LEGAL | dict(tokens=1e12, global_batch=4e6, card_step_time=2, goodput=0.5), 1e6, "counted: 250,000 steps of 2 s at half goodput")])

plan_cost = formula(
    "plan_cost", r"\text{cost}_\text{plan}", "$", gpus * plan_time.result * gpu_price, uses=[plan_time],
    cases=[Case(dict(gpus=1000, plan_time=1e6, gpu_price=0.001), 1e6, "counted")])

time_to_spare = formula(
    "time_to_spare", r"T_\text{spare}", "s", deadline - plan_time.result, uses=[plan_time], valid=sp.Interval(-sp.oo, sp.oo), numbered=False,
    cases=[Case(dict(plan_time=10, deadline=15), 5, "counted"), Case(dict(plan_time=15, deadline=10), -5, "counted: too late")])

# -- which wall --------------------------------------------------------------------------------------------

plan_memory_load = bound(memory_load, "plan_memory_load", r"\lambda_\text{memory,plan}", [
    Case(_LEGAL | dict(card_memory=40e9, usable_bytes=81e9, overhead_bytes=1e9), 0.5, "counted")], plan_memory=plan_gpu_memory)

_WIRE = [card_tensor_time, card_pipeline_time, plan_exposed_time, context_time, exposed_expert_time]
plan_wire_load = formula(
    "plan_wire_load", r"\lambda_\text{wire,plan}", "share", sum(part.result for part in _WIRE) / plan_step_time.result, uses=[*(part.connect(*_links) for part in _WIRE), plan_step_time], numbered=False,
    cases=[Case(_LEGAL | {part.name: 2 ** (i + 1) for i, part in enumerate(_WIRE)} | dict(card_step_time=124), 0.5, "counted")])

plan_wall = bound(binding_wall, "plan_wall", r"\text{wall}_\text{plan}", [
    Case(dict(plan_memory_load=a, plan_wire_load=b, batch_load=c), n, "counted: the fullest") for a, b, c, n in ((0.6, 0.5, 0.1, 0), (0.6, 0.1, 0.5, 0), (0.2, 0.6, 0.5, 1), (0.2, 0.5, 0.7, 2))],
    memory_load=plan_memory_load, wire_load=plan_wire_load, batch_load=batch_load.connect(*_links))

# -- the search --------------------------------------------------------------------------------------

#: Another axis is one more line here.
AXES = {
    "tensor_parallel": (1, 2, 4, 8),
    "pipeline_parallel": (1, 2, 4, 8, 16, 32, 64),
    "virtual_stages": (1, 2, 4, 8),
    "zero_stage": (0, 1, 2, 3),
    "recompute": ("none", "full", "projections"),
    "micro_batch": (1, 2, 4, 8, 16, 32),
    "context_parallel": (1, 2, 4, 8, 16),
    "expert_parallel": (1, 8, 16, 32, 64),
    "schedule": ("1f1b", "dualpipe"),
}


#: The decision tree as a ladder, simplest first: each rung allows the axes below it too.
LADDER = {
    "data_parallel": {"tensor_parallel": (1,), "pipeline_parallel": (1,), "virtual_stages": (1,), "context_parallel": (1,), "zero_stage": (0, 1)},
    "zero": {"tensor_parallel": (1,), "pipeline_parallel": (1,), "virtual_stages": (1,), "context_parallel": (1,)},
    "tensor_parallel": {"pipeline_parallel": (1,), "virtual_stages": (1,)},
    "pipeline": {},
}
#: A rung is good enough if its best plan spends no more than this share of a step on anything but arithmetic.
GOOD_ENOUGH = 0.2


@dataclass(frozen=True)
class Plans:
    """What a search found: the fastest plans that fit, how many fit, how many each rule refused."""

    ranked: list
    fitting: int
    refused: dict
    fastest: dict | None
    count: int

    @property
    def best(self):
        """The fastest plan that fits, or None."""
        return self.ranked[0] if self.ranked else None


#: What stands in a plan besides its axes.
WHOLE = ("data_parallel", "accumulation_steps")
SHOWN = ("card_memory", "plan_headroom", "card_compute", "card_step_time", "card_mfu", "plan_time")
#: What a search computes for each plan.
_GOALS = (plan_headroom, plan_time, plan_step_mfu)


def _filled(axes, given):
    """The checked inputs of a search by name; each axis at its first value."""
    first = {n: v[0] for n, v in axes.items()}
    return {n: v for goal in _GOALS for n, v in goal.filled(**taken(goal, given | first)).items()}


def plan_parts(**plan):
    """Every part of one plan, of its memory and its time.

    Parameters
    ----------
    **plan
        The inputs of ``card_memory`` and ``card_mfu``: the plan itself, ``model``, ``gpu``, ``kernel_efficiency`` …

    Returns
    -------
    dict
        Name -> value: bytes [B], times of a step [s], the MFU [share]

    Raises
    ------
    ValueError
        If an input is missing or outside its domain.
    """
    return {n: v for formula in (card_memory, card_mfu) for n, v in formula.evaluate(**taken(formula, plan)).items()}


def search(*, axes=None, **given):
    """Try every plan and rank those that fit by the time of a step.

    Parameters
    ----------
    axes : dict
        Name of an input to the values to try; :data:`AXES` if left out [-]
    **given
        The inputs of ``plan_headroom``, ``plan_time`` and ``plan_cost`` that are not axes: ``model``,
        ``gpu``, ``gpus``, ``tokens``, ``seq_len``, ``global_batch`` [tokens], ``kernel_efficiency`` …

    Returns
    -------
    Plans
        ``ranked``: the twenty fastest, as dictionaries of axes and results; ``fitting``: how many fit; ``refused``: rule -> number of
        plans, ``"memory"`` among them; ``fastest``: the fastest plan if memory were no limit

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.

    Examples
    --------
    >>> from onegpu import GPUS, MODELS
    >>> plans = search(model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], gpus=8, tokens=1e12, seq_len=4096,
    ...                global_batch=1048576, kernel_efficiency=0.6, network_bandwidth=50e9)
    >>> plans.best["tensor_parallel"], plans.best["pipeline_parallel"]
    (1, 1)
    """
    import numpy as np

    axes = axes or AXES
    values, refused = _filled(axes, given), {}
    rules = {n: r for goal in _GOALS for n, r in goal.all_rules().items()}
    results = {f.name: f for goal in _GOALS for f in goal.graph()}
    unknown = [n for n in given if n not in values and n not in Formula.OWNERS]
    if unknown:
        raise ValueError(plan_time._unknown(unknown[0], given[unknown[0]]))
    order = search_order(axes, _GOALS)
    columns = {n: REGISTRY[n].check(list(v)) for n, v in axes.items()}
    count = prod(map(len, columns.values()))
    for name, alone in order["alone"].items():  # values of an axis that no plan can have
        for rule in alone:
            holds = np.broadcast_to(rules[rule].holds(*((columns | values)[q.name] if q.name != name else columns[name] for q in rules[rule].arguments)), len(columns[name]))
            refused[rule] = refused.get(rule, 0) + int((~holds).sum()) * prod(len(c) for n, c in columns.items() if n != name)
            columns[name] = columns[name][holds]
    columns = {n: c.ravel() for n, c in zip(columns, np.meshgrid(*columns.values(), indexing="ij"), strict=True)}
    values |= columns
    with np.errstate(all="ignore"):
        for name in order["first"]:
            values[name] = results[name]._numeric(*(values[q.name] for q in results[name]._arguments))
        legal = np.ones(len(next(iter(columns.values()))), bool)
        for name, rule in rules.items():
            holds = np.broadcast_to(rule.holds(*(values[q.name] for q in rule.arguments)), len(legal))
            refused[name] = refused.get(name, 0) + int((legal & ~holds).sum())
            legal = legal & holds
        values = {n: v[legal] if np.ndim(v) else v for n, v in values.items()}
        for name in order["then"]:
            values[name] = results[name]._numeric(*(values[q.name] for q in results[name]._arguments))
    size = int(legal.sum())
    table = {n: np.broadcast_to(values[n], size) for n in [*axes, *WHOLE, *SHOWN]}
    fits = table["plan_headroom"] >= 0
    refused["memory"] = int((~fits).sum())
    ranking = np.argsort(np.where(fits, table["card_step_time"], np.inf), kind="stable")[:int(fits.sum())]

    def row(i):
        found = {n: column[i] for n, column in table.items()}
        return {n: REGISTRY[n].choices[int(v)] if REGISTRY[n].choices else int(v) if n in axes or n in WHOLE else float(v) for n, v in found.items()}

    quickest = int(np.argmin(table["card_step_time"])) if size else None
    return Plans([row(i) for i in ranking[:20]], int(fits.sum()), refused, row(quickest) if size else None, count)


#: What a reader could change first: each is doubled alone.
CHANGES = ("gpus", "usable_bytes", "link_bandwidth", "network_bandwidth", "global_batch")


def what_first(*, axes=None, **given):
    """What to change first: the time of the best plan with each of :data:`CHANGES` doubled alone.

    Parameters
    ----------
    axes, **given
        As for :func:`search` [-]

    Returns
    -------
    dict
        Name of the input -> time of all tokens over the time without the change [-], the greatest
        help first; infinite if no plan fits, zero if only the change makes one fit

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.
    """
    values = _filled(axes or AXES, given)

    def time(**changed):
        best = search(axes=axes, **given | changed).best
        return best["plan_time"] if best else float("inf")

    now = time()
    ratios = {n: time(**{n: 2 * values[n]}) for n in CHANGES}
    ratios = {n: t / now if now < float("inf") else 0.0 if t < now else float("inf") for n, t in ratios.items()}
    return dict(sorted(ratios.items(), key=lambda item: item[1]))


def kind(plan):
    """The rung of the ladder on which a plan stands."""
    if plan["pipeline_parallel"] > 1:
        return "pipeline"
    if plan["tensor_parallel"] > 1:
        return "tensor_parallel"
    return "zero" if plan["zero_stage"] > 1 else "data_parallel"


def decide(**given):
    """Walk down the decision tree: the simplest kind of plan that fits and wastes little.

    Parameters
    ----------
    **given
        As for :func:`search` [-]

    Returns
    -------
    list of (str, Plans, bool)
        The rungs that were asked, what fits there, and whether the answer was yes; the last is the answer

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.
    """
    asked = []
    for rung, narrower in LADDER.items():
        plans = search(axes=AXES | narrower, **given)
        enough = bool(plans.ranked) and 1 - plans.best["card_compute"] / plans.best["card_step_time"] <= GOOD_ENOUGH and plans.best["recompute"] != "full"
        asked.append((rung, plans, enough or rung == "pipeline"))
        if asked[-1][2]:
            return asked
