"""Section 07: a measured run put into the formulas, in Python and in the page's script."""

import json
import re

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from javascript import run as javascript
from onegpu import GPUS, MODELS, NETWORKS, RUNS, Calculator
from onegpu.calibrate import (
    FACTOR,
    MEMORY,
    PEERS,
    SPEED,
    calibrate,
    gpu_rate,
    judged,
    measured_efficiency,
    measured_overhead,
    peers,
    run_hfu,
    run_mfu,
    run_mfu_attention,
    run_step_time,
    unexplained_bytes,
)
from onegpu.compute import training_time
from onegpu.finetune import finetune_flops_per_token, finetune_headroom, finetune_memory, finetune_time, longest_sequence
from onegpu.planner import plan_gpu_memory, plan_step_time
from onegpu.published import BENCHMARK, COMPARISONS, published_mfus
from onegpu.units import GIB

RUN = dict(model=MODELS["Llama 2 7B"], gpu=GPUS["A100 80GB"], gpus=8, seq_len=4096, micro_batch=1, global_batch=262144, zero_stage=1)
NETWORK = NETWORKS["400 Gb/s a card"]


# -- what comes back -----------------------------------------------------------------------------------

plans = st.fixed_dictionaries(dict(
    model=st.sampled_from(["Llama 2 7B", "Llama 2 70B", "Mixtral 8x7B", "DeepSeek-V3"]), gpu=st.sampled_from(["A100 80GB", "H100 SXM", "H20"]),
    tensor_parallel=st.sampled_from([1, 2, 8]), pipeline_parallel=st.sampled_from([1, 2, 4]), zero_stage=st.sampled_from([0, 1, 2]), recompute=st.sampled_from(["none", "full"]),
    micro_batch=st.sampled_from([1, 2]), seq_len=st.sampled_from([2048, 8192]), expert_parallel=st.sampled_from([1, 8]), replicas=st.sampled_from([8, 32]), steps=st.sampled_from([8, 32])))


@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(plans, st.floats(0.05, 0.99), st.floats(0.01, 4), st.booleans())
def test_inverts_exactly(plan, efficiency, spare, by_step):
    """Numbers made by the formulas give back the inputs that they were made with."""
    plan = dict(plan)
    replicas, steps = plan.pop("replicas"), plan.pop("steps")
    plan |= dict(model=MODELS[plan["model"]], gpu=GPUS[plan["gpu"]])
    plan["expert_parallel"] = plan["expert_parallel"] if plan["model"].n_experts else 1
    plan["gpus"] = replicas * plan["tensor_parallel"] * plan["pipeline_parallel"]
    plan["global_batch"] = replicas * steps * plan["micro_batch"] * plan["seq_len"]
    cards = {n: v for n, v in plan.items()}
    step = plan_step_time(**cards, network=NETWORK, kernel_efficiency=efficiency)
    memory = plan_gpu_memory(**{n: v for n, v in cards.items() if n in plan_gpu_memory.inputs() or n in ("model",)}) + spare * GIB
    assume(memory <= plan["gpu"].memory_bytes)
    speed = dict(measured_step_time=step) if by_step else dict(gpu_tokens_per_second=plan["global_batch"] / (plan["gpus"] * step))
    found = calibrate(**plan, **speed, measured_peak=memory)
    assert found["kernel_efficiency"] == pytest.approx(efficiency, rel=1e-9)
    assert found["overhead_bytes"] == pytest.approx(spare * GIB, rel=1e-9, abs=1e-3)
    assert plan_step_time(**cards, network=NETWORK, calibration=found) == pytest.approx(step, rel=1e-9)


