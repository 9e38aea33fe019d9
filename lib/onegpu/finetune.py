"""Section 07: fine-tuning on the card one has.

Frozen weights cost only their own bytes, and trained ones (all of them, or adapters) their gradients
and moments too; what backward needs hardly shrinks. The peak is one of four moments: the end of
forward, the loss and its gradient, backward through the layers, and the optimizer's step.
"""

import sympy as sp

from .compute import BACKWARD, FORWARD, attention_flops_per_token
from .formula import Case, Formula, Largest, Quantity, Rule, Section
from .memory import backward_activations, backward_gradients, fits, forward_gradients, headroom, logits, score_activations
from .quantities import *
from .scaling import training_cost
from .units import HOUR

_section = Section(7)
formula, bound = _section.formula, _section.bound

LORA = "Hu et al. 2021, LoRA, section 4.1, arXiv 2106.09685"
QLORA = "Dettmers et al. 2023, QLoRA, section 3, arXiv 2305.14314"

# -- what is trained ---------------------------------------------------------------------------------

_heads, _kv_heads = n_heads * d_head, n_kv_heads * d_head
_qv = 2 * d_model + _heads + _kv_heads
_attention = 2 * _qv  # and k and o: the same sizes once more
_layer = _attention + n_ff_matrices * (d_model + d_ff)

_dense = Rule("finetune_dense", sp.Eq(n_experts, 0) & sp.Eq(kv_lora_rank, 0))

#: Each adapted matrix adds rank·(d_in + d_out).
lora_params = formula(
    "lora_params", r"N_\text{lora}", "",
    rank * (n_layers * targets.pick({"qv": _qv, "attention": _attention}, _layer) + targets.pick({"all+head": d_model + vocab_size})), source=LORA, rules=[_dense],
    cases=[Case(dict(n_layers=layers, d_model=h, n_heads=a, n_kv_heads=kv, d_head=d, n_ff_matrices=ff, d_ff=f, vocab_size=v, rank=r, targets=t), n, where)
           for layers, h, a, kv, d, ff, f, v, r, t, n, where in [
               (32, 4096, 32, 32, 128, 3, 11008, 32000, 16, "all", 39_976_960, "peft on Llama 2 7B, all linear layers"),
               (32, 4096, 32, 32, 128, 3, 11008, 32000, 8, "qv", 4_194_304, "litgpt's resource tables: Llama 2 7B"),
               (32, 4096, 32, 32, 128, 3, 11008, 32000, 8, "all+head", 20_277_248, "torchtune on Llama 2 7B"),
               (32, 4096, 32, 32, 128, 3, 11008, 32000, 64, "all+head", 162_217_984, "torchtune on Llama 2 7B"),
               (40, 5120, 40, 40, 128, 3, 13824, 32000, 8, "qv", 6_553_600, "litgpt's resource tables: Llama 2 13B"),
               (16, 4096, 32, 32, 128, 2, 16384, 50432, 8, "qv", 2_097_152, "litgpt's resource tables: StableLM Alpha 3B"),
               (60, 8192, 128, 8, 64, 2, 32768, 65024, 8, "qv", 12_042_240, "litgpt's resource tables: Falcon 40B"),
               (32, 4096, 32, 8, 128, 3, 14336, 32000, 16, "attention", 13_631_488, "counted: 16 times 32 times 26,624")]])

trainable_params = formula(
    "trainable_params", "N_t", "", method.pick({"full": params}, lora_params.result), uses=[lora_params], numbered=False,
    cases=[Case(dict(method="full", params=7e9, lora_params=4e7), 7e9, "counted"), Case(dict(method="qlora", params=7e9, lora_params=4e7), 4e7, "counted")])

# -- weights -----------------------------------------------------------------------------------------

