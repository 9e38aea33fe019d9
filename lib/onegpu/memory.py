"""Section 01: what one training step keeps in memory.

State (weights, gradients, master copy, optimizer moments), activations, logits; the peak of
them over time; and the inverse: the largest model that a memory holds.
"""

import sympy as sp

from .formula import Case, Quantity, Rule, Section
from .quantities import *
from .shape import expert_layers
from .units import GIB

_section = Section(1)
formula = _section.formula

ZERO = "Rajbhandari et al. 2020, ZeRO, section 3.1, arXiv 1910.02054"
KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation, section 4, arXiv 2205.05198"

# -- state ---------------------------------------------------------------------------------------

bytes_per_param = formula(
    "bytes_per_param", r"\beta", "B/param", weight_bytes + grad_bytes + master_bytes + optimizer_bytes, source=ZERO,
    cases=[Case({}, 16, "ZeRO, section 3.1: 2 + 2 + 12 bytes a parameter"),
           Case({"weight_bytes": 3, "grad_bytes": 5, "master_bytes": 7, "optimizer_bytes": 11}, 26, "counted")])

training_state = formula(
    "training_state", r"M_\text{state}", "B", params * bytes_per_param.result, uses=[bytes_per_param], source=ZERO,
    cases=[Case({"params": 7.5e9}, 120e9, "ZeRO, figure 1: 120 GB for 7.5B parameters"),
           Case({"params": 7e9}, 1.12e11, "counted: 16 bytes of each of 7e9 parameters")])

inference_weights = formula(
    "inference_weights", "M_w", "B", params * weight_bytes, numbered=False,
    cases=[Case({"params": 70e9, "weight_bytes": 2}, 140e9, "counted: 2 bytes of each of 70e9 parameters")])

_largest = Quantity("largest_model", r"N_\text{max}")
largest_model = _section.add(numbered=False, formula=training_state.solve_for(params, _largest).bind(_largest, training_state=memory_bytes).replace(
    cases=[Case({"memory_bytes": 1e12}, 62.5e9, "counted: 1e12 / 16"),
           Case({"memory_bytes": 1.6e9, "master_bytes": 0, "optimizer_bytes": 0}, 4e8, "counted: 1.6e9 / 4")]))

cards_for_state = formula(
    "cards_for_state", r"n_\text{cards}", "cards", sp.ceiling(training_state.result / memory_bytes), numbered=False, uses=[training_state], integer=True,
    cases=[Case({"params": 70e9, "memory_bytes": 80e9}, 14, "counted: 1120 GB / 80 GB"),
           Case({"params": 175e9, "memory_bytes": 80 * GIB}, 33, "counted: 2800 GB / 85.9 GB"),
           Case({"params": 5e9, "memory_bytes": 80e9}, 1, "counted: exactly one card")])

# -- activations ---------------------------------------------------------------------------------

_q, _kv = n_heads * d_head / d_model, n_kv_heads * d_head / d_model
_scores = n_heads * seq_len / d_model

_ff = 2 * n_ff_matrices * d_ff / d_model
_d_qk = d_nope + d_rope
_latent = (2 * (2 * q_lora_rank + 2 * kv_lora_rank + d_rope) + 4 * n_heads * (_d_qk + d_v)) / d_model
_routed = (2 * n_ff_matrices * d_ff_expert * n_shared_experts + n_active_experts * (2 * d_model + 2 * n_ff_matrices * d_ff_expert) + 4 * n_experts) / d_model
_V3 = dict(n_layers=61, d_model=7168, n_heads=128, n_kv_heads=128, d_head=160, d_ff=18432, n_ff_matrices=3, q_lora_rank=1536, kv_lora_rank=512, d_nope=128, d_rope=64, d_v=128,
           n_experts=256, n_active_experts=8, n_shared_experts=1, d_ff_expert=2048)

