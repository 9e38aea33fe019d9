"""Section 04: how the walls compound. Roofline, sharding, bytes on the wire, the time of a step.

One training step is ``accumulation_steps`` micro-batches on ``data_parallel`` replicas, each cut
into ``pipeline_parallel`` stages of ``tensor_parallel`` cards.
"""

import sympy as sp

from .compute import hardware_flops_per_token, training_flops_per_token
from .formula import Case, Rule, Section
from .memory import kept_per_layer, layer_working_set, logits
from .quantities import *

_section = Section(4)
formula = _section.formula

ROOFLINE = "Williams et al. 2009, Roofline, section 3"
ZERO = "Rajbhandari et al. 2020, ZeRO, table 1, arXiv 1910.02054"
ZERO_COMM = "Rajbhandari et al. 2020, ZeRO, section 7, arXiv 1910.02054"
KORTHIKANTI = "Korthikanti et al. 2022, section 4, arXiv 2205.05198"
MEGATRON = "Narayanan et al. 2021, section 2.2, arXiv 2104.04473"

#: What a plan must satisfy; a broken rule is explained and nothing is computed.
RULES = (
    Rule("heads_divide", sp.Eq(sp.Mod(n_heads, tensor_parallel), 0)),
    Rule("tensor_in_node", tensor_parallel <= gpus_per_node),
    Rule("enough_layers", pipeline_parallel * virtual_stages <= n_layers + 2),  # embedding and head can be chunks of their own
    Rule("gathers_in_pipeline", sp.Eq(pipeline_parallel, 1) | sp.Ne(zero_stage, 3)),
    Rule("stages_interleave", sp.Eq(virtual_stages, 1) | ((pipeline_parallel > 1) & sp.Eq(sp.Mod(accumulation_steps, pipeline_parallel), 0))),
)

# -- the roofline ------------------------------------------------------------------------------------

arithmetic_intensity = formula(
    "arithmetic_intensity", r"I_\text{product}", "FLOP/B",
    2 * matmul_tokens * d_in * d_out / (weight_bytes * (matmul_tokens * d_in + d_in * d_out + matmul_tokens * d_out)), source=ROOFLINE,
    cases=[Case(dict(matmul_tokens=3, d_in=5, d_out=7), 210 / (2 * 71), "counted: 210 FLOP over 15 + 35 + 21 numbers of 2 bytes")])

attainable_flops = formula(
    "attainable_flops", r"P_\text{attainable}", "FLOP/s", sp.Min(peak_flops, intensity * memory_bandwidth), source=ROOFLINE,
    cases=[Case(dict(intensity=100, peak_flops=1e15, memory_bandwidth=3e12), 3e14, "counted: bound by memory"),
           Case(dict(intensity=1000, peak_flops=1e15, memory_bandwidth=3e12), 1e15, "counted: bound by the peak")])

ridge_intensity = formula(
    "ridge_intensity", r"I_\text{ridge}", "FLOP/B", peak_flops / memory_bandwidth, source=ROOFLINE,
    numbered=False, cases=[Case(dict(peak_flops=6e14, memory_bandwidth=2e12), 300, "counted")])

ridge_tokens = formula(
    "ridge_tokens", r"T_\text{ridge}", "tokens",
    ridge_intensity.result * d_in * d_out / (2 * d_in * d_out / weight_bytes - ridge_intensity.result * (d_in + d_out)), uses=[ridge_intensity], source=ROOFLINE,
    rules=[Rule("reaches_ridge", 2 * d_in * d_out > weight_bytes * ridge_intensity.result * (d_in + d_out))],
    cases=[Case(dict(ridge_intensity=989.4 / 3.35, d_in=4096, d_out=4096), 345, "counted: solves arithmetic_intensity = ridge for an H100", rel=2e-3)])

optimizer_time = formula(
    "optimizer_time", r"t_\text{opt}", "s", params * (grad_bytes + 2 * master_bytes + 2 * optimizer_bytes + weight_bytes) / memory_bandwidth,
    cases=[Case(dict(params=7e9, memory_bandwidth=2.8e12), 0.07, "counted: reads gradients, reads and writes master copy and moments, writes weights: 28 bytes"),
           Case(dict(params=1, weight_bytes=3, grad_bytes=5, master_bytes=7, optimizer_bytes=11, memory_bandwidth=1), 44, "counted: 5 + 14 + 22 + 3")])