def test_every_formula_takes_it():
    """``calibration=`` fills the measured inputs; a keyword still wins."""
    found = calibrate(**RUN, gpu_tokens_per_second=3000, measured_peak=58 * GIB)
    assert set(found) == {"kernel_efficiency", "mfu", "overhead_bytes"}
    given = dict(model=RUN["model"], gpu=RUN["gpu"], gpus=8, tokens=1e9)
    assert training_time(**given, calibration=found) == pytest.approx(1e9 / (8 * 3000))
    assert training_time(**given, calibration=found, mfu=0.5) == training_time(**given, mfu=0.5)
    tune = dict(model=RUN["model"], gpu=RUN["gpu"], micro_batch=1, recompute="full")
    assert longest_sequence(**tune, calibration=found) == longest_sequence(**tune, overhead_bytes=found["overhead_bytes"]) < longest_sequence(**tune)
    assert finetune_headroom(**tune, seq_len=512, calibration=found) == finetune_headroom(**tune, seq_len=512, overhead_bytes=found["overhead_bytes"])


def test_as_far_as_measured():
    """A peak alone gives the overhead, a speed without a batch the MFU."""
    assert set(calibrate(**RUN, measured_peak=58 * GIB)) == {"overhead_bytes"}
    assert set(calibrate(model=RUN["model"], gpu=RUN["gpu"], seq_len=4096, gpu_tokens_per_second=3000)) == {"mfu"}


def test_less_than_the_formulas():
    """A peak below the formulas leaves no overhead, and says by how much they are over."""
    found = calibrate(**RUN, measured_peak=45 * GIB)
    assert "overhead_bytes" not in found and found.report["measured_overhead"] == 0 > found.report["unexplained_bytes"] and found.report["unexplained_share"] < 0


def test_fine_tuning():
    """With a method it is a fine-tuning run: the same formulas as section 7's estimates, inverted."""
    run = dict(model=MODELS["Llama 3 8B"], gpu=GPUS["RTX 4090"], method="lora", seq_len=2048, micro_batch=1, recompute="full")
    rate = 0.5 * run["gpu"].peak_flops / finetune_flops_per_token(**{n: v for n, v in run.items() if n in finetune_flops_per_token.inputs() or n == "model"})
    peak = finetune_memory(**{n: v for n, v in run.items() if n != "gpu"}) + 2 * GIB
    found = calibrate(**run, gpu_tokens_per_second=rate, measured_peak=peak)
    assert dict(found) == pytest.approx({"kernel_efficiency": 0.5, "overhead_bytes": 2 * GIB})
    assert finetune_time(model=run["model"], gpu=run["gpu"], method="lora", recompute="full", seq_len=2048, examples=1000, example_tokens=100, calibration=found) == pytest.approx(1e5 / rate)
    with pytest.raises(ValueError, match="gpu_tokens_per_second = 9999: must be at most .* tokens/s, the card's peak"):
        calibrate(**run, gpu_tokens_per_second=9999)
    with pytest.raises(ValueError, match="measured_step_time = 2: must be left out"):
        calibrate(**run, measured_step_time=2)


@pytest.mark.parametrize("measured, message", [
    (dict(gpu_tokens_per_second=1e5), "gpu_rate = 100000: must be at most 6770.11 tokens/s, the card's peak"),
    (dict(measured_step_time=1), "gpu_rate = 32768: must be at most 6770.11 tokens/s"),
    (dict(gpu_tokens_per_second=6700, tensor_parallel=2), "run_step_time = .*: must be at least .*, the formulas' time with kernel_efficiency = 1"),
    (dict(measured_peak=100 * GIB), "measured_peak = 107374182400: must be at most memory_bytes = 85899345920, all that the card has"),
    (dict(gpu_tokens_per_second=0), "gpu_tokens_per_second = 0: must be above 0"), (dict(), "gpu_tokens_per_second is missing in calibrate"),
    (dict(gpu_tokens_per_second=3000, wombats=1), "wombats = 1: must be left out")])
def test_nonsense_is_refused(measured, message):
    """With the reason."""
    with pytest.raises(ValueError, match=message):
        calibrate(**RUN | measured)