#: Latent attention keeps its low-rank tensors, norms and both uncompressed sides; experts keep a token's copy for each one it visits. The mean over the layers.
sparse_activations = formula(
    "sparse_activations", r"c_\text{sparse}", "B/(s·b·h)",
    8 + sp.Piecewise((_latent, kv_lora_rank > 0), (4 * _q + 4 * _kv, True)) + _ff + (_routed - _ff) * expert_layers.result / n_layers,
    uses=[expert_layers], numbered=False, source="counted tensor by tensor for DeepSeek-V3's shape, arXiv 2412.19437",
    cases=[Case(_V3 | dict(expert_layers=61), (229504 + 226304) / 7168, "counted: latent attention 229,504 bytes a token, experts 226,304"),
           Case(_V3 | dict(expert_layers=0), (229504 + 6 * 18432) / 7168, "counted: a layer without experts"),
           Case(dict(n_layers=4, expert_layers=2, d_model=10, n_heads=4, n_kv_heads=2, d_head=5, d_ff=7, n_ff_matrices=2, n_experts=3, n_active_experts=2, n_shared_experts=2, d_ff_expert=6),
                8 + 8 + 4 + 2.8 + (48 + 88 + 12 - 28) / 10 / 2, "counted: half of the layers with experts"),
           Case(dict(n_layers=1, expert_layers=0, d_model=10, n_heads=4, n_kv_heads=2, d_head=5, d_ff=10, n_ff_matrices=2, q_lora_rank=2, kv_lora_rank=1, d_nope=3, d_rope=5, d_v=7),
                8 + (2 * 11 + 16 * 15) / 10 + 4, "counted: latent attention")])

#: Inputs of two norms and of the two blocks, q, k, v, attention's output, and the feed-forward block's tensors.
linear_activations = formula(
    "linear_activations", r"c_\text{lin}", "B/(s·b·h)",
    sp.Piecewise((8 + 4 * _q + 4 * _kv + _ff + 2 * dropout, sp.Eq(n_experts, 0) & sp.Eq(kv_lora_rank, 0)), (sparse_activations.result, True)),
    uses=[sparse_activations], source=KORTHIKANTI,
    cases=[Case(dict(n_heads=96, d_head=128, d_model=12288, n_kv_heads=96, n_ff_matrices=2, d_ff=49152, n_layers=96, dropout=True), 34,
                "Korthikanti et al. 2022, equation 1: 34·s·b·h"),
           Case(_V3 | dict(sparse_activations=63.6), 63.6, "counted: experts have their own formula"),
           Case(dict(n_heads=1, d_head=1, d_model=1, n_kv_heads=1, d_ff=1, n_ff_matrices=2, n_layers=1, kv_lora_rank=1, sparse_activations=5), 5, "counted: so has latent attention"),
           Case(dict(n_heads=1, d_head=1, d_model=1, n_kv_heads=1, d_ff=1, n_ff_matrices=2, n_layers=1, n_experts=1, sparse_activations=5), 5, "counted: one expert too"),
           Case(dict(n_heads=32, d_head=128, d_model=4096, n_kv_heads=8, n_ff_matrices=3, d_ff=14336, n_layers=32), 34.0, "counted: Llama 3 8B, 8 + 4 + 1 + 21")])

score_activations = formula(
    "score_activations", r"c_\text{attn}", "B/(s·b·h)",
    attention.pick({"flash": 4 * n_heads / d_model, "eager": (6 + dropout) * _scores}, (2 + 3 * dropout) * _scores), source=KORTHIKANTI,
    cases=[Case(dict(n_heads=96, d_model=12288, seq_len=2048, attention="eager-bf16", dropout=True), 80,
                "Korthikanti et al. 2022, section 5: 5·a·s/h = 80 for GPT-3"),
           Case(dict(n_heads=128, d_model=20480, seq_len=2048, attention="eager-bf16", dropout=True), 64,
                "Korthikanti et al. 2022, section 5: 5·a·s/h = 64 for MT-NLG"),
           Case(dict(n_heads=32, d_model=4096, seq_len=4096, attention="eager"), 192, "counted: an fp32 softmax and its bf16 copy"),
           Case(dict(n_heads=32, d_model=4096, seq_len=4096, attention="eager", dropout=True), 224, "counted: one mask more"),
           Case(dict(n_heads=32, d_model=4096, seq_len=4096, attention="eager-bf16"), 64, "counted: one bf16 softmax"),
           Case(dict(n_heads=32, d_model=4096, seq_len=4096, attention="flash"), 1 / 32, "counted: one fp32 log-sum-exp a head and token")])

_selective = sp.Eq(recompute, 1) & sp.Ne(attention, 0)
_layer = linear_activations.result + score_activations.result
_GPT3 = dict(n_heads=96, d_head=128, d_model=12288, n_kv_heads=96, n_ff_matrices=2, d_ff=49152, n_layers=96, seq_len=2048, attention="eager-bf16", dropout=True)

_cached_ff = (2 * d_ff + d_model) / d_model
_cached_experts = (n_active_experts + n_shared_experts) * (2 * d_ff_expert + d_model) / d_model