# -- the pipeline's exception --------------------------------------------------------------------------

in_flight = formula(
    "in_flight", r"k_\text{flight}", "",
    sp.Piecewise((sp.Min(accumulation_steps, pipeline_parallel), sp.Eq(virtual_stages, 1)),
                 (sp.Min(virtual_stages * accumulation_steps, 2 * (pipeline_parallel - 1) + (virtual_stages - 1) * pipeline_parallel + 1) / virtual_stages, True)),
    source=MEGATRON,
    cases=[Case(dict(accumulation_steps=32, pipeline_parallel=8), 8, "Narayanan et al. 2021: 1F1B keeps at most p"),
           Case(dict(accumulation_steps=3, pipeline_parallel=8), 3, "counted: no more than there are"),
           Case(dict(accumulation_steps=16, pipeline_parallel=16, virtual_stages=8), 16, "counted: Llama 3.1 405B's plan"),
           Case(dict(accumulation_steps=64, pipeline_parallel=4, virtual_stages=2), 5.5, "counted: (6 + 4 + 1)/2 on the first stage")])

in_flight_last = formula(
    "in_flight_last", r"k_\text{last}", "",
    sp.Piecewise((1, sp.Eq(virtual_stages, 1)), (sp.Min(virtual_stages * accumulation_steps, (virtual_stages - 1) * pipeline_parallel + 1) / virtual_stages, True)),
    numbered=False, source=MEGATRON,
    cases=[Case(dict(accumulation_steps=32, pipeline_parallel=8), 1, "Narayanan et al. 2021: the last stage runs one forward, one backward"),
           Case(dict(accumulation_steps=8, pipeline_parallel=4, virtual_stages=8), 29 / 8, "counted: 7 · 4 + 1 chunks of an eighth"),
           Case(dict(accumulation_steps=2, pipeline_parallel=4, virtual_stages=8), 2, "counted: no more than there are")])

# -- sharding: bytes on a card -------------------------------------------------------------------------

_model_part = params / (tensor_parallel * pipeline_parallel)


def _divided(*stages):
    """Over the data-parallel group from the given ZeRO stages on."""
    return sp.Piecewise((data_parallel, sp.Or(*(sp.Eq(zero_stage, s) for s in stages))), (1, True))

# -- bytes on the wire -------------------------------------------------------------------------------

_ring = (group_size - 1) / group_size

all_gather_time = formula(
    "all_gather_time", r"t_\text{gather}", "s", _ring * message_bytes / link_bandwidth, source=ZERO_COMM,
    numbered=False, cases=[Case(dict(message_bytes=14e9, group_size=8, link_bandwidth=450e9), 14e9 * 7 / 8 / 450e9, "counted: a ring passes seven of eight parts")])


sharded_state = formula(
    "sharded_state", r"M_\text{state,gpu}", "B",
    _model_part * (weight_bytes / _divided(3) + grad_bytes / _divided(2, 3) + (master_bytes + optimizer_bytes) / _divided(1, 2, 3)), source=ZERO,
    cases=[Case(dict(params=7.5e9, data_parallel=64, zero_stage=z), v, "ZeRO, figure 1: 7.5B on 64", rel=4e-3)
           for z, v in ((0, 120e9), (1, 31.4e9), (2, 16.6e9), (3, 1.88e9))]
          + [Case(dict(params=8e9, data_parallel=2, zero_stage=1, tensor_parallel=4, pipeline_parallel=2), 10e9, "counted: 1e9 · (4 + 12/2)")])

all_reduce_time = formula(
    "all_reduce_time", r"t_\text{reduce}", "s", 2 * _ring * message_bytes / link_bandwidth, source=ZERO_COMM,
    cases=[Case(dict(message_bytes=14e9, group_size=8, link_bandwidth=450e9), 0.0544, "counted: reduce-scatter, then all-gather", rel=1e-3)])

