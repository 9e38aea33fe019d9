"""Section 06: the compiler's counts against the formulas of the other sections.

Every dense model of the catalogue is asked. Counts of products and of bytes are compared exactly; only
XLA's total has a tolerance, which is that of its single precision.
"""

import functools
import gc
import math
import re
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from onegpu import MODELS, RECIPES, Transformer, compute, evidence, memory

DENSE = [m.name for m in MODELS.values() if not m.n_experts]

#: XLA adds up in single precision: what some hundred additions lose of the total.
SINGLE = 3e-6

#: A model small enough to run.
TINY = Transformer(n_layers=3, d_model=32, n_heads=4, n_kv_heads=2, d_head=8, d_ff=48, vocab_size=61)


@functools.cache
def ask(name, n_layers=None, **choices):
    """The step of a catalogued model at its training length (8,192 where none is published)."""
    model = MODELS[name]
    length = choices.pop("seq_len", model.train_seq_len or 8192)
    return evidence.ask(replace(model, n_layers=n_layers) if n_layers else model, seq_len=length, **choices)


@pytest.fixture(scope="module", autouse=True)
def no_garbage_collection():
    """Tracing makes many objects and little garbage: looking for it took a quarter of the time."""
    gc.disable()
    yield
    gc.enable()


def units(step, number):
    """Bytes of a layer in units of s·b·h."""
    return number / (step.tokens * step.model.d_model)


def test_importing_loads_no_compiler():
    """JAX is loaded when something is asked."""
    code = "import sys, onegpu, onegpu.evidence; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- FLOPs -----------------------------------------------------------------------------------------

def arguments(step):
    """How many arguments the program has: JAX leaves out those that it does not use."""
    return len(re.findall(r"%arg\d+: tensor", re.search(r"func public @main\(.*", step.program.as_text())[0]))


@pytest.mark.parametrize("name", DENSE)
def test_every_dense_model(name):
    """Every weight is used; parameters and products to the unit, the rest by its law, and below 1 % above 1B parameters."""
    step, model = ask(name), MODELS[name]
    assert step.params == model.n_params
    assert arguments(step) == len(jax.tree.leaves(evidence._abstract(evidence.shapes(model)))) + 2
    assert step.matmul_flops == compute.training_flops_per_token(model=model, seq_len=step.seq_len) * step.tokens
    assert step.matmul_flops == evidence.matmul_flops_per_token(step) * step.tokens
    law = evidence.elementwise_flops_per_token(step) * step.tokens
    assert step.elementwise_flops == pytest.approx(law, rel=1e-3, abs=SINGLE * step.flops)
    assert step.elementwise_flops < 0.01 * step.matmul_flops or model.n_params < 1e9


@pytest.mark.parametrize("shape", [dict(norm="layernorm", n_ff_matrices=2, n_positions=16, tied_embeddings=True, qkv_bias=True, linear_bias=True, embedding_norm=True, head_bias=True),
                                   dict(n_norms=1, qk_norm=1), dict(n_norms=4, qk_norm=3), dict(norm="none")])
def test_other_shapes(shape):
    """Everything that a shape can have, also where no model of the catalogue has it."""
    model = replace(TINY, **shape)
    step = evidence.ask(model, seq_len=16, micro_batch=2)
    assert step.params == model.n_params
    assert arguments(step) == len(jax.tree.leaves(evidence._abstract(evidence.shapes(model)))) + 2
    assert step.matmul_flops == compute.training_flops_per_token(model=model, seq_len=16) * 32
    again = replace(step, recompute="full")
    assert again.matmul_flops == evidence.matmul_flops_per_token(again) * 32


