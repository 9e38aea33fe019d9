"""Quantities and formulas: one source, four faces."""

import doctest
import math
import random
import re
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from javascript import run
from onegpu import GPUS, MODELS, RECIPES, Formula, Quantity
from onegpu.calculator import modules
from onegpu.compute import hardware_flops_per_token, training_flops, training_time
from onegpu.coupling import sharded_state
from onegpu.formula import REGISTRY
from onegpu.memory import (
    activations,
    bytes_per_param,
    cards_for_state,
    fits,
    headroom,
    inference_weights,
    largest_model,
    training_memory,
    training_state,
)
from onegpu.quantities import grad_bytes, params, tokens
from onegpu.scaling import training_energy

FORMULAS = [f for m in modules() for f in m._section.formulas]
LLAMA, H100 = MODELS["Llama 2 7B"], GPUS["H100 SXM"]


def ordinary(formula):
    """A legal value for each input."""
    return {n: q.default if q.choices else q.start for n, q in formula.inputs().items()}


def named(error, name, value):
    """The message names the input, the value and what is allowed."""
    assert re.match(rf"{name} ", error) and str(value) in error and "must be" in error, error


# -- refusing ----------------------------------------------------------------------------------------

def test_a_sum_of_choices_has_a_line_for_each():
    """Side by side they are wider than a page; one choice alone stays on its line, and values of one choice share its name."""
    state = sharded_state.latex
    assert state.count(r"\\ &") == 2 and r"\text{ZeRO stage: 2 or 3}" in state and r"\begin{aligned}" not in hardware_flops_per_token.latex
    x = Quantity("x_of_a_test", "x", start=1)
    two = [sp.Piecewise((sign * x, x > limit), (0, True)) for sign, limit in ((2, 3), (5, 4))]
    less = Formula(Quantity("y_of_a_test", "y"), 1 + two[0] - two[1])
    printed = less.latex
    for name in ("x_of_a_test", "y_of_a_test"):
        del REGISTRY[name]
    assert r"& 1 \\ & - \begin{cases} 5" in printed and r"\\ & + \begin{cases} 2" in printed


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_each_input_of_each_formula_is_checked(formula):
    """Out of the domain, NaN, infinite, of the wrong kind, missing, unknown: all raise ValueError."""
    good = ordinary(formula)
    formula(**good) if formula.name != "mfu" else None
    for name, q in formula.inputs().items():
        bad = ["abc", None, [1, "x"]]
        if not q.choices:
            bad += [float("nan"), float("inf"), -float("inf"), True, 1j, -1, H100, LLAMA]
            bad += [0] if q.valid.left_open or q.valid.inf > 0 else []
            bad += [float(q.valid.sup) * 1.2] if q.valid.sup < sp.oo else []
            bad += [1.5] if q.integer else []
        for value in bad:
            with pytest.raises(ValueError) as caught:
                formula(**good | {name: value})
            named(str(caught.value), name, getattr(value, "name", "") if not isinstance(value, list) else "")
        if q.default is None:
            with pytest.raises(ValueError, match=f"{name} is missing in {formula.name}: must be"):
                formula(**{n: v for n, v in good.items() if n != name})
    with pytest.raises(ValueError, match="wombats = 3: must be left out"):
        formula(**good, wombats=3)


def test_errors_name_what_was_meant():
    """A row where a number belongs, a name for a row, a near miss of a keyword."""
    with pytest.raises(ValueError, match="did you mean gpu=H100 SXM"):
        training_time(params=7e9, tokens=1e12, mfu=0.5, peak_flops=H100)
    with pytest.raises(ValueError, match="must be a Transformer"):
        training_time(model="Llama 2 7B", tokens=1e12, mfu=0.5, gpu=H100)
    with pytest.raises(ValueError, match="Did you mean tokens"):
        training_flops(params=7e9, token=1e12)
    with pytest.raises(ValueError, match="gpu = H100 SXM: must be left out"):
        activations(model=LLAMA, gpu=H100, seq_len=4096, micro_batch=1)
    with pytest.raises(ValueError, match="B300 does not give it"):
        training_energy(params=1e9, tokens=1e12, mfu=0.5, gpus=8, gpu=GPUS["B300"])
    with pytest.raises(ValueError, match="mfu = 1.2: must be above 0 and at most 1"):
        training_time(params=7e9, tokens=1e12, peak_flops=989.4e12, mfu=1.2)
    with pytest.raises(ValueError, match="recompute = some: must be one of none, attention, full"):
        activations(model=LLAMA, seq_len=4096, micro_batch=1, recompute="some")