#: ZeRO-3 holds one whole layer, or the embedding, while it is in use.
gathered_unit = formula(
    "gathered_unit", r"M_\text{unit}", "B",
    zero_stage.pick({3: sp.Max(params / n_layers, vocab_size * d_model) * (weight_bytes + grad_bytes) / tensor_parallel}),
    source="DeepSpeed, memory requirements: 4 bytes for each parameter of the largest layer",
    numbered=False, cases=[Case(dict(params=32e9, n_layers=32, vocab_size=1000, d_model=1000, zero_stage=3, tensor_parallel=2), 2e9, "counted: a layer of 1e9"),
           Case(dict(params=32e9, n_layers=32, vocab_size=1000000, d_model=4000, zero_stage=3), 16e9, "counted: an embedding of 4e9"),
           Case(dict(params=32e9, n_layers=32, vocab_size=1000, d_model=1000, zero_stage=2), 0, "counted: nothing is gathered")])

layers_per_stage = formula(
    "layers_per_stage", r"L_\text{stage}", "", virtual_stages * sp.ceiling(n_layers / (pipeline_parallel * virtual_stages)), integer=True,
    numbered=False, cases=[Case(dict(n_layers=126, pipeline_parallel=16, virtual_stages=8), 8, "Llama 3, section 3.3.2: 128 chunks of one layer"),
           Case(dict(n_layers=126, pipeline_parallel=16), 8, "counted"), Case(dict(n_layers=80, pipeline_parallel=8, virtual_stages=2), 10, "counted: divides")])

sharded_activations = formula(
    "sharded_activations", r"M_\text{act,gpu}", "B",
    seq_len * micro_batch * d_model * kept_per_layer.result / tensor_parallel * layers_per_stage.result * in_flight.result,
    uses=[kept_per_layer, layers_per_stage, in_flight], source=KORTHIKANTI,
    numbered=False, cases=[Case(dict(seq_len=2048, micro_batch=4, d_model=6144, kept_per_layer=34, tensor_parallel=8, layers_per_stage=1, in_flight=1), 0.2139e9,
                "Korthikanti et al. 2022, tables 2 and 3: 22B, tensor and sequence parallel", rel=1e-3),
           Case(dict(seq_len=2048, micro_batch=1, d_model=12288, kept_per_layer=34, tensor_parallel=8, layers_per_stage=2, in_flight=3), 6 * 0.107e9,
                "Korthikanti et al. 2022, tables 2 and 3: 175B", rel=2e-3)])

#: The first stage holds the most micro-batches, the last one the logits.
plan_memory = formula(
    "plan_memory", r"M_\text{gpu}", "B",
    sharded_state.result + gathered_unit.result + layer_working_set.result / tensor_parallel
    + sp.Piecewise((sharded_activations.result + logits.result / tensor_parallel, sp.Eq(pipeline_parallel, 1)),
                   (sp.Max(sharded_activations.result, sharded_activations.result * in_flight_last.result / in_flight.result + logits.result / tensor_parallel), True)),
    uses=[sharded_state, gathered_unit, layer_working_set, sharded_activations, in_flight, in_flight_last, logits], rules=RULES,
    numbered=False, cases=[Case(dict(sharded_state=10e9, gathered_unit=1e9, layer_working_set=4e9, sharded_activations=20e9, in_flight=4, logits=8e9, tensor_parallel=2, pipeline_parallel=4, n_heads=2, n_layers=4), 33e9,
                "counted: the first stage"),
           Case(dict(sharded_state=10e9, gathered_unit=1e9, layer_working_set=4e9, sharded_activations=20e9, in_flight=4, logits=60e9, tensor_parallel=2, pipeline_parallel=4, n_heads=2, n_layers=4), 48e9,
                "counted: the last stage"),
           Case(dict(sharded_state=10e9, gathered_unit=1e9, layer_working_set=4e9, sharded_activations=20e9, in_flight=4, in_flight_last=2, logits=60e9, tensor_parallel=2, pipeline_parallel=4, n_heads=2, n_layers=4), 53e9,
                "counted: the last stage of an interleaved pipeline"),
           Case(dict(sharded_state=10e9, gathered_unit=1e9, layer_working_set=4e9, sharded_activations=20e9, in_flight=2, logits=8e9, tensor_parallel=2, pipeline_parallel=2, n_heads=2, n_layers=2), 33e9,
                "counted: two stages"),
           Case(dict(sharded_state=10e9, gathered_unit=1e9, layer_working_set=4e9, sharded_activations=20e9, in_flight=1, logits=8e9, tensor_parallel=2, n_heads=2, n_layers=1), 37e9, "counted: no pipeline")])