#: Four bits and one fp32 scale for each 64 weights; double quantised, a one-byte scale and an fp32 one for each 256 of those.
_base_bytes = _section.add(Formula(
    quantized_bytes, method.pick({"qlora": sp.Rational(1, 2) + sp.Rational(4, 64)}, sp.Rational(1, 2) + sp.Rational(1, 64) + sp.Rational(4, 64 * 256)), source=QLORA,
    cases=[Case({"method": "qlora"}, 0.5625, "QLoRA, section 3: 0.5 bits more for each weight"), Case({"method": "qlora-dq"}, 4.127 / 8, "QLoRA, section 3: 0.127 bits", rel=1e-4)]), numbered=False)

#: A recipe says what is kept of trained weights; frozen ones are as they were loaded.
_FROZEN = {"weight_bytes": ""}
_plain_head = head_params * (1 - head_quantized)

#: Only the matrices of the layers are quantised; embeddings, norms and (unless asked) the head stay as they are.
quantized_weights = formula(
    "quantized_weights", r"M_q", "B", quantized_bytes * (matmul_params - _plain_head) + weight_bytes * (params - matmul_params + _plain_head), uses=[_base_bytes], fill=_FROZEN, source=QLORA,
    cases=[Case(dict(params=10e9, matmul_params=9e9, head_params=1e9, quantized_bytes=0.5), 8e9, "counted: 8e9 at half a byte, 2e9 at 2 bytes"),
           Case(dict(params=10e9, matmul_params=9e9, head_params=1e9, quantized_bytes=0.5, head_quantized=True), 6.5e9, "counted: 9e9 at half a byte, 1e9 at 2 bytes"),
           Case(dict(params=1e9, matmul_params=1e9, head_params=1e8), 0.9e9 * (0.5 + 0.015625 + 4 / 16384) + 2e8, "QLoRA, section 3: double quantisation")])

frozen_weights = formula(
    "frozen_weights", r"M_W", "B", method.pick({"full": 0, "lora": weight_bytes * params}, quantized_weights.result), uses=[quantized_weights], fill=_FROZEN, numbered=False,
    cases=[Case(dict(method=m, params=7e9, quantized_weights=4e9), value, why)
           for m, value, why in [("full", 0, "counted: all are trained"), ("lora", 14e9, "counted"), ("qlora", 4e9, "counted"), ("qlora-dq", 4e9, "counted")]])

trainable_gradients = formula(
    "trainable_gradients", r"M_g", "B", trainable_params.result * grad_bytes, uses=[trainable_params], numbered=False, cases=[Case(dict(trainable_params=1e9), 2e9, "counted")])

#: Weights, masters and moments of what is trained.
trainable_state = formula(
    "trainable_state", r"M_t", "B", trainable_params.result * sp.Max(trainable_bytes - grad_bytes, 0), uses=[trainable_params], numbered=False,
    cases=[Case(dict(trainable_params=1e9, trainable_bytes=12), 10e9, "counted: 12 less the gradients' 2"), Case(dict(trainable_params=1e9, trainable_bytes=1), 0, "counted")])

# -- what backward needs -----------------------------------------------------------------------------

_q, _kv, _f = _heads / d_model, _kv_heads / d_model, d_ff / d_model
_full, _eager = sp.Eq(method, 0), sp.Eq(kernels, 0)
_one_kv = sp.Eq(n_kv_heads, n_heads)
_drops = lora_dropout > 0
_quantized = sp.Eq(method, 2) | sp.Eq(method, 3)
_o, _mlp = targets.pick({"qv": 0}, 1), targets.pick({"qv": 0, "attention": 0}, 1)
_inputs = sp.Min(n_norms, 2)  # one norm can feed both blocks
_HEADS = dict(n_heads=32, n_kv_heads=32, d_head=128, d_model=4096)  # Llama 2 7B's
_GROUPED = _HEADS | dict(n_kv_heads=8)  # Mistral 7B's
_BLOCK = dict(n_ff_matrices=3, d_ff=11008, d_model=4096)
_BOTH = dict(n_heads=32, d_head=128, d_model=4096, d_ff=11008)
_FF = 11008 / 4096