def test_a_result_outside_its_domain_is_refused():
    """More tokens a second than the peak allows is no MFU."""
    from onegpu.compute import mfu
    with pytest.raises(ValueError, match="mfu = 2: must be above 0 and at most 1"):
        mfu(flops_per_token=1e9, tokens_per_second=2e6, gpus=1, peak_flops=1e15)


def test_division_by_zero_is_refused():
    """An infinite result is no number, in Python or in JavaScript."""
    nothing = dict(memory_bytes=8e10, weight_bytes=0, grad_bytes=0, master_bytes=0, optimizer_bytes=0)
    with pytest.raises(ValueError, match="largest_model = inf: must be a finite number"):
        largest_model(**nothing)
    assert run("return ONEGPU.formulas.largest_model(data) === Infinity", nothing)


def test_one_name_one_meaning():
    """A second registration with another meaning raises; so do two symbols that print alike."""
    with pytest.raises(ValueError, match="params"):
        Quantity("params", "P")
    clash = Quantity("clash_for_test", "N")
    try:
        with pytest.raises(ValueError, match="symbol = N"):
            Formula(training_flops.result, clash * params)
    finally:
        del REGISTRY["clash_for_test"]


# -- filling in ----------------------------------------------------------------------------------------

def test_order_of_filling_in():
    """Keyword, then calibration, then the row, then the default."""
    base = dict(model=LLAMA, gpu=H100, tokens=1e12)
    assert training_time(**base, mfu=0.5) == training_time(params=LLAMA.n_params, peak_flops=H100.peak_flops, tokens=1e12, mfu=0.5, gpus=1)
    assert training_time(**base, calibration={"mfu": 0.25}) == 2 * training_time(**base, mfu=0.5)
    assert training_time(**base, calibration={"mfu": 0.25}, mfu=0.5) == training_time(**base, mfu=0.5)
    assert training_time(**base, calibration={"peak_flops": 1e15}, mfu=0.5) == training_time(model=LLAMA, peak_flops=1e15, tokens=1e12, mfu=0.5)
    assert training_state(params=7e9, recipe=RECIPES["AdamW, all bf16"]) == 56e9
    assert training_state(params=7e9, recipe=RECIPES["AdamW, all bf16"], weight_bytes=4) == 70e9


def test_active_parameters_in_compute_all_in_memory():
    """For experts, FLOPs follow the active parameters and memory follows all."""
    moe = MODELS["Mixtral 8x7B"]
    assert training_flops(model=moe, tokens=1) == 6 * moe.n_active_params
    assert training_state(model=moe) == 16 * moe.n_params


def test_a_keyword_for_a_part_replaces_it():
    """A trainer's own policy can be stated as a number."""
    assert activations(model=LLAMA, seq_len=4096, micro_batch=1, kept_per_layer=10) == 4096 * 4096 * 32 * 10


# -- composing -----------------------------------------------------------------------------------------

def test_latex_prints_one_level():
    """References print as symbols; only expand() substitutes."""
    assert training_memory.latex == r"M_\text{peak} = \max\left(M_\text{fwd}, M_\text{bwd}, M_\text{step}\right)"
    assert len(activations.expand().latex) > 300
    assert training_time.latex == r"T = \frac{C}{P \, G \, \text{MFU}}"


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_latex_means_the_expression(formula):
    """Every symbol is printed, and no reciprocal has become a product with −1."""
    body = formula.latex.partition("=")[2]
    assert r"\left(-1\right)" not in body and r"\text{nan}" not in body
    assert all(q.tex in body or q.choices for q in formula.expr.free_symbols)


