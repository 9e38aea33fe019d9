"""Section 06: published runs, a trainer's table and other calculators, all of them."""

import pytest

from onegpu import RUNS
from onegpu.published import ANSWERS, BENCHMARK, COMPARISONS, CONVENTIONS, QUANTITIES

WHY = {"agrees", "attention counted", "recompute counted", "recompute and attention counted", "step, not run", "coarse duration", "distillation", "nothing printed", "not explained"}
#: Runs that print too little for any comparison: no tokens a second and no TFLOP/s, or no sequence length.
TOO_LITTLE = {"Megatron 2022 GPT 530B, 2240 GPUs", "Megatron 2024 GPT-3 strong scaling, 96 GPUs", "Megatron 2024 GPT-3 strong scaling, 4608 GPUs",
              *(f"MaxText Llama 2 7B, {n} H100" for n in (8, 16, 32, 64, 128))}


def test_every_run_is_compared():
    """No run is left out but those that print too little."""
    assert set(RUNS) - {c.run for c in COMPARISONS} == TOO_LITTLE
    assert all(c.quantity in QUANTITIES and c.convention in CONVENTIONS and c.why in WHY for c in COMPARISONS)


@pytest.mark.parametrize("comparison", [c for c in COMPARISONS if c.printed], ids=lambda c: f"{c.run}: {c.quantity}")
def test_a_printed_number_agrees_or_says_why(comparison):
    """Within 10 % as its makers count, or with a reason that no convention mends."""
    if abs(comparison.ratio - 1) > 0.1:
        assert comparison.why in ("step, not run", "coarse duration", "not explained")
    if abs(comparison.plain / comparison.printed - 1) > 0.1:
        assert comparison.why != "agrees"


@pytest.mark.parametrize("row", BENCHMARK.values(), ids=lambda row: row.name)
def test_benchmark(row):
    """A printed MFU and HFU to 0.05 points."""
    assert row.mfu == pytest.approx(row.mfu_printed, abs=5e-4) and row.hfu == pytest.approx(row.hfu_printed, abs=5e-4)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=lambda answer: answer.name)
def test_answers(answer):
    """Each calculator's number from its assumptions; a table of rounded cells to its rounding."""
    rounded = answer.name.startswith("LLaMA-Factory")
    assert answer.state == pytest.approx(answer.printed_state, rel=0.15 if rounded else 1e-9)
    if answer.printed_activations:
        assert answer.activations == pytest.approx(answer.printed_activations, rel=1e-6)


def test_sources():
    """Each row has an address."""
    assert all(row.url.startswith("https://") for row in [*BENCHMARK.values(), *ANSWERS.values()])