norm_bytes = formula(
    "norm_bytes", r"c_\text{norm}", "B/(s·b·h)", sp.Piecewise((6, _eager & sp.Eq(norm, 0) & _full), (4, _eager & sp.Eq(norm, 0)), (2, True)), numbered=False,
    cases=[Case({}, 4, "counted: an fp32 copy"), Case(dict(method="full"), 6, "counted: and what the trained weight multiplied"),
           Case(dict(kernels="fused"), 2, "counted: the input"), Case(dict(norm="layernorm"), 2, "counted"), Case(dict(norm="layernorm", method="full"), 2, "counted")])

attention_activations = formula(
    "attention_activations", r"c_\text{qkv}", "B/(s·b·h)",
    4 * _q + 4 * sp.Piecewise((_q, sp.Eq(kv_repeated, 1)), (_kv, True))
    + sp.Piecewise((2 * (_q + _kv), sp.Eq(qkv, 1) & (_one_kv | sp.Eq(kv_repeated, 0))), (0, True))
    + sp.Piecewise((2 * (_q + _kv), sp.Eq(qkv, 1) & ~_full & sp.Eq(targets, 0)), (0, True)), numbered=False,
    cases=[Case(_HEADS, 8, "counted: q, k, v and the output"), Case(_GROUPED, 5, "counted: 4 + 4/4"), Case(_GROUPED | dict(kv_repeated=True), 8, "counted: one key and value for each query"),
           Case(_HEADS | dict(qkv="fused", targets="all"), 12, "counted: v holds q and k as well"), Case(_HEADS | dict(qkv="fused", targets="qv"), 16, "counted: and the padded adapters"),
           Case(_HEADS | dict(qkv="fused", targets="qv", kv_repeated=True), 16, "counted: nothing to repeat"), Case(_GROUPED | dict(qkv="fused", targets="qv"), 10, "counted: 5 + 2.5 + 2.5"),
           Case(_GROUPED | dict(qkv="fused", targets="qv", kv_repeated=True), 10.5, "counted: copies, so nothing is held; padded adapters"),
           Case(_HEADS | dict(qkv="fused", targets="qv", method="full"), 12, "counted: no adapters")])

feed_forward_activations = formula(
    "feed_forward_activations", r"c_\text{ff}", "B/(s·b·h)", 2 * _f * sp.Piecewise((2 * n_ff_matrices - 3, _eager), (n_ff_matrices - 1, True)), numbered=False,
    cases=[Case(_BLOCK, 6 * _FF, "counted: gate, its SiLU, up"), Case(_BLOCK | dict(kernels="fused"), 4 * _FF, "counted: gate and up"),
           Case(_BLOCK | dict(n_ff_matrices=2), 2 * _FF, "counted: before GELU"), Case(_BLOCK | dict(n_ff_matrices=2, kernels="fused"), 2 * _FF, "counted: before GELU")])

_adapters = sp.Piecewise((1, sp.Eq(qkv, 1)), (targets.pick({"qv": 2}, 3), True)) + _o * _q + _mlp * (n_ff_matrices - 1 + _f)
_INPUTS = _BOTH | dict(n_ff_matrices=3)

#: Inputs that a weight's gradient needs: of every matrix, or of the adapters, where a dropout makes a mask (1) and a copy (2, or 4 in fp32).
input_activations = formula(
    "input_activations", r"c_\text{in}", "B/(s·b·h)",
    sp.Piecewise(
        (2 * (_inputs + _f + qkv * _q), _full),
        ((3 + 2 * adapter_bytes) * _adapters, _drops),
        (4 * _adapters, sp.Eq(adapter_bytes, 1)),
        (2 * (1 + _o * qkv * _q + _mlp * (_inputs - 1 + _f)), True)), numbered=False,
    cases=[Case(_INPUTS | dict(method="full"), 4 + 2 * _FF, "counted: two norms' outputs and the product"), Case(_INPUTS | dict(method="full", qkv="fused"), 6 + 2 * _FF, "counted: and the heads' copy"),
           Case(_INPUTS | dict(targets="qv"), 2, "counted: q and v share their input"), Case(_INPUTS | dict(targets="qv", lora_dropout=0.1), 6, "counted: two dropouts"),
           Case(_INPUTS | dict(targets="qv", lora_dropout=0.1, qkv="fused"), 3, "counted: one dropout"), Case(_INPUTS | dict(targets="attention", lora_dropout=0.1), 12, "counted"),
           Case(_INPUTS | dict(targets="attention", lora_dropout=0.1, adapter_bytes=4), 20, "counted: a byte and fp32"), Case(_INPUTS | dict(targets="attention", adapter_bytes=4), 16, "counted: fp32 copies"),
           Case(_INPUTS | dict(targets="all", adapter_bytes=4, qkv="fused"), 16 + 4 * _FF, "counted: one for q, k, v; o, gate, up, down"),
           Case(_INPUTS | dict(targets="all", lora_dropout=0.1), 18 + 3 * _FF, "counted: q, k, v, o, gate, up, down"), Case(_INPUTS | dict(targets="all"), 4 + 2 * _FF, "counted"),
           Case(_INPUTS | dict(targets="attention", qkv="fused"), 4, "counted: and the heads' copy"), Case(_INPUTS | dict(targets="all+head", n_norms=1), 2 + 2 * _FF, "counted: one norm for both")])