# -- sharding: bytes on the wire, and time ----------------------------------------------------------------

_k = accumulation_steps
data_parallel_bytes = formula(
    "data_parallel_bytes", r"m_d", "B",
    _model_part * (data_parallel - 1) / data_parallel
    * zero_stage.pick({0: 2 * grad_bytes, 1: grad_bytes + weight_bytes, 2: _k * grad_bytes + weight_bytes}, _k * (grad_bytes + 2 * weight_bytes)), source=ZERO_COMM,
    cases=[Case(dict(params=4e9, data_parallel=4, accumulation_steps=k, zero_stage=z), units * 2 * 3e9, f"ZeRO, section 7, and counted: {units} units with {k} micro-batches")
           for z, k, units in ((0, 1, 2), (0, 8, 2), (1, 8, 2), (2, 1, 2), (2, 8, 9), (3, 1, 3), (3, 8, 24))]
          + [Case(dict(params=8e9, data_parallel=4, zero_stage=1, tensor_parallel=2, pipeline_parallel=2, grad_bytes=4), 9e9, "counted: 2e9 · (4 + 2) · 3/4")])

#: A ring over several nodes uses the network cards of all its members in a node.
data_parallel_bandwidth = formula(
    "data_parallel_bandwidth", r"W_d", "B/s",
    sp.Piecewise((link_bandwidth * link_fraction, data_parallel * tensor_parallel <= gpus_per_node),
                 (sp.Min(link_bandwidth * link_fraction, network_bandwidth * network_fraction * sp.Max(1, sp.Min(data_parallel, gpus_per_node / tensor_parallel))), True)),
    numbered=False, cases=[Case(dict(data_parallel=8, link_bandwidth=450e9, network_bandwidth=50e9, link_fraction=0.8), 360e9, "counted: inside a node"),
           Case(dict(data_parallel=8, link_bandwidth=450e9, network_bandwidth=50e9, tensor_parallel=8, network_fraction=0.8), 40e9, "counted: one network card each"),
           Case(dict(data_parallel=32, link_bandwidth=450e9, network_bandwidth=25e9, tensor_parallel=2, network_fraction=0.5), 50e9, "counted: four network cards a node share it"),
           Case(dict(data_parallel=64, link_bandwidth=100e9, network_bandwidth=50e9), 80e9, "counted: bound by the link")])

tensor_parallel_time = formula(
    "tensor_parallel_time", r"t_t", "s",
    accumulation_steps * layers_per_stage.result * (8 + recompute.pick({"full": 4})) * (tensor_parallel - 1) / tensor_parallel
    * weight_bytes * seq_len * micro_batch * d_model / (link_bandwidth * link_fraction),
    uses=[layers_per_stage], source=KORTHIKANTI,
    cases=[Case(dict(accumulation_steps=2, layers_per_stage=3, tensor_parallel=4, seq_len=1000, micro_batch=1, d_model=1000, link_bandwidth=1e9, link_fraction=0.5), 2 * 3 * 8 * 0.75 * 2e6 / 5e8,
                "Korthikanti et al. 2022: four collectives a layer forward, four backward"),
           Case(dict(accumulation_steps=1, layers_per_stage=1, tensor_parallel=2, seq_len=1000, micro_batch=2, d_model=1000, link_bandwidth=1e9, link_fraction=1, recompute="full"), 24e6 / 1e9,
                "counted: four more when a layer is computed again")])

pipeline_bubble = formula(
    "pipeline_bubble", r"\rho_\text{bubble}", "share",
    (pipeline_parallel - 1) / (virtual_stages * accumulation_steps + pipeline_parallel - 1), source=MEGATRON, valid=sp.Interval.Ropen(0, 1),
    cases=[Case(dict(pipeline_parallel=8, accumulation_steps=32, virtual_stages=1), 7 / 39, "Narayanan et al. 2021, section 2.2: (p−1)/m over the ideal time"),
           Case(dict(pipeline_parallel=16, accumulation_steps=16, virtual_stages=8), 15 / 143, "counted: Llama 3.1 405B's plan")])