def test_expand_changes_no_value():
    """The substituted formula gives the same number."""
    given = dict(model=LLAMA, seq_len=2048, micro_batch=3, attention="eager", recompute="attention")
    assert activations.expand()(**given) == pytest.approx(activations(**given), rel=1e-15)


def test_editing_a_formula():
    """A changed expression changes the equation, the number and the JavaScript, also where it is used."""
    changed = bytes_per_param.replace(expr=bytes_per_param.expr + grad_bytes)
    assert changed() == 18 and r"2 \, \beta_g" in changed.latex and "2*v.grad_bytes" in changed.javascript
    assert training_state.using(changed)(params=1e9) == 18e9 and training_state(params=1e9) == 16e9


def test_bind_and_solve_for():
    """A bound formula takes other quantities; an inverse inverts."""
    twice = training_flops.bind(Quantity("flops_for_test", "C_2", "FLOP"), tokens=2 * tokens)
    assert twice(params=1e9, tokens=1e9) == 12e18
    del REGISTRY["flops_for_test"]
    assert largest_model(memory_bytes=training_state(params=7e9)) == pytest.approx(7e9, rel=1e-15)
    with pytest.raises(ValueError, match="one solution"):
        training_time.solve_for(REGISTRY["seq_len"], REGISTRY["params"])


def test_arrays():
    """Arrays broadcast, are checked elementwise, and do not overflow as integers do."""
    assert training_flops(params=np.array([7 * 10**9]), tokens=10**12)[0] == 4.2e22
    found = training_memory(model=LLAMA, seq_len=np.array([[1024], [4096]]), micro_batch=1, recompute=["none", "attention", "full"])
    assert found.shape == (2, 3)
    assert found[1, 2] == training_memory(model=LLAMA, seq_len=4096, micro_batch=1, recompute="full")
    assert isinstance(training_flops(params=7e9, tokens=1), float)
    with pytest.raises(ValueError, match="params = -3: must be above 0"):
        training_flops(params=np.array([1.0, -3.0]), tokens=1)


