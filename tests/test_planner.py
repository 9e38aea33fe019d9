"""Section 05: the search, in Python and in JavaScript, and the tree."""

import pytest

from javascript import run
from onegpu import GPUS, MODELS, Calculator
from onegpu.formula import taken
from onegpu.planner import *
from test_calculator import spec

COMMON = dict(kernel_efficiency=0.6, tokens=1e12)
CASES = {
    "7B": dict(model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], gpus=8, seq_len=4096, global_batch=2**20, network_bandwidth=50e9),
    "70B": dict(model=MODELS["Llama 2 70B"], gpu=GPUS["A100 80GB"], gpus=64, seq_len=4096, global_batch=2**22, network_bandwidth=25e9),
    "405B": dict(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], gpus=16384, seq_len=8192, global_batch=2**24, network_bandwidth=50e9),
}
MORE = {
    "GPT-2 XL": dict(model=MODELS["GPT-2 XL"], gpu=GPUS["A100 80GB"], gpus=8, seq_len=1024, global_batch=2**19, network_bandwidth=25e9),
    "13B": dict(model=MODELS["Llama 2 13B"], gpu=GPUS["A100 80GB"], gpus=64, seq_len=4096, global_batch=2**22, network_bandwidth=25e9),
    "70B on H100": dict(model=MODELS["Llama 2 70B"], gpu=GPUS["H100 SXM"], gpus=512, seq_len=4096, global_batch=2**22, network_bandwidth=50e9),
    "GPT-3": dict(model=MODELS["GPT-3 175B"], gpu=GPUS["A100 80GB"], gpus=1024, seq_len=2048, global_batch=2**21, network_bandwidth=25e9),
    "8B": dict(model=MODELS["Llama 3 8B"], gpu=GPUS["H100 SXM"], gpus=1024, seq_len=8192, global_batch=2**22, network_bandwidth=50e9),
}


def test_known_answers():
    """7B: data parallel with ZeRO; 70B: ZeRO-3; 405B: the makers' cut, within 15 % of the fastest."""
    plans = {name: search(**case, **COMMON) for name, case in CASES.items()}
    assert all(p.count >= 5000 for p in plans.values())
    best = plans["7B"].best
    assert (best["tensor_parallel"], best["pipeline_parallel"]) == (1, 1) and best["zero_stage"] >= 1
    best = plans["70B"].best
    assert best["zero_stage"] == 3 or (best["tensor_parallel"], best["zero_stage"]) == (8, 1) and best["pipeline_parallel"] > 1
    best = plans["405B"].best
    assert [best[n] for n in ("data_parallel", "tensor_parallel", "pipeline_parallel", "virtual_stages")] == [128, 8, 16, 8]
    theirs = search(**CASES["405B"], **COMMON, axes=dict(tensor_parallel=(8,), pipeline_parallel=(16,), virtual_stages=(8,), zero_stage=(2,), recompute=("none",), micro_batch=(1,)))
    assert theirs.best["card_step_time"] / plans["405B"].fastest["card_step_time"] <= 1.15


@pytest.mark.parametrize("case", [*CASES.values(), *MORE.values()], ids=[*CASES, *MORE])
def test_a_plan_that_fits_is_legal(case):
    """Checked again one by one: no rule is broken, and it stays below the usable memory less overhead."""
    for plan in search(**case, **COMMON).ranked[:5]:
        axes = {n: plan[n] for n in AXES}
        given = {n: v for n, v in case.items() if n in plan_headroom.inputs() or n in ("model", "gpu")}
        assert plan_headroom(**given, **axes) == pytest.approx(plan["plan_headroom"]) and plan["plan_headroom"] >= 0
        assert plan["card_memory"] + overhead_bytes.default <= case["gpu"].usable_bytes
        given = {n: v for n, v in case.items() if n in plan_time.inputs() or n in ("model", "gpu")}
        assert plan_time(**given, **axes, **COMMON) == pytest.approx(plan["plan_time"])