#: DeepSeek-V3's own recipe: norms, up-projections and activation functions are computed again, inputs of products are kept in FP8.
cached_activations = formula(
    "cached_activations", r"c_\text{cached}", "B/(s·b·h)",
    4 + (2 * (q_lora_rank + kv_lora_rank + d_rope) + n_heads * (2 * d_v + 4)) / d_model + _cached_ff + (_cached_experts - _cached_ff) * expert_layers.result / n_layers,
    uses=[expert_layers], numbered=False, source="DeepSeek-AI 2024, DeepSeek-V3, section 3.2.3, arXiv 2412.19437",
    cases=[Case({n: x for n, x in _V3.items() if n not in ("n_kv_heads", "d_head", "d_nope", "n_ff_matrices")} | dict(expert_layers=61), 167552 / 7168, "counted for DeepSeek-V3: 168 kB a token and layer"),
           Case(dict(n_layers=4, expert_layers=1, d_model=10, n_heads=3, d_ff=7, q_lora_rank=2, kv_lora_rank=4, d_rope=5, d_v=6, n_active_experts=2, n_shared_experts=3, d_ff_expert=11, n_experts=9),
                4 + (22 + 48) / 10 + 2.4 + (5 * 3.2 - 2.4) / 4, "counted")])

kept_per_layer = formula(
    "kept_per_layer", r"c_\text{kept}", "B/(s·b·h)",
    sp.Piecewise((2, sp.Eq(recompute, 2)), (linear_activations.result, _selective), (cached_activations.result, sp.Eq(recompute, 3)), (_layer, True)),
    uses=[linear_activations, score_activations, cached_activations], source=KORTHIKANTI,
    rules=[Rule("latent_recompute", sp.Ne(recompute, 3) | (kv_lora_rank > 0))],
    cases=[Case(_GPT3 | dict(recompute="projections", cached_activations=23, kv_lora_rank=1, n_layers=1), 23, "counted"),
           Case(_GPT3, 114, "Korthikanti et al. 2022, equation 2: 34 + 80 for GPT-3"),
           Case(_GPT3 | {"recompute": "attention"}, 34, "Korthikanti et al. 2022, table 2: 34·s·b·h"),
           Case(_GPT3 | {"recompute": "full"}, 2, "Korthikanti et al. 2022, table 2: 2·s·b·h"),
           Case(_GPT3 | {"recompute": "attention", "attention": "flash"}, 34 + 4 / 128, "counted: under FlashAttention selective changes nothing")])

activations = formula(
    "activations", r"M_\text{act}", "B", seq_len * micro_batch * d_model * n_layers * kept_per_layer.result, uses=[kept_per_layer], source=KORTHIKANTI,
    cases=[Case(dict(seq_len=2048, micro_batch=4, d_model=6144, n_layers=1, kept_per_layer=34), 8 * 0.2139e9,
                "Korthikanti et al. 2022, tables 2 and 3: the 22B model's layer on 8 GPUs", rel=1e-3),
           Case(dict(seq_len=2048, micro_batch=1, d_model=12288, n_layers=96, kept_per_layer=2), 96 * 0.0503e9,
                "Korthikanti et al. 2022, tables 2 and 3: 175B, full recompute", rel=1e-3)])

logits = formula(
    "logits", r"M_\text{logits}", "B", micro_batch * seq_len * vocab_size * bytes_per_logit,
    cases=[Case(dict(micro_batch=2, seq_len=4096, vocab_size=32000, bytes_per_logit=4), 1048576000, "counted: one fp32 copy")])

layer_working_set = formula(
    "layer_working_set", r"M_\text{live}", "B",
    seq_len * micro_batch * d_model * sp.Piecewise((_layer, sp.Eq(recompute, 2)), (score_activations.result, _selective), (_layer - cached_activations.result, sp.Eq(recompute, 3)), (0, True)),
    uses=[linear_activations, score_activations, cached_activations], numbered=False,
    cases=[Case(_GPT3 | dict(micro_batch=1, recompute="projections", cached_activations=14, n_layers=1), 2048 * 12288 * 100, "counted: what is not cached"),
           Case(_GPT3 | dict(micro_batch=2, recompute="full"), 2 * 2048 * 12288 * 114, "counted: one layer, computed again"),
           Case(_GPT3 | dict(micro_batch=1, recompute="attention"), 2048 * 12288 * 80, "counted: one layer's scores"),
           Case(_GPT3 | dict(micro_batch=1), 0, "counted: nothing is computed again")])

# -- the peak over time ----------------------------------------------------------------------------