# -- true ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_anchored_cases(formula):
    """Each formula gives its published or counted values."""
    assert formula.cases and formula.basis in Formula.BASES
    for case in formula.cases:
        assert formula(**case.inputs) == pytest.approx(case.value, rel=case.rel, abs=0), case.where


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_docstring(formula):
    """The numpydoc text is whole and its example is true."""
    text = formula.__doc__
    assert all(f"{n} : " in text and q.allowed in text for n, q in formula.inputs().items()) and "Raises" in text
    test = doctest.DocTestParser().get_doctest(text, {formula.name: formula}, formula.name, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_every_quantity_has_a_label():
    """Nothing shows its Python name to a reader."""
    from onegpu.labels import load
    words = load()["quantity"]
    assert set(REGISTRY) - set(words) == set(), "add them to labels/en.toml"
    assert not [n for n in words if n not in REGISTRY], "labels of quantities that do not exist"


# -- the same in JavaScript ------------------------------------------------------------------------------

def samples(formula, count, seed):
    """Random legal inputs, ends of sliders and equal sizes among them."""
    draw = random.Random(seed)

    def one(q):
        if q.choices:
            return draw.choice(q.choices)
        low, high = q.slider
        if draw.random() < 0.2:
            return draw.choice([low, high, q.start])
        x = low * (high / low) ** draw.random() if low > 0 else draw.uniform(low, high)
        return round(x) if q.integer else x

    return [{n: one(q) for n, q in formula.inputs().items()} for _ in range(count)]


def coded(formula, given):
    """The inputs as the front end holds them: choices as positions."""
    return {n: q.check(given[n]) for n, q in formula.inputs().items()}


def computed(formula, columns, count):
    """The formula's values, and which rules hold, where they hold or not."""
    values = {n: np.asarray(v, np.float64) for n, v in formula.filled(**columns).items()}
    with np.errstate(all="ignore"):
        for f in formula.graph():
            values[f.name] = f._numeric(*(values[q.name] for q in f._arguments))
        rules = {n: np.broadcast_to(r.holds(*(values[q.name] for q in r.arguments)), count) for n, r in formula.all_rules().items()}
    return np.broadcast_to(values[formula.name], count), rules


def largest_term(formula, values):
    """The size of what a sum adds up, for cancellation."""
    terms = formula.expr.args if formula.expr.is_Add else (formula.expr,)
    names = {q: values[q.name] for q in formula.expr.free_symbols}
    return max(abs(float(t.subs(names))) for t in terms)


@pytest.mark.parametrize("formula", [f for f in FORMULAS if f.name != "mfu"], ids=lambda f: f.name)
def test_python_and_javascript_agree(formula):
    """To 1e-12 of the result or the largest term, over two thousand points."""
    cases = samples(formula, 2000, formula.name)
    columns = {n: np.array([c[n] for c in cases], dtype=object if q.choices else float) for n, q in formula.inputs().items()}
    python, rules = computed(formula, columns, len(cases))
    body = """return data.cases.map(v => {
        for (const name of data.graph) v[name] = ONEGPU.formulas[name](v);
        return {...Object.fromEntries(data.keep.map(n => [n, v[n]])), rules: data.rules.filter(name => ONEGPU.rules[name](v))}; })"""
    script = run(body, {"cases": [coded(formula, c) for c in cases], "graph": [f.name for f in formula.graph()], "rules": list(rules),
                        "keep": [formula.name, *(q.name for q in formula._arguments)]})
    for i, v in enumerate(script):
        assert v["rules"] == [n for n, holds in rules.items() if holds[i]]
    for p, v in zip(python, script, strict=True):
        j = v[formula.name]
        if j is None or not math.isfinite(p):  # JSON writes infinities as null
            assert j is None and not math.isfinite(p), (p, j, v)
        elif abs(j - p) > 1e-12 * abs(p):
            assert abs(j - p) <= 1e-12 * largest_term(formula, v), (p, j, v)


def test_jumps_against_integer_arithmetic():
    """At exact multiples, and one byte either side, cards are counted as integers count them."""
    memory = [80 * 10**9, 80 * 2**30, 49, 7, 3 * 2**20]
    cases = [(m * k + d, m) for m in memory for k in (1, 2, 3, 13, 14, 49, 1000) for d in (-1, 0, 1)]
    exact = [-(-s // m) for s, m in cases]
    assert [cards_for_state(training_state=s, memory_bytes=m) for s, m in cases] == exact
    assert run("return data.map(([s, m]) => ONEGPU.formulas.cards_for_state({training_state: s, memory_bytes: m}))", cases) == exact
    assert exact == [math.ceil(Fraction(s, m)) for s, m in cases]


def test_verdict_at_the_edge():
    """Exactly full fits; one ulp more does not."""
    full = 80e9
    for peak, verdict in ((full, 1), (np.nextafter(full, np.inf), 0), (np.nextafter(full, 0), 1)):
        assert fits(usable_bytes=full, overhead_bytes=0, training_memory=peak) == verdict
        spare = headroom(usable_bytes=full, overhead_bytes=0, training_memory=peak)
        assert run("return ONEGPU.formulas.fits({headroom: data})", spare) == verdict


def test_legends():
    """The colon stays with its symbol; what is a word already is left out; one label for two symbols gets their units."""
    assert r"$M_w\text{:}$ weights [B]; " in inference_weights.legend and r"$\beta_w\text{:}$ weights [B/param]." in inference_weights.legend
    assert "MFU" not in training_time.legend and r"$T\text{:}$ " in training_time.legend