@pytest.mark.parametrize("case", [*CASES.values(), *MORE.values()], ids=[*CASES, *MORE])
def test_without_the_new_axes_a_plan_is_section_4s(case):
    """One context, no experts, 1F1B: memory, time and MFU are those of section 4's formulas."""
    for plan in search(**case, **COMMON).ranked[:5]:
        given = {n: plan[n] for n in (*AXES, "data_parallel", "accumulation_steps")} | case | COMMON
        for formula, name in ((plan_memory, "card_memory"), (step_time, "card_step_time"), (step_mfu, "card_mfu")):
            assert formula(**taken(formula, given)) == pytest.approx(plan[name], rel=1e-12)


@pytest.mark.parametrize("case", [*CASES.values(), *MORE.values()], ids=[*CASES, *MORE])
def test_the_tree_agrees_with_the_planner(case):
    """The tree's plan is the planner's kind, or a simpler one that is at most 5 % slower."""
    best, (rung, plans, _) = search(**case, **COMMON).best, decide(**case, **COMMON)[-1]
    order = list(LADDER)
    assert rung == kind(best) or order.index(rung) < order.index(kind(best)) and plans.best["card_step_time"] <= 1.05 * best["card_step_time"]


@pytest.mark.parametrize("name", CASES)
def test_the_same_search_in_javascript(name):
    """As many plans, the same refused by each rule, the same order and the same values shown of each."""
    case = {n: getattr(v, "name", v) for n, v in CASES[name].items()}
    calculator = Calculator(plan_headroom, plan_time, plan_step_mfu, start=case | COMMON | dict(tensor_parallel=1),
                            search=dict(axes=AXES, limit=plan_headroom, order=plan_step_time, show=SHOWN))
    python = search(**CASES[name], **COMMON)
    script = run("const found = onegpu.search(data, ONEGPU, onegpu.full(data, {...data.start})); return {...found, plans: found.plans.slice(0, 20), fitting: found.plans.length};", spec(calculator))
    assert script["count"] == python.count and script["fitting"] == python.fitting
    assert {n: k for n, k in python.refused.items() if k} == script["refused"]
    for name in SHOWN:
        assert [p[name] for p in script["plans"]] == pytest.approx([p[name] for p in python.ranked], rel=1e-12), name
    assert [{n: p[n] for n in AXES} for p in script["plans"]] == [{n: p[n] for n in AXES} for p in python.ranked]


@pytest.mark.parametrize("name", CASES)
def test_what_to_change_first(name):
    """The same ratios in both languages; twice the cards help most, but not 405B, whose batch is cut thin already."""
    case = {n: getattr(v, "name", v) for n, v in CASES[name].items()}
    calculator = Calculator(plan_headroom, plan_time, plan_step_mfu, start=case | COMMON | dict(tensor_parallel=1),
                            search=dict(axes=AXES, limit=plan_headroom, order=plan_step_time, show=["data_parallel"], goal=plan_time, changes=CHANGES))
    python = what_first(**CASES[name], **COMMON)
    script = run("return onegpu.whatFirst(data, ONEGPU, onegpu.full(data, {...data.start}))", spec(calculator))
    assert [n for n, _ in script] == list(python) and [r for _, r in script] == pytest.approx(list(python.values()), rel=1e-12)
    assert all(python[n] <= 1 + 1e-9 for n in python if n not in ("gpus", "global_batch")) and (python["gpus"] > 1 if name == "405B" else 0.4 < python["gpus"] < 0.75)


def test_what_would_make_a_plan_fit():
    """70B on eight small cards: none fits; twice the cards do not help, and more memory alone does not either."""
    case = CASES["70B"] | dict(gpus=8)
    assert search(**case, **COMMON).best is None
    ratios = what_first(**case, **COMMON)
    assert ratios["network_bandwidth"] == float("inf") and ratios["usable_bytes"] in (0.0, float("inf"))


def test_refusing():
    """An unknown input, a missing one, and one outside its domain."""
    with pytest.raises(ValueError, match="wombats = 1"):
        search(**CASES["7B"], **COMMON, wombats=1)
    with pytest.raises(ValueError, match="global_batch is missing"):
        search(**{n: v for n, v in CASES["7B"].items() if n != "global_batch"}, **COMMON)
    with pytest.raises(ValueError, match="gpus = 0: must be"):
        search(**CASES["7B"] | {"gpus": 0}, **COMMON)