gradients = formula("gradients", r"M_g", "B", params * grad_bytes, numbered=False, cases=[Case({"params": 7e9, "grad_bytes": 4}, 28e9, "counted")])
master_weights = formula("master_weights", r"M_m", "B", params * master_bytes, numbered=False, cases=[Case({"params": 7e9}, 28e9, "counted")])
optimizer_moments = formula("optimizer_moments", r"M_o", "B", params * optimizer_bytes, numbered=False, cases=[Case({"params": 7e9}, 56e9, "counted")])

_always = [inference_weights, master_weights, optimizer_moments]
_sizes = dict(gradients=10e9, activations=30e9)

forward_gradients = formula(
    "forward_gradients", r"M_g^\text{fwd}", "B", accumulate.pick({True: gradients.result}), numbered=False, uses=[gradients],
    cases=[Case(dict(gradients=10e9, accumulate=True), 10e9, "counted: the last micro-batch's are still there"), Case(dict(gradients=10e9), 0, "counted: freed")])

backward_gradients = formula(
    "backward_gradients", r"M_g^\text{bwd}", "B",
    sp.Piecewise((gradients.result, sp.Eq(accumulate, 1) | (gradients.result >= activations.result)), (0, True)), uses=[gradients, activations], numbered=False,
    cases=[Case(_sizes, 0, "counted: the peak is at the start of backward"), Case(_sizes | {"accumulate": True}, 10e9, "counted"),
           Case(dict(gradients=30e9, activations=10e9), 30e9, "counted: the peak is at its end")])

backward_activations = formula(
    "backward_activations", r"M_\text{act}^\text{bwd}", "B",
    sp.Piecewise((activations.result, sp.Eq(accumulate, 1) | (gradients.result < activations.result)), (0, True)), uses=[gradients, activations], numbered=False,
    cases=[Case(_sizes, 30e9, "counted: the peak is at the start of backward"),
           Case(dict(gradients=30e9, activations=10e9), 0, "counted: the peak is at its end"),
           Case(dict(gradients=30e9, activations=10e9, accumulate=True), 10e9, "counted")])


def _sum(name, symbol, parts, cases):
    return formula(name, symbol, "B", sum(p.result for p in parts), uses=parts, cases=cases)


_state = dict(inference_weights=2e9, master_weights=4e9, optimizer_moments=8e9)
forward_memory = _sum("forward_memory", r"M_\text{fwd}", [*_always, forward_gradients, activations, logits],
                      [Case(_state | dict(forward_gradients=1e9, activations=16e9, logits=32e9), 63e9, "counted")])
backward_memory = _sum("backward_memory", r"M_\text{bwd}", [*_always, backward_gradients, backward_activations, layer_working_set],
                       [Case(_state | dict(backward_gradients=1e9, backward_activations=16e9, layer_working_set=32e9), 63e9, "counted")])
step_memory = _sum("step_memory", r"M_\text{step}", [*_always, gradients], [Case(_state | dict(gradients=1e9), 15e9, "counted")])

training_memory = formula(
    "training_memory", r"M_\text{peak}", "B", sp.Max(forward_memory.result, backward_memory.result, step_memory.result),
    uses=[forward_memory, backward_memory, step_memory],
    cases=[Case(dict(forward_memory=a, backward_memory=b, step_memory=c), 3e9, "counted: the largest of three")
           for a, b, c in [(3e9, 1e9, 2e9), (1e9, 3e9, 2e9), (2e9, 1e9, 3e9)]])

headroom = formula(
    "headroom", r"M_\text{spare}", "B", usable_bytes - overhead_bytes - training_memory.result, uses=[training_memory], valid=sp.Interval(-sp.oo, sp.oo),
    cases=[Case(dict(usable_bytes=80e9, overhead_bytes=1e9, training_memory=100e9), -21e9, "counted")])

fits = formula(
    "fits", r"\text{fits}", "", sp.Piecewise((1, headroom.result >= 0), (0, True)), uses=[headroom], numbered=False, choices=("no", "yes"),
    cases=[Case(dict(headroom=0), 1, "counted: just fits"), Case(dict(headroom=-1), 0, "counted: just does not")])

# -- what escaping costs ---------------------------------------------------------------------------

_section.equation(inference_weights)  # the weights alone: inference, and what offloading leaves

offload_time = formula(
    "offload_time", r"t_\text{offload}", "s", params * (grad_bytes + weight_bytes) / host_bandwidth,
    source="Ren et al. 2021, ZeRO-Offload, section 4, arXiv 2101.06840",
    cases=[Case({"params": 7e9, "host_bandwidth": 28e9}, 1, "counted: gradients down and weights up, 28 GB at 28 GB/s")])