def test_outside():
    """Inputs within a factor of two are inside; beyond it, or on another card, they are named."""
    found = calibrate(**RUN, gpu_tokens_per_second=3000)
    assert found.outside(gpus=8 * FACTOR, seq_len=4096 / FACTOR, micro_batch=1, model=RUN["model"], gpu=RUN["gpu"]) == []
    assert calibrate(model=RUN["model"], gpu=RUN["gpu"], seq_len=4096, gpu_tokens_per_second=3000).outside(gpus=2, seq_len=4096) == []
    assert found.outside(gpus=8 * FACTOR + 1) == ["gpus = 17 (measured at 8)"]
    assert found.outside(model=MODELS["Llama 2 70B"], gpu=GPUS["H100 SXM"]) == ["params = 68976648192 (measured at 6738415616)", "gpu = H100 SXM (measured at A100 80GB)"]


# -- published runs --------------------------------------------------------------------------------------

#: Runs whose own speed and MFU do not belong together, or that count otherwise: the difference in points.
APART = {"DeepSeek-V3 step, causal count": 0.09, "DeepSeek-V3 step, non-causal count": 0.08, "MaxText Llama 2 70B, TPU v6e": -0.22, "MaxText Llama 3.1 8B, TPU v6e": 0.01, "MaxText Llama 3.1 70B, TPU v6e": 0.02,
         "MaxText Llama 3.1 405B, TPU v6e": -3.37, "MaxText Mixtral 8x7B, TPU v6e": -0.01, "MaxText Llama 2 70B, TPU v5p": -0.82}
PUBLISHED = [c for c in COMPARISONS if c.quantity == "MFU of steps, from tokens/s" and RUNS[c.run].model]


@pytest.mark.parametrize("comparison", PUBLISHED, ids=lambda c: c.run)
def test_published_runs(comparison):
    """The printed MFU comes back at its printed digits; the runs that part are listed with the difference."""
    r = RUNS[comparison.run]
    found = calibrate(model=MODELS[r.model], peak_flops=r.peak, seq_len=r.seq_len, causal="causal" in comparison.convention, gpu_tokens_per_second=r.tokens_per_second / (r.gpus or 1))
    digits = len(f"{100 * r.mfu_printed:.6g}".partition(".")[2])
    apart = 100 * (found.report["run_mfu_attention"] - r.mfu_printed)
    agrees = round(100 * found.report["run_mfu_attention"], digits) == round(100 * r.mfu_printed, digits)
    assert agrees != (comparison.run in APART) and (agrees or round(apart, 2) == APART[comparison.run])


@pytest.mark.parametrize("row", BENCHMARK.values(), ids=lambda row: row.name)
def test_benchmark(row):
    """llm-foundry's table, in its own convention: two digits, and the rounding of its tokens per second."""
    found = calibrate(matmul_params=row.params, active_params=row.params, head_params=0.01 * row.params, n_layers=row.n_layers, n_heads=1, d_head=row.d_model, seq_len=row.seq_len,
                      peak_flops=row.peak_flops, gpu_tokens_per_second=row.tokens_per_second / row.gpus)
    assert found.report["run_mfu_attention"] == pytest.approx(row.mfu_printed, abs=1e-4)


def test_deepseek_v3():
    """Its GPU-hours, by 6·N and with attention, against the rate that a second paper of its makers prints."""
    model, run = MODELS["DeepSeek-V3"], RUNS["DeepSeek-V3"]
    assert (model.matmul_params, model.n_params) == (36_624_596_992, 671_026_419_200)
    rate = run.tokens / (2.664e6 * 3600)  # pre-training alone, arXiv 2412.19437, table 1
    shares = [calibrate(model=model, active_params=model.matmul_params, gpu=GPUS["H800"], seq_len=4096, causal=causal, gpu_tokens_per_second=rate).report for causal in (True, False)]
    assert [round(100 * s, 1) for s in (shares[0]["run_mfu"], shares[0]["run_mfu_attention"], shares[1]["run_mfu_attention"])] == [34.3, 39.1, 43.9]
    for name, printed in (("DeepSeek-V3 step, causal count", shares[0]), ("DeepSeek-V3 step, non-causal count", shares[1])):  # arXiv 2505.09343, table 4
        assert printed["run_mfu_attention"] == pytest.approx(RUNS[name].mfu_printed, rel=6e-3)