_kept_quantized = _quantized & sp.Eq(quantized_inputs, 1)
_KEPT = _BOTH | dict(method="qlora", quantized_inputs="kept", lora_dropout=0.1)

#: Inputs that quantised matrices keep although no gradient needs them, unless something else keeps them already.
quantized_activations = formula(
    "quantized_activations", r"c_\text{q}", "B/(s·b·h)",
    sp.Piecewise(
        (2 * (_inputs + _f + qkv * _q), _kept_quantized & (_drops | sp.Eq(adapter_bytes, 1))),
        (2 * ((_inputs - 1 + _f) * (1 - _mlp) + qkv * _q * (1 - _o)), _kept_quantized), (0, True)), numbered=False,
    cases=[Case(_KEPT, 4 + 2 * _FF, "counted"), Case(_KEPT | dict(method="qlora-dq", qkv="fused"), 6 + 2 * _FF, "counted: and the heads' copy"), Case(_KEPT | dict(method="lora"), 0, "counted"),
           Case(_KEPT | dict(lora_dropout=0, adapter_bytes=4), 4 + 2 * _FF, "counted: the adapters keep fp32 copies"),
           Case(_KEPT | dict(lora_dropout=0, targets="qv", qkv="fused"), 4 + 2 * _FF, "counted: the adapters keep the first"), Case(_KEPT | dict(lora_dropout=0, targets="all", qkv="fused"), 0, "counted: they keep all"),
           Case(_KEPT | dict(lora_dropout=0, targets="attention", qkv="fused"), 2 + 2 * _FF, "counted: they keep q's, k's, v's and o's"),
           Case(_KEPT | dict(quantized_inputs="freed"), 0, "counted: freed"), Case(_KEPT | dict(n_norms=1), 2 + 2 * _FF, "counted: one norm for both")])

_kept_parts = [norm_bytes, attention_activations, feed_forward_activations, input_activations, quantized_activations]
_linear = n_norms * norm_bytes.result + sum(part.result for part in _kept_parts[1:])
_selective = sp.Eq(recompute, 1) & sp.Ne(attention, 0)

finetune_kept = formula(
    "finetune_kept", r"c_\text{kept}", "B/(s·b·h)",
    sp.Piecewise((2, sp.Eq(recompute, 2)), (_linear, _selective), (_linear + score_activations.result, True)), uses=[*_kept_parts, score_activations], numbered=False,
    rules=[_dense, Rule("finetune_recompute", sp.Ne(recompute, 3))],
    cases=[Case(dict(n_norms=1, norm_bytes=1, attention_activations=2, feed_forward_activations=4, input_activations=8, quantized_activations=16, score_activations=32, recompute=r, attention=a), value, "counted")
           for r, a, value in [("none", "flash", 63), ("none", "eager", 63), ("attention", "flash", 63), ("attention", "eager", 31), ("full", "flash", 2)]]
          + [Case(_HEADS | _BLOCK | dict(method="full", kernels="fused", seq_len=4096), 8 + 8 + 6 * _FF + 1 / 32, "counted: as in full training, section 1")])