#: Activations forward and gradients back, for each micro-batch and virtual stage.
_messages = 2 * accumulation_steps * virtual_stages * weight_bytes * seq_len * micro_batch * d_model / tensor_parallel

pipeline_time = formula(
    "pipeline_time", r"t_p", "s",
    sp.Piecewise((0, sp.Eq(pipeline_parallel, 1)), (_messages / (link_bandwidth * link_fraction), data_parallel * tensor_parallel * pipeline_parallel <= gpus_per_node),
                 (_messages / (network_bandwidth * network_fraction), True)),
    source=MEGATRON,
    numbered=False, cases=[Case(dict(pipeline_parallel=4, accumulation_steps=8, virtual_stages=2, seq_len=1000, micro_batch=1, d_model=1000, tensor_parallel=2, network_bandwidth=1e9, network_fraction=0.5, link_bandwidth=1e9, data_parallel=2), 0.064,
                "counted: 32 messages of 1 MB at 0.5 GB/s"),
           Case(dict(pipeline_parallel=4, accumulation_steps=8, seq_len=1000, micro_batch=2, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e10, link_fraction=0.5, data_parallel=2), 0.0128,
                "counted: 16 messages of 4 MB inside a node at 5 GB/s"),
           Case(dict(accumulation_steps=8, seq_len=1000, micro_batch=1, d_model=1000, network_bandwidth=1e9, link_bandwidth=1e9, data_parallel=1), 0, "counted: no pipeline")])

_replica_tokens = accumulation_steps * micro_batch * seq_len

tokens_per_step = formula(
    "tokens_per_step", r"B_\text{step}", "tokens", data_parallel * _replica_tokens, numbered=False,
    cases=[Case(dict(data_parallel=128, accumulation_steps=16, micro_batch=1, seq_len=8192), 2**24, "counted: Llama 3.1 405B's 16M tokens"),
           Case(dict(data_parallel=2, accumulation_steps=3, micro_batch=5, seq_len=7), 210, "counted")])

compute_time = formula(
    "compute_time", r"t_c", "s",
    hardware_flops_per_token.result * layers_per_stage.result / n_layers * _replica_tokens / (tensor_parallel * peak_flops * kernel_efficiency),
    uses=[hardware_flops_per_token, layers_per_stage],
    numbered=False, cases=[Case(dict(hardware_flops_per_token=1e12, accumulation_steps=4, micro_batch=2, seq_len=1000, tensor_parallel=2, layers_per_stage=3, n_layers=10, peak_flops=1e15, kernel_efficiency=0.5), 2.4,
                "counted: 3/10 of 8e15 over 1e15")])

#: Whatever fits behind the compute that is there to hide it: all of it where gradients move with each micro-batch, one micro-batch's share where they move once.
exposed_time = formula(
    "exposed_time", r"t_d", "s",
    sp.Max(0, data_parallel_bytes.result / data_parallel_bandwidth.result - overlap * compute_time.result / zero_stage.pick({0: accumulation_steps, 1: accumulation_steps}, 1)),
    uses=[data_parallel_bytes, data_parallel_bandwidth, compute_time], basis="rule of thumb",
    numbered=False, cases=[Case(dict(data_parallel_bytes=40e9, data_parallel_bandwidth=40e9, compute_time=2, accumulation_steps=4, zero_stage=1), 0.75, "counted: 1 − 0.5 · 2/4"),
           Case(dict(data_parallel_bytes=40e9, data_parallel_bandwidth=40e9, compute_time=1, accumulation_steps=4, zero_stage=3), 0.5, "counted: 1 − 0.5"),
           Case(dict(data_parallel_bytes=40e9, data_parallel_bandwidth=40e9, compute_time=3, zero_stage=3), 0, "counted: hidden")])