def test_judged():
    """Thirds of the published runs nearest in size."""
    others = peers(7e9)
    assert len(others) == PEERS <= len(published_mfus()) and others == sorted(others)
    assert judged(0.01, 7e9).startswith("1 %: the lower third; above 0 of the 24") and judged(0.99, 7e9).startswith("99 %: the upper third; above 24 of the 24")
    assert "the middle third; above 12 of" in judged((others[11] + others[12]) / 2, 7e9)


# -- the page's script ------------------------------------------------------------------------------------

def speed(**state):
    """The calculator of section 07 with other values."""
    start = {"model": "Llama 2 7B", "gpu": "A100 80GB", "reading": "rate", "gpu_tokens_per_second": 3000, "measured_step_time": 10, "seq_len": 4096, "micro_batch": 1, "gpus": 8, "global_batch": 262144, "zero_stage": 1,
             "network": "400 Gb/s a card"}
    calculator = Calculator(gpu_rate, run_step_time, run_mfu, run_mfu_attention, run_hfu, measured_efficiency, title="calibrate_speed", calibrates=SPEED, start=start)
    calculator.params = calculator.params | state
    return calculator


def page(calculator):
    """What the script makes of a calculator's present state."""
    spec = json.loads(re.search(r'<script type="application/json">(.*)</script>', calculator.html(), re.S)[1])
    body = "const s = onegpu.full(data.spec, data.state), e = onegpu.evaluate(data.spec, ONEGPU, s); return {...e, judged: data.spec.judge && onegpu.judged(data.spec.judge, ONEGPU, e.values)}"
    return javascript(body, {"spec": spec, "state": calculator.params})


@pytest.mark.parametrize("state", [{}, {"reading": "step"}, {"gpu_tokens_per_second": 1000, "model": "Mistral 7B"}, {"gpus": 64, "global_batch": 2**21, "tensor_parallel": 2, "recompute": "full", "gpu_tokens_per_second": 2000}])
def test_same_in_javascript(state):
    """The searched efficiency and the judgement, to the last digit."""
    calculator = speed(**state)
    found = page(calculator)
    assert not found["errors"] and {n: found["values"][n] for n in calculator.result} == pytest.approx(calculator.result, rel=1e-12)
    assert found["judged"] == judged(calculator.result["run_mfu"], MODELS[calculator.params["model"]].n_active_params)


@pytest.mark.parametrize("rate, ways, name", [(1e5, 1, "gpu_rate"), (6700, 2, "measured_efficiency")])
def test_same_words(rate, ways, name):
    """Python and the page refuse alike, beside the number in question."""
    calculator = speed(gpu_tokens_per_second=rate, tensor_parallel=ways)
    assert calculator.result["error"] == page(calculator)["errors"][name]


def test_memory_in_javascript():
    """What is not explained, also where it is negative."""
    start = {"measured_peak": 58 * GIB, "model": "Llama 2 7B", "gpu": "A100 80GB", "seq_len": 4096, "micro_batch": 1, "gpus": 8, "global_batch": 262144, "zero_stage": 1}
    for peak in (58 * GIB, 40 * GIB):
        calculator = Calculator(unexplained_bytes, measured_overhead, calibrates=MEMORY, start=start | {"measured_peak": peak})
        assert {n: page(calculator)["values"][n] for n in calculator.result} == pytest.approx(calculator.result, rel=1e-12)


def test_searches_in_javascript():
    """Longest sequence and largest batch, with every method."""
    from onegpu.finetune import finetune_memory, largest_micro_batch
    for method in ("full", "lora", "qlora", "qlora-dq"):
        for more in ({}, {"attention": "eager"}, {"recompute": "full"}, {"model": "Llama 2 70B"}):
            calculator = Calculator(finetune_memory, longest_sequence, largest_micro_batch, start={"model": "Llama 3.2 1B", "gpu": "RTX 4090", "method": method, "seq_len": 512, "micro_batch": 1} | more)
            found = page(calculator)["values"]
            assert (found["longest_sequence"], found["largest_micro_batch"]) == (calculator.result["longest_sequence"], calculator.result["largest_micro_batch"]), (method, more)
