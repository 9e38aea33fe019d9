"""Section 01 against published numbers and second derivations."""

import pytest

from onegpu import GPUS, MODELS, RECIPES
from onegpu.memory import *

LLAMA = MODELS["Llama 2 7B"]


def test_the_ledger():
    """The exact values of the interface."""
    assert training_state(params=7e9) == 1.12e11
    assert training_state(params=7e9, weight_bytes=0, grad_bytes=0, master_bytes=0, optimizer_bytes=0) == 0
    assert largest_model(memory_bytes=1e12) == 62.5e9
    assert inference_weights(params=70e9, weight_bytes=2) == 140e9


def test_the_source_table():
    """S4: 112, 208, 1120 and 2800 GB; exact counts 107.8, 208.3, 1103.6."""
    assert [training_state(params=n) / 1e9 for n in (7e9, 13e9, 70e9, 175e9)] == [112, 208, 1120, 2800]
    assert [round(training_state(model=MODELS[m]) / 1e9, 1) for m in ("Llama 2 7B", "Llama 2 13B", "Llama 2 70B")] == [107.8, 208.3, 1103.6]


def test_figures_in_print():
    """Each of 6, 8, 10, 12, 14, 16, 18 and 20 bytes per parameter has a recipe."""
    assert {2, 6, 8, 10, 12, 14, 16, 18, 20} == {bytes_per_param(recipe=r) for r in RECIPES.values()}


def test_parts_add_up_to_the_state():
    """The state is the sum of its parts, which are formulas of their own."""
    inputs = dict(params=3e9, weight_bytes=3, grad_bytes=5, master_bytes=7, optimizer_bytes=11)
    parts = (inference_weights, gradients, master_weights, optimizer_moments)
    assert sum(p(**{n: v for n, v in inputs.items() if n in p.inputs()}) for p in parts) == training_state(**inputs)


@pytest.mark.parametrize("model, constant", [("GPT-3 175B", 32.0), ("Llama 2 7B", 32.125), ("Llama 2 70B", 33.5), ("Llama 3 8B", 34.0),
                                             ("Llama 3.1 405B", 31.75), ("Qwen2.5 7B", 44.3), ("TinyLlama 1.1B", 29.0)])
def test_constants_of_a_layer(model, constant):
    """Counted tensor by tensor, 2 bytes an element."""
    m = MODELS[model]
    tensors = [m.d_model] * 4 + [m.n_heads * m.d_head] * 2 + [m.n_kv_heads * m.d_head] * 2 + [m.d_ff] * m.n_ff_matrices
    assert linear_activations(model=m) == pytest.approx(2 * sum(tensors) / m.d_model)
    assert linear_activations(model=m) == pytest.approx(constant, abs=0.05)


@pytest.mark.parametrize("choices, gigabytes", [(dict(), 17.26), (dict(attention="eager-bf16"), 51.6), (dict(attention="eager-bf16", dropout=True), 104.2),
                                                (dict(attention="eager"), 120.3), (dict(recompute="full"), 1.07)])
def test_activations_of_llama(choices, gigabytes):
    """S5 and FORMULAS: 17, 52, 104, 120 and 1.1 GB for one case."""
    assert activations(model=LLAMA, seq_len=4096, micro_batch=1, **choices) / 1e9 == pytest.approx(gigabytes, abs=0.06)


def test_selective_changes_nothing_under_flash():
    """There are no scores to recompute."""
    given = dict(model=LLAMA, seq_len=4096, micro_batch=1, attention="flash")
    assert training_memory(**given, recompute="attention") == training_memory(**given, recompute="none")


def test_peak_over_time():
    """Without accumulation the peak is below the plain sum, with it the two are equal."""
    given = dict(model=LLAMA, seq_len=4096, micro_batch=1)
    plain = training_state(model=LLAMA) + activations(**given) + logits(**given)
    parts = training_memory.parts(**given)
    assert set(parts) == {"forward_memory", "backward_memory", "step_memory"}
    assert training_memory(**given) == max(sum(p.values()) for p in parts.values()) < plain
    assert training_memory(**given, accumulate=True) == plain


def test_peak_by_walking_through_a_step():
    """A second derivation: free one layer's activations while its gradients appear, and take the maximum."""
    for micro_batch in (1, 8):
        given = dict(model=LLAMA, seq_len=4096, micro_batch=micro_batch)
        kept, out, grads = activations(**given), logits(**given), gradients(model=LLAMA)
        always = training_state(model=LLAMA, grad_bytes=0)
        walk = [kept + out] + [kept * (32 - i) / 32 + grads * i / 32 for i in range(33)]
        assert training_memory(**given) == pytest.approx(always + max(walk), rel=1e-12)


def test_cards():
    """S6 and S7: 14 cards for 70B, 35 or 33 for 175B, 13 for the exact count of Llama 2 70B."""
    assert [cards_for_state(params=70e9, memory_bytes=m) for m in (80e9, 80 * 2**30)] == [14, 14]
    assert [cards_for_state(params=175e9, memory_bytes=m) for m in (80e9, 80 * 2**30)] == [35, 33]
    assert [cards_for_state(model=MODELS["Llama 2 70B"], memory_bytes=m) for m in (80e9, 80 * 2**30, GPUS["H100 SXM"].usable_bytes)] == [14, 13, 13]