sharded_optimizer_time = formula(
    "sharded_optimizer_time", r"t_o", "s", optimizer_time.result / (tensor_parallel * pipeline_parallel * _divided(1, 2, 3)), uses=[optimizer_time],
    numbered=False, cases=[Case(dict(optimizer_time=0.064, tensor_parallel=2, pipeline_parallel=4, data_parallel=8, zero_stage=1), 0.001, "counted"),
           Case(dict(optimizer_time=0.064, tensor_parallel=2, pipeline_parallel=4, data_parallel=8, zero_stage=2), 0.001, "counted"),
           Case(dict(optimizer_time=0.064, tensor_parallel=2, data_parallel=8, zero_stage=3), 0.004, "counted"),
           Case(dict(optimizer_time=0.064, tensor_parallel=2, pipeline_parallel=4, data_parallel=8), 0.008, "counted: each replica does all of its part")])

bubble_time = formula(
    "bubble_time", r"t_b", "s", (compute_time.result + tensor_parallel_time.result) * pipeline_bubble.result / (1 - pipeline_bubble.result),
    uses=[compute_time, tensor_parallel_time, pipeline_bubble],
    numbered=False, cases=[Case(dict(compute_time=6, tensor_parallel_time=2, pipeline_bubble=0.2), 2, "counted: a fifth of ten")])

step_time = formula(
    "step_time", r"t_\text{step}", "s",
    compute_time.result + tensor_parallel_time.result + bubble_time.result + pipeline_time.result + exposed_time.result + sharded_optimizer_time.result,
    uses=[compute_time, tensor_parallel_time, bubble_time, pipeline_time, exposed_time, sharded_optimizer_time], rules=RULES,
    cases=[Case(dict(compute_time=3, tensor_parallel_time=2, bubble_time=4, pipeline_time=8, exposed_time=16, sharded_optimizer_time=32, data_parallel=1, n_layers=1, n_heads=1), 65, "counted")])

step_mfu = formula(
    "step_mfu", r"\text{MFU}_\text{step}", "share",
    training_flops_per_token.result * _replica_tokens / (tensor_parallel * pipeline_parallel * peak_flops * step_time.result), uses=[training_flops_per_token, step_time], valid=SHARE,
    cases=[Case(dict(training_flops_per_token=1e12, accumulation_steps=4, micro_batch=2, seq_len=1000, tensor_parallel=2, pipeline_parallel=4, peak_flops=1e15, step_time=4,
                     data_parallel=1, n_layers=4, n_heads=2), 0.25, "counted: 8e15 of 32e15")])

# -- the triangle ------------------------------------------------------------------------------------

memory_load = formula(
    "memory_load", r"\lambda_\text{memory}", "share", plan_memory.result / (usable_bytes - overhead_bytes), uses=[plan_memory], numbered=False,
    cases=[Case(dict(plan_memory=40e9, usable_bytes=81e9, overhead_bytes=1e9), 0.5, "counted")])

wire_load = formula(
    "wire_load", r"\lambda_\text{wire}", "share", (tensor_parallel_time.result + pipeline_time.result + exposed_time.result) / step_time.result,
    uses=[tensor_parallel_time, pipeline_time, exposed_time, step_time], numbered=False,
    cases=[Case(dict(tensor_parallel_time=3, pipeline_time=2, exposed_time=4, step_time=18, data_parallel=1, n_layers=1, n_heads=1), 0.5, "counted")])

batch_load = formula(
    "batch_load", r"\lambda_\text{batch}", "share", tokens_per_step.result / critical_batch, uses=[tokens_per_step], numbered=False,
    cases=[Case(dict(tokens_per_step=4e6, critical_batch=16e6), 0.25, "counted")])

binding_wall = formula(
    "binding_wall", r"\text{wall}", "", sp.Piecewise(
        (0, (memory_load.result >= wire_load.result) & (memory_load.result >= batch_load.result)), (1, wire_load.result >= batch_load.result), (2, True)),
    uses=[memory_load, wire_load, batch_load], choices=("memory", "bandwidth", "batch"), numbered=False,
    cases=[Case(dict(memory_load=a, wire_load=b, batch_load=c), n, "counted: the fullest") for a, b, c, n in ((0.6, 0.5, 0.1, 0), (0.6, 0.1, 0.5, 0), (0.2, 0.6, 0.5, 1), (0.2, 0.5, 0.7, 2))])