_tokens_h = seq_len * micro_batch * d_model

finetune_activations = formula(
    "finetune_activations", r"M_\text{act}", "B", _tokens_h * (n_layers * finetune_kept.result + norm_bytes.result + 2), uses=[finetune_kept, norm_bytes], numbered=False,
    cases=[Case(dict(seq_len=100, micro_batch=2, d_model=1000, n_layers=10, finetune_kept=30, norm_bytes=4), 200e3 * 306, "counted: ten layers, the last norm and the head's input")])

_HELD = _BOTH | dict(seq_len=100, micro_batch=2, n_layers=10, method="qlora", quantized_inputs="kept", previous_step=True)

held_activations = formula(
    "held_activations", r"M_\text{held}", "B",
    sp.Piecewise((_tokens_h * n_layers * 2 * (_inputs + _f + _q), _kept_quantized & sp.Eq(previous_step, 1) & sp.Ne(recompute, 2)), (0, True)), numbered=False,
    cases=[Case(_HELD, 200 * 40960 * 2 * (3 + _FF), "counted: the last step's inputs"), Case(_HELD | dict(n_norms=1), 200 * 40960 * 2 * (2 + _FF), "counted"), Case(_HELD | dict(method="lora"), 0, "counted"),
           Case(_HELD | dict(method="qlora-dq"), 200 * 40960 * 2 * (3 + _FF), "counted"), Case(_HELD | dict(recompute="full"), 0, "counted"), Case(_HELD | dict(previous_step=False), 0, "counted"), Case(_HELD | dict(quantized_inputs="freed"), 0, "counted")])

_matrix_shape = d_model * sp.Max(d_ff, sp.Piecewise((_heads + 2 * _kv_heads, sp.Eq(qkv, 1)), (_heads, True)))
_quantized_head = _quantized & sp.Eq(head_quantized, 1)
_HEAD = dict(method="qlora", head_quantized=True, d_model=4096, vocab_size=32000)


def _whole_head(name, symbol, gone):
    """The dequantised head, less what the logits lack at that moment: ``gone`` bytes of each."""
    at = _HEAD | dict(seq_len=256, micro_batch=2)
    return formula(
        name, symbol, "B", sp.Piecewise((vocab_size * sp.Max(dequantized_bytes * d_model - gone * seq_len * micro_batch, 0), _quantized_head), (0, True)), numbered=False,
        cases=[Case(at, 32000 * (8192 - gone * 512), "counted"), Case(at | dict(seq_len=4096), 0, "counted: the logits are larger"),
               Case(at | dict(head_quantized=False), 0, "counted"), Case(at | dict(method="lora"), 0, "counted"), Case(at | dict(method="qlora-dq"), 32000 * (8192 - gone * 512), "counted")])


#: In forward the head is gone again when the logits' fp32 copies are made (4); in backward their gradients are bf16 again when it is back (2).
forward_head = _whole_head("forward_head", r"M_\text{head}^\text{fwd}", 4)
loss_head = _whole_head("loss_head", r"M_\text{head}^\text{loss}", 2)

#: The last step's fp32 logits stay until the next ones are there: a quarter more than the loss itself holds.
held_logits = formula(
    "held_logits", r"M_\text{logits}^\text{held}", "B", previous_step.pick({True: logits.result / 4}), uses=[logits], numbered=False,
    cases=[Case(dict(logits=8e9, previous_step=True), 2e9, "counted: 4 + 2 + 4 bytes each at the end of forward, 4 + 4 in the loss"), Case(dict(logits=8e9), 0, "counted")])

dequantized_matrix = formula(
    "dequantized_matrix", r"M_\text{d}", "B", sp.Piecewise((dequantized_bytes * _matrix_shape, _quantized), (0, True)), numbered=False,
    cases=[Case(_HEADS | dict(d_ff=11008, method="qlora"), 2 * 4096 * 11008, "counted: gate, up or down"), Case(_HEADS | dict(d_ff=4096, method="qlora-dq", qkv="fused"), 2 * 4096 * 12288, "counted: q, k, v in one"),
           Case(_HEADS | dict(d_ff=2048, method="qlora", dequantized_bytes=4), 4 * 4096 * 4096, "counted: q or o"), Case(_HEADS | dict(d_ff=11008, method="lora"), 0, "counted")])