WRONG = {
    "5 products": (lambda m: 5 * m.matmul_params, 12, DENSE),
    "all parameters": (lambda m: 6 * m.n_params, 12, [n for n in DENSE if not MODELS[n].tied_embeddings]),
    "no head": (lambda m: 6 * (m.matmul_params - m.head_params), 12, DENSE),
    "untied heads counted twice": (lambda m: 6 * (m.matmul_params + (not m.tied_embeddings) * m.head_params), 12, [n for n in DENSE if not MODELS[n].tied_embeddings]),
    "as many KV heads as heads": (lambda m: 6 * replace(m, n_kv_heads=m.n_heads).matmul_params, 12, [n for n in DENSE if MODELS[n].n_kv_heads < MODELS[n].n_heads]),
    "two matrices": (lambda m: 6 * replace(m, n_ff_matrices=2).matmul_params, 12, [n for n in DENSE if MODELS[n].n_ff_matrices == 3]),
    "causal": (lambda m: 6 * m.matmul_params, 6, DENSE),
    "h for a·d": (lambda m: 6 * m.matmul_params, lambda m: 12 * m.d_model / (m.n_heads * m.d_head), [n for n in DENSE if MODELS[n].d_model != MODELS[n].n_heads * MODELS[n].d_head]),
}


@pytest.mark.parametrize("slip", WRONG)
def test_a_wrong_formula_is_seen(slip):
    """Each common slip misses for every model that it concerns, by more than any rounding."""
    linear, attention, names = WRONG[slip]
    assert names
    for name in names:
        step, m = ask(name), MODELS[name]
        each = attention(m) if callable(attention) else attention
        wrong = (linear(m) + each * m.n_layers * step.seq_len * m.n_heads * m.d_head) * step.tokens
        assert abs(wrong / step.matmul_flops - 1) > 1e-4, name


