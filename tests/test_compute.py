"""Section 02 against published numbers and second derivations."""

import pytest
import sympy as sp

from onegpu import GPUS, MODELS
from onegpu.compute import *


def test_the_six_is_derived():
    """SymPy's derivatives give two products, each as large as forward."""
    t, m, n = sp.symbols("T m n", positive=True, integer=True)
    products = backward_products(t, m, n)
    x, w, g = sp.MatrixSymbol("X", t, m), sp.MatrixSymbol("W", m, n), sp.MatrixSymbol("G", t, n)
    assert products == {"dX": g * w.T, "dW": x.T * g}
    assert flops_per_weight() == (2, 4) and training_flops.expr.coeff(REGISTRY["params"] * REGISTRY["tokens"]) == 6


def test_backward_products_numerically():
    """The products are the derivatives: finite differences of a small case."""
    import numpy as np
    draw = np.random.default_rng(0)
    x, w, g = draw.normal(size=(3, 4)), draw.normal(size=(4, 5)), draw.normal(size=(3, 5))
    step = np.zeros_like(w)
    step[1, 2] = 1e-6
    assert (np.trace(g.T @ x @ (w + step)) - np.trace(g.T @ x @ w)) / 1e-6 == pytest.approx((x.T @ g)[1, 2], rel=1e-6)


def test_the_two_examples():
    """S14, S15, S16."""
    assert training_flops(params=7e9, tokens=1e12) == 4.2e22 and training_flops(params=175e9, tokens=1e12) == 1.05e24
    seconds = training_time(params=7e9, tokens=1e12, gpus=1, peak_flops=989.4e12, mfu=0.5)
    assert training_time.result.human(seconds) == "2 years 8 months"
    assert training_time(params=175e9, tokens=1e12, peak_flops=1e15, mfu=0.5) / (365.25 * 86400) == pytest.approx(66.5, abs=0.1)


@pytest.mark.parametrize("model, tokens, printed", [("GPT-3 175B", 300e9, 3.14e23), ("Llama 3.1 405B", 15.6e12, 3.8e25)])
def test_published_flops(model, tokens, printed):
    """6·N·D against what the makers printed."""
    assert training_flops(model=MODELS[model], tokens=tokens) == pytest.approx(printed, rel=3e-3)


def test_attention_adds_a_sixth_for_llama():
    """S11: 16 % at 4096 tokens, half of it causal."""
    llama = MODELS["Llama 2 7B"]
    share = attention_flops_per_token(model=llama, seq_len=4096) / (6 * llama.n_params)
    assert share == pytest.approx(0.159, abs=0.001)
    assert attention_flops_per_token(model=llama, seq_len=4096, causal=True) == attention_flops_per_token(model=llama, seq_len=4096) / 2


def test_count_product_by_product():
    """A second derivation: every matrix of every layer, one at a time."""
    m = MODELS["Llama 3 8B"]
    keys = m.n_kv_heads * m.d_head
    matrices = [(4096, 4096), (4096, keys), (4096, keys), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096)]
    forward = m.n_layers * sum(matmul_flops(1, a, b) for a, b in matrices) + matmul_flops(1, 4096, 128256)
    scores = m.n_layers * m.n_heads * (matmul_flops(1, m.d_head, 8192) + matmul_flops(1, 8192, m.d_head))
    assert training_flops_per_token(model=m, seq_len=8192) == 3 * (forward + scores)


@pytest.mark.parametrize("model, coefficient", [("GPT-2 small", 7.4), ("Llama 2 7B", 7.96), ("Llama 3.1 405B", 7.99)])
def test_full_recompute_tends_to_eight(model, coefficient):
    """6 + 2·N_blocks/N_mm: towards 8 as the head shrinks beside the layers."""
    m = MODELS[model]
    found = hardware_flops_per_token(model=m, seq_len=1024, recompute="full", attention_flops_per_token=0) / m.matmul_params
    assert found == pytest.approx(coefficient, abs=0.05)
    assert found == pytest.approx(6 + 2 * (1 - m.vocab_size * m.d_model / m.matmul_params))


def test_a_dozen_chips_hold_llama_3_70b():
    """The counter-argument: 12 TPU v5p for the state, some ninety years for 15T tokens."""
    from onegpu.memory import cards_for_state
    tpu, model = GPUS["TPU v5p"], MODELS["Llama 3 70B"]
    assert cards_for_state(model=model, gpu=tpu) == 12
    assert training_time(model=model, gpu=tpu, gpus=12, tokens=15e12, mfu=0.4) / (365.25 * 86400) == pytest.approx(91, abs=1)


def test_inverses():
    """Tokens in a deadline invert the time."""
    given = dict(params=3e9, gpus=8, peak_flops=1e15, mfu=0.4)
    assert tokens_in_deadline(**given, deadline=training_time(**given, tokens=5e11)) == pytest.approx(5e11, rel=1e-12)