#: In backward: the residual's gradient and two as wide as the feed-forward block; and one layer, computed again.
finetune_working_set = formula(
    "finetune_working_set", r"M_\text{live}", "B",
    _tokens_h * (2 + 4 * _f + sp.Piecewise((_linear + score_activations.result, sp.Eq(recompute, 2)), (score_activations.result, _selective), (0, True))),
    uses=[*_kept_parts, score_activations], numbered=False,
    cases=[Case(dict(d_model=1000, d_ff=4000, seq_len=100, micro_batch=2, n_norms=2, norm_bytes=3, attention_activations=2, feed_forward_activations=4, input_activations=8, quantized_activations=16,
                     score_activations=32, recompute=r, attention=a), 200e3 * (18 + value), "counted") for r, a, value in [("none", "eager", 0), ("attention", "eager", 32), ("full", "flash", 68), ("attention", "flash", 0)]])

# -- the peak over time --------------------------------------------------------------------------------

# Section 1's, of what is trained
finetune_forward_gradients = bound(
    forward_gradients, "finetune_forward_gradients", r"M_g^\text{fwd}", gradients=trainable_gradients,
    cases=[Case(dict(trainable_gradients=1e9, accumulate=True), 1e9, "counted: the last micro-batch's are still there"), Case(dict(trainable_gradients=1e9), 0, "counted: freed")])

_held = dict(gradients=trainable_gradients, activations=finetune_activations)
_sizes = dict(trainable_gradients=10e9, finetune_activations=30e9)
finetune_backward_gradients = bound(
    backward_gradients, "finetune_backward_gradients", r"M_g^\text{bwd}", **_held,
    cases=[Case(_sizes, 0, "counted: the peak is at the start of backward"), Case(_sizes | {"accumulate": True}, 10e9, "counted"),
           Case(dict(trainable_gradients=30e9, finetune_activations=10e9), 30e9, "counted: the peak is at its end")])

finetune_backward_activations = bound(
    backward_activations, "finetune_backward_activations", r"M_\text{act}^\text{bwd}", **_held,
    cases=[Case(_sizes, 30e9, "counted"), Case(dict(trainable_gradients=30e9, finetune_activations=10e9), 0, "counted"),
           Case(dict(trainable_gradients=30e9, finetune_activations=10e9, accumulate=True), 10e9, "counted")])

step_temporaries = formula(
    "step_temporaries", r"M_s", "B", trainable_params.result * step_bytes, uses=[trainable_params], numbered=False, cases=[Case(dict(trainable_params=1e9, step_bytes=2), 2e9, "counted")])

_always = [frozen_weights, trainable_state]


def _sum(name, symbol, parts):
    """The sum of parts at one moment, anchored by powers of two."""
    values = {part.name: 2.0 ** position for position, part in enumerate(parts, 1)}
    return formula(name, symbol, "B", sum(part.result for part in parts), uses=parts, cases=[Case(values, 2.0 ** (len(parts) + 1) - 2, "counted: each part once")])


finetune_forward = _sum("finetune_forward", r"M_\text{fwd}", [*_always, finetune_forward_gradients, finetune_activations, held_activations, logits, held_logits, forward_head])
finetune_loss = _sum("finetune_loss", r"M_\text{loss}", [*_always, finetune_forward_gradients, finetune_activations, logits, loss_head])
finetune_backward = _sum("finetune_backward", r"M_\text{bwd}", [*_always, finetune_backward_gradients, finetune_backward_activations, finetune_working_set, dequantized_matrix])
finetune_step = _sum("finetune_step", r"M_\text{step}", [*_always, trainable_gradients, step_temporaries])

_moments = [finetune_forward, finetune_loss, finetune_backward, finetune_step]