def test_the_rest_falls_with_width_and_head_size():
    """Twice as wide: half. The scores' part does not fall with the length; it is 4/3 of 1 / head size."""
    narrow, wide = (evidence.ask(replace(TINY, d_model=h, n_heads=h // 8, n_kv_heads=h // 8, d_ff=4 * h), seq_len=1) for h in (256, 512))
    share = [evidence.elementwise_flops_per_token(s) / evidence.matmul_flops_per_token(s) for s in (narrow, wide)]
    assert share[0] / share[1] == pytest.approx(2, rel=0.1)
    long = evidence.ask(TINY, seq_len=10**9)
    assert evidence.elementwise_flops_per_token(long) / evidence.matmul_flops_per_token(long) == pytest.approx(4 / 3 / TINY.d_head, rel=1e-4)


@pytest.mark.parametrize("change", [dict(embedding_norm=True), dict(linear_bias=True), dict(head_bias=True), dict(qkv_bias=True), dict(qk_norm=1)])
def test_the_law_of_what_few_models_have(change):
    """On a model so small that XLA's count is a whole number: what is added, less statistics of rows and sums over tables."""
    before, after = (evidence.ask(replace(TINY, d_head=32, d_ff=200, **c), seq_len=16) for c in ({}, change))
    assert max(before.flops, after.flops) < 2**24
    added, law = after.elementwise_flops - before.elementwise_flops, evidence.elementwise_flops_per_token(after) - evidence.elementwise_flops_per_token(before)
    assert added == pytest.approx(law * 16, rel=0.05)


def test_xla_counts_in_single_precision():
    """Why the total has a tolerance; the products are whole numbers."""
    step = ask("GPT-2 small")
    assert step.flops == np.float32(step.flops)
    assert isinstance(step.matmul_flops, int)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_layers_written_out(monkeypatch, recompute):
    """Calling one function for every layer changes nothing: the same count with each layer's operations in the program."""
    step = evidence.ask(replace(MODELS["GPT-2 small"], n_layers=4), recompute=recompute)
    monkeypatch.setattr(evidence, "_layer_function", lambda step: functools.partial(evidence.layer, step) if recompute == "none"
                        else jax.checkpoint(functools.partial(evidence.layer, step)))
    assert step.program.as_text().count("dot_general") > 24 * 4
    assert step.matmul_flops == ask("GPT-2 small", 4, recompute=recompute).matmul_flops


@pytest.mark.parametrize("name, recompute", [("TinyLlama 1.1B", "none"), ("Gemma 2 2B", "full")])
def test_products_are_affine_in_layers(name, recompute):
    """One and two layers tell of all."""
    one, two, whole = (ask(name, n, recompute=recompute).matmul_flops for n in (1, 2, None))
    assert whole == one + (MODELS[name].n_layers - 1) * (two - one)


def test_the_optimised_program_has_the_same_products():
    """XLA removes no product when it compiles, not even those that only repeat the forward pass."""
    model = replace(TINY, n_layers=1, d_model=256, n_heads=4, n_kv_heads=2, d_head=64, d_ff=512, vocab_size=1000)
    step = evidence.ask(model, seq_len=128, recompute="full")
    text = evidence._compile(step.program).as_text()
    sizes = {name: size for name, size in re.findall(r"(%?[\w.-]+) = \w+\[([\d,]*)\]", text)}
    total = 0
    for result, left, inner in re.findall(r"= \w+\[([\d,]*)\]\S* dot\((?:\w+\[[\d,]*\]\S* )?(%?[\w.-]+),.*lhs_contracting_dims=\{([\d,]*)\}", text):
        result, left = ([int(n) for n in size.split(",")] for size in (result, sizes[left]))
        total += 2 * math.prod(result) * math.prod(left[int(i)] for i in inner.split(","))
    assert total == step.matmul_flops


@pytest.mark.parametrize("name", DENSE)
def test_full_recomputation(name):
    """The compiler's 6 to 8: every product of the layers once more, but the last of each block; the head never."""
    model, step = MODELS[name], ask(name, 2, recompute="full")
    assert step.matmul_flops == evidence.matmul_flops_per_token(step) * step.tokens
    formula = compute.hardware_flops_per_token(model=step.model, seq_len=step.seq_len, recompute="full", attention="eager") * step.tokens
    down, out = model.d_ff * model.d_model, model.n_heads * model.d_head * model.d_model
    assert formula - step.matmul_flops == 2 * {1: down + out, 2: down, 4: 0}[model.n_norms] * step.model.n_layers * step.tokens
    assert 6 < step.coefficient < 8


@pytest.mark.parametrize("name, coefficient, with_rest", [("GPT-2 small", 6.917, 6.97), ("Llama 2 7B", 7.524, 7.54)])
def test_coefficients_with_recomputation(name, coefficient, with_rest):
    """6.97 and 7.54 hold the elementwise rest; the products alone are 6.92 and 7.52."""
    step = ask(name, recompute="full")
    assert step.coefficient == pytest.approx(coefficient, abs=5e-4)
    assert step.coefficient + step.elementwise_flops / step.tokens / step.model.matmul_params == pytest.approx(with_rest, abs=5e-3)
    assert ask(name).coefficient == 6


@pytest.mark.parametrize("attention, recompute, products", [
    ("eager", "none", 12), ("eager-bf16", "none", 12), ("flash", "none", 14), ("eager", "attention", 14), ("flash", "attention", 14),
    ("eager", "full", 16), ("flash", "full", 18)])
def test_attention_products(attention, recompute, products):
    """12 per layer, length, head and element; 14 where backward computes the scores again; 16 and 18 with full recomputation."""
    step = ask("Llama 2 7B", 2, attention=attention, recompute=recompute, seq_len=1024)
    assert evidence.attention_products(step) == products
    assert step.matmul_flops == evidence.matmul_flops_per_token(step) * step.tokens
    assert (step.coefficient == 6) == (recompute != "full")


def test_fusing_changes_no_product():
    step = ask("Qwen3 8B", 2, fused=True)
    assert step.matmul_flops == ask("Qwen3 8B", 2).matmul_flops
    assert step.flops > ask("Qwen3 8B", 2).flops


def test_products_in_a_loop_are_refused():
    """A loop's body would be counted once."""
    def scan(x):
        return jax.lax.scan(lambda c, _: (c @ c, None), x, length=7)[0]

    with pytest.raises(ValueError, match="outside a loop"):
        evidence.count_products(jax.jit(scan).lower(jax.ShapeDtypeStruct((4, 4), "float32")).as_text())


# -- what autodiff keeps ---------------------------------------------------------------------------

def beside_the_formula(model):
    """What `memory.linear_activations` does not know, in units of s·b·h: norms of q and k, and other than two norms."""
    heads = (model.n_heads + model.n_kv_heads) * model.d_head / model.d_model
    return 2 * heads * bool(model.qk_norm) + {1: -4, 2: 0, 4: 4}[model.n_norms]


@pytest.mark.parametrize("name", DENSE)
def test_kept_with_fused_kernels(name):
    """Tensor by tensor what the formula lists: fused norms and activation functions, FlashAttention."""
    step = ask(name, 2, attention="flash", fused=True)
    formula = memory.kept_per_layer(model=MODELS[name], seq_len=step.seq_len, attention="flash")
    assert units(step, step.kept_per_layer) == pytest.approx(formula + beside_the_formula(MODELS[name]), rel=1e-12)


@pytest.mark.parametrize("choices", [dict(attention="eager"), dict(attention="eager-bf16"), dict(attention="flash"), dict(recompute="attention", attention="eager"),
                                     dict(recompute="attention", attention="flash"), dict(recompute="full", attention="eager"), dict(recompute="full", attention="flash")])
@pytest.mark.parametrize("name", ["GPT-3 175B", "Llama 2 7B", "Llama 3 8B"])
def test_kept_by_every_choice(name, choices):
    """The same keywords to the compiler and to the formula."""
    step = ask(name, 2, fused=True, micro_batch=2, **choices)
    assert 2 * step.kept_per_layer == memory.activations(model=step.model, seq_len=step.seq_len, micro_batch=2, **choices)


def test_the_textbook_figure():
    """GPT-3 with fused kernels: 32·s·b·h, Korthikanti's 34 less two dropout masks; 2 with full recomputation, fused or not."""
    assert units(ask("GPT-3 175B", 2, fused=True, recompute="attention"), ask("GPT-3 175B", 2, fused=True, recompute="attention").kept_per_layer) == 32
    for fused in (False, True):
        step = ask("GPT-3 175B", 2, fused=fused, recompute="full")
        assert units(step, step.kept_per_layer) == 2


def test_plain_autodiff_keeps_more():
    """GPT-3, nothing fused: of each norm two fp32 tensors instead of one in bf16, of GELU five tensors instead of two."""
    step, fused = ask("GPT-3 175B", 2), ask("GPT-3 175B", 2, fused=True)
    kept = {(t.dtype, t.shape): n for t, n in step.kept_tensors.items()}
    assert kept["bfloat16", (1, 2048, 49152)] == 5 and kept["float32", (1, 2048, 12288)] == 4
    more = units(step, step.kept_per_layer - fused.kept_per_layer)
    assert more == pytest.approx(2 * (2 * 4 - 2) + 3 * 2 * 4, rel=1e-3)


def test_kept_outside_the_layers():
    """Embedding, final norm and loss: one fp32 copy of the logits is most of it, however many layers there are."""
    step = ask("GPT-2 small", fused=True)
    assert step.kept_outside == ask("GPT-2 small", 2, fused=True).kept_outside
    copy = memory.logits(model=step.model, seq_len=step.seq_len, micro_batch=1, bytes_per_logit=4)
    assert copy < step.kept_outside < 1.05 * copy
    assert step.kept_bytes == step.kept_outside + 12 * step.kept_per_layer


# -- what the compiled step takes --------------------------------------------------------------------

@pytest.mark.parametrize("name", ["Llama 2 7B", "PaLM 540B"])
def test_sixteen_bytes(name):
    """Weights 2, master copy 4, moments 8: 14, and 2 of gradients; the batch and the step's number are the rest."""
    step = ask(name)
    assert step.argument_bytes == 14 * step.params + 2 * 4 * step.tokens + 4
    assert step.gradient_bytes == 2 * step.params
    assert step.bytes_per_param == pytest.approx(16, abs=1e-4)


OPTIONS = {
    "AdamW, mixed precision": dict(),
    "AdamW, fp32 gradient buffer": dict(grad_dtype="float32"),
    "AdamW, fp32 gradients, bf16 moments": dict(grad_dtype="float32", moment_dtype="bfloat16"),
    "AdamW, all bf16": dict(master=False, moment_dtype="bfloat16"),
}


@pytest.mark.parametrize("recipe", OPTIONS)
def test_the_step_follows_the_ledger(recipe):
    """Change the step, and the bytes follow the recipe."""
    step = evidence.ask(TINY, seq_len=16, **OPTIONS[recipe])
    row = RECIPES[recipe]
    assert step.argument_bytes - 2 * 4 * 16 - 4 == (row.weight_bytes + row.master_bytes + row.optimizer_bytes) * step.params
    assert step.gradient_bytes == row.grad_bytes * step.params
    assert step.argument_bytes + step.gradient_bytes - 132 == memory.bytes_per_param(recipe=row) * step.params


@pytest.mark.parametrize("options, each", [(dict(optimizer="momentum"), 12), (dict(optimizer="sgd", master=False), 4)])
def test_other_optimizers(options, each):
    step = evidence.ask(TINY, seq_len=16, **options)
    assert step.argument_bytes + step.gradient_bytes - 132 == each * step.params


def test_the_optimizer_alone_takes_all_sixteen():
    """Gradients are inside the whole step; handed over between two programs they are arguments, and the compiler counts them."""
    step = ask("Llama 2 7B")
    grads = evidence._abstract(evidence.shapes(step.model, stacked=True), step.grad_dtype)
    program = jax.jit(functools.partial(evidence.optimize, step), keep_unused=True, donate_argnums=0).lower(evidence._state(step), grads)
    memory_analysis = program.compile().memory_analysis()
    assert memory_analysis.argument_size_in_bytes == 16 * step.params + 4
    assert memory_analysis.alias_size_in_bytes == 14 * step.params + 4


# -- it is a real training step --------------------------------------------------------------------

def weights_of(model):
    """Random weights, the layers in a list."""
    random = np.random.default_rng(0)
    start = {"scale": np.ones, "shift": np.zeros, "bias": np.zeros, "head_bias": np.zeros}

    def fill(path, leaf):
        make = start.get(getattr(path[-1], "key", None), lambda shape: 0.1 * random.standard_normal(shape))
        return make(leaf.shape).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, evidence._abstract(evidence.shapes(model)))


def stack(weights):
    """The layers' weights in one array each."""
    return weights | {"layers": jax.tree.map(lambda *parts: np.stack(parts), *weights["layers"])}


def run(function, *arguments):
    """Compile quickly, and run."""
    return evidence._compile(jax.jit(function).lower(*arguments))(*arguments)


SMALL = replace(TINY, n_layers=2)
BATCH = np.random.default_rng(1).integers(0, TINY.vocab_size, (2, 2, 16), np.int32)


def test_the_choices_compute_the_same():
    """Layers one by one or in a loop, fused, FlashAttention, recomputed: the same loss and the same gradients, to bf16."""
    plain, weights = evidence.ask(SMALL, seq_len=16, micro_batch=2), weights_of(SMALL)
    one_by_one = run(functools.partial(evidence.loss, plain), weights, *BATCH)
    value, grads = run(functools.partial(evidence.gradients, plain), stack(weights), *BATCH)
    assert abs(value - math.log(SMALL.vocab_size)) < 1 and abs(one_by_one - value) < 0.02
    for other in (replace(plain, attention="flash", fused=True), replace(plain, recompute="full")):
        again, found = run(functools.partial(evidence.gradients, other), stack(weights), *BATCH)
        assert abs(again - value) < 0.02
        for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(found), strict=True):
            a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
            assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(a)


def test_it_learns():
    """Forty steps on one batch."""
    step, weights = evidence.ask(SMALL, seq_len=16, micro_batch=2), stack(weights_of(SMALL))
    zeros = jax.tree.map(lambda w: np.zeros(w.shape, np.float32), weights)
    state = {"weights": weights, "master": jax.tree.map(lambda w: w.astype("float32"), weights), "moments": [zeros, zeros], "count": np.int32(0)}
    program, seen = evidence._compile(jax.jit(functools.partial(evidence.train, step)).lower(state, *BATCH)), []
    for _ in range(40):
        state, value = program(state, *BATCH)
        seen.append(float(value))
    assert seen[-1] < 0.9 * seen[0]
    assert state["count"] == 40


def test_gelu():
    """The tanh approximation, as JAX has it."""
    x = np.linspace(-6, 6, 1001, dtype=np.float32)
    assert np.abs(evidence.gelu(x) - jax.nn.gelu(x)).max() < 2e-6


@pytest.mark.parametrize("attention", evidence.CHOICES["attention"])
def test_later_tokens_are_not_seen(attention):
    """What comes out at a token does not depend on those that follow."""
    mask = np.triu(np.full((16, 16), -np.inf, np.float32), 1)
    heads = np.random.default_rng(2).standard_normal((2, 16, 4, 8), np.float32)
    attend = jax.jit(lambda q: evidence.attend(attention, q, q[:, :, :2], q[:, :, :2], mask))
    seen, changed = (np.asarray(attend(heads * factor)) for factor in (1, np.where(np.arange(16) < 8, 1, 3)[:, None, None].astype(np.float32)))
    assert (seen[:, :8] == changed[:, :8]).all() and not (seen[:, 8:] == changed[:, 8:]).all()


def test_a_compiler_without_the_flags(monkeypatch):
    """Then it optimises, and the arguments are the same."""
    monkeypatch.setattr(evidence, "QUICK", {"no_such_flag": 1})
    assert evidence._compile(jax.jit(lambda x: 2 * x).lower(jax.ShapeDtypeStruct((8,), "float32"))).memory_analysis().argument_size_in_bytes == 32


# -- what is refused ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name, message", [("Mixtral 8x7B", "n_experts = 8: must be 0"), ("DeepSeek-V3", "n_experts = 256: must be 0")])
def test_experts_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        evidence.ask(MODELS[name])


@pytest.mark.parametrize("change, message", [
    (dict(kv_lora_rank=8), "kv_lora_rank = 8: must be 0"), (dict(n_norms=3), "n_norms = 3: must be 1, 2 or 4"), (dict(qk_norm=2), "qk_norm = 2: must be"),
    (dict(d_head=7), "d_head = 7: must be even"), (dict(d_ff=None), "d_ff = None: must be given"), (dict(n_positions=8), "seq_len = 16: must be at most n_positions = 8")])
def test_shapes_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        evidence.ask(replace(TINY, **change), seq_len=16)


@pytest.mark.parametrize("choices, message", [
    (dict(recompute="some"), "recompute = some: must be one of none, attention, full"), (dict(attention="cross"), "attention = cross: must be one of"),
    (dict(optimizer="lion"), "optimizer = lion"), (dict(grad_dtype="int8"), "grad_dtype = int8"), (dict(fused="yes"), "fused = yes"),
    (dict(seq_len=0), "seq_len = 0: must be"), (dict(micro_batch=1.5), "micro_batch = 1.5: must be")])
def test_choices_that_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        evidence.ask(TINY, **dict(seq_len=16) | choices)


def test_other_refusals():
    with pytest.raises(ValueError, match="seq_len = None: must be given"):
        evidence.ask(TINY)
    with pytest.raises(ValueError, match="model = Llama 2 7B: must be a Transformer"):
        evidence.ask("Llama 2 7B", seq_len=16)
    with pytest.raises(ValueError, match="must have eager attention"):
        evidence.elementwise_flops_per_token(evidence.ask(TINY, seq_len=16, fused=True))


def test_how_it_prints():
    assert repr(evidence.ask(MODELS["Llama 2 7B"], recompute="full")) == "Step(Llama 2 7B, seq_len=4096, recompute='full')"