finetune_memory = formula(
    "finetune_memory", r"M_\text{peak}", "B", sp.Max(*(m.result for m in _moments)), uses=_moments,
    cases=[Case({m.name: 3e9 if m is top else 1e9 for m in _moments}, 3e9, "counted: the largest of four") for top in _moments])

# -- the work ------------------------------------------------------------------------------------------

_scores_again = attention_flops_per_token.result * FORWARD / (FORWARD + BACKWARD)

#: A frozen weight needs no gradient of its own: forward, and one of backward's two products. Attention has no weights, so it keeps both.
finetune_flops_per_token = formula(
    "finetune_flops_per_token", r"C_\text{tok}", "FLOP/token",
    method.pick({"full": (FORWARD + BACKWARD) * matmul_params}, (FORWARD + BACKWARD / 2) * matmul_params + (FORWARD + BACKWARD) * lora_params.result)
    + attention_flops_per_token.result
    + sp.Piecewise((FORWARD * (matmul_params - head_params) + _scores_again, sp.Eq(recompute, 2)), (_scores_again, _selective), (0, True)),
    uses=[lora_params, attention_flops_per_token], source=LORA,
    cases=[Case(dict(method=m, matmul_params=1e9, head_params=1e8, lora_params=1e7, attention_flops_per_token=3e9, recompute=r, attention=a), value, why)
           for m, r, a, value, why in [("full", "none", "flash", 9e9, "counted: 6 + 3"), ("lora", "none", "flash", 7.06e9, "counted: 4 + 0.06 + 3"), ("qlora", "full", "flash", 9.86e9, "counted: and 2·0.9 + 1"),
                                       ("lora", "attention", "eager", 8.06e9, "counted: the scores once more"), ("qlora-dq", "attention", "flash", 7.06e9, "counted: no scores")]])

#: Padded, every example is as long as the longest.
finetune_tokens = formula(
    "finetune_tokens", "D", "tokens", examples * epochs * packing.pick({"packed": example_tokens}, seq_len),
    cases=[Case(dict(examples=1000, example_tokens=128, epochs=3, seq_len=512), 384e3, "counted"),
           Case(dict(examples=1000, example_tokens=128, epochs=3, seq_len=512, packing="padded"), 1536e3, "counted")])

finetune_time = formula(
    "finetune_time", "T", "s", finetune_tokens.result * finetune_flops_per_token.result / (gpus * peak_flops * kernel_efficiency), uses=[finetune_tokens, finetune_flops_per_token],
    cases=[Case(dict(finetune_tokens=1e6, finetune_flops_per_token=3e10, peak_flops=1e14, kernel_efficiency=0.5), 600, "counted: 3e16 / 5e13"),
           Case(dict(finetune_tokens=1e6, finetune_flops_per_token=3e10, peak_flops=1e14, kernel_efficiency=0.5, gpus=3), 200, "counted: a third")])

finetune_headroom = bound(
    headroom, "finetune_headroom", r"M_\text{spare,ft}", training_memory=finetune_memory,
    cases=[Case(dict(usable_bytes=24e9, overhead_bytes=1e9, finetune_memory=20e9), 3e9, "counted")])

finetune_fits = bound(
    fits, "finetune_fits", r"\text{fits}", headroom=finetune_headroom,
    cases=[Case(dict(finetune_headroom=0), 1, "counted: just fits"), Case(dict(finetune_headroom=-1), 0, "counted: just does not")])

finetune_cost = bound(
    training_cost, "finetune_cost", r"\text{cost}", cluster_time=finetune_time,
    cases=[Case(dict(finetune_time=7200, gpus=2, gpu_price=3 / HOUR), 12, "counted: two cards, two hours, $3 an hour")])

#: The longest sequence at a given batch, and the largest batch at a given sequence.
longest_sequence = Largest(Quantity("longest_sequence", r"s_\text{max}", valid=NONNEGATIVE, integer=True), seq_len, finetune_headroom)
largest_micro_batch = Largest(Quantity("largest_micro_batch", r"b_\text{max}", valid=NONNEGATIVE, integer=True), micro_batch, finetune_headroom)
