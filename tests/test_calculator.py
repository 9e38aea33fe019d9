"""The calculator: traits in Python, evaluation in JavaScript, the readable table."""

import json
import re
from dataclasses import replace

import pytest

from javascript import run
from onegpu import MODELS, Calculator, Formula, Quantity
from onegpu.calculator import published
from onegpu.compute import optimal_params, training_flops, training_time
from onegpu.configs import read_config
from onegpu.formula import REGISTRY
from onegpu.memory import activations, bytes_per_param, fits, headroom, training_memory, training_state
from onegpu.quantities import grad_bytes
from onegpu.scaling import cluster_mtbf, extra_steps

FIT = dict(title="does_it_fit", stack=training_memory, capacity="usable_bytes", on_top=["overhead_bytes"],
           start={"model": "Llama 2 7B", "gpu": "H100 SXM", "recipe": "AdamW, mixed precision", "seq_len": 4096, "micro_batch": 1, "attention": "flash",
                  "recompute": "none", "dropout": False})


def fit():
    """The calculator of section 01."""
    return Calculator(fits, training_memory, headroom, **FIT)


def spec(calculator):
    """The specification in the readable table."""
    return json.loads(re.search(r'<script type="application/json">(.*)</script>', calculator.html(), re.S)[1])


def script(calculator, state, body):
    """What the front end makes of a state."""
    prepare = "const spec = data.spec, lib = spec.own ? {...ONEGPU, formulas: {...ONEGPU.formulas, ...onegpu.compile(spec.own).formulas}} : ONEGPU, state = onegpu.full(spec, {...spec.start, ...data.state});"
    return run(prepare + body, {"spec": spec(calculator), "state": state})


def test_traits():
    """Setting params computes result; a bad value gives the error, not a number."""
    calculator = Calculator(training_time, start={"model": "Llama 2 7B", "gpu": "H100 SXM", "tokens": 1e12, "mfu": 0.5})
    seen = []
    calculator.observe(lambda change: seen.append(change.new), "result")
    calculator.params = calculator.params | {"tokens": 2e12}
    assert seen[-1]["training_time"] == pytest.approx(2 * 81727296.73741661)
    calculator.params = calculator.params | {"mfu": 1.2}
    assert seen[-1] == {"error": "mfu = 1.2: must be above 0 and at most 1"}


def test_same_in_javascript():
    """The front end gives Python's values, also with a number typed over a row's."""
    for state in ({}, {"model": "Llama 3 8B", "gpu": "H200", "seq_len": 8192}, {"n_layers": 40}, {"recipe": "AdamW, all bf16", "recompute": "full"}):
        calculator = fit()
        calculator.params = calculator.params | state
        found = script(calculator, state, "return onegpu.evaluate(spec, lib, state)")
        assert not found["errors"] and {n: found["values"][n] for n in calculator.result} == pytest.approx(calculator.result, rel=1e-12)


@pytest.mark.parametrize("state, message", [({"seq_len": -1}, "seq_len = -1: must be a whole number, at least 1"), ({"seq_len": "abc"}, "seq_len = abc: must be a number"),
                                            ({"micro_batch": 1.5}, "micro_batch = 1.5: must be a whole number, at least 1")])
def test_same_words_for_bad_input(state, message):
    """Python and the page refuse alike."""
    calculator = fit()
    calculator.params = calculator.params | state
    assert calculator.result == {"error": message}
    assert script(calculator, state, "return onegpu.evaluate(spec, lib, state)") == {"values": {}, "errors": {next(iter(state)): message}}


def test_idle_controls_say_why():
    """Under FlashAttention dropout still counts; under full recompute it no longer matters for what is kept, but it does for the live layer."""
    calculator = Calculator(activations, start={"model": "Llama 2 7B", "seq_len": 4096, "micro_batch": 1, "attention": "flash", "recompute": "full", "dropout": False})
    assert script(calculator, {}, "return [onegpu.matters(spec, lib, state, 'dropout'), onegpu.blocker(spec, lib, state, 'dropout')]") == [False, "recompute"]
    assert script(calculator, {"recompute": "none"}, "return onegpu.matters(spec, lib, state, 'dropout')") is True


def test_readable_table():
    """What a reader without JavaScript sees: what is set, and the results."""
    rows = dict(fit().table())
    assert rows["model"] == "Llama 2 7B" and rows["does it fit?"] == "no" and rows["peak of a training step, without overhead"] == "113.2 GB (105.4 GiB)"
    assert rows["attention"] == "Flash"
    assert dict(Calculator(cluster_mtbf, title="failures", start={"gpus": 16384}).table())["GPUs"] == "16384"  # in full, as in its box
    assert dict(Calculator(extra_steps, title="failures", start={"global_batch": 262144}).table())["global batch"] == "262144 tokens"
    assert "<script" in fit().html() and "</script>" in fit().html()


def test_own_formulas_travel_with_the_page():
    """A formula that is not the library's own is shipped in the specification; the others are not."""
    changed = bytes_per_param.replace(expr=bytes_per_param.expr + grad_bytes)
    assert "own" not in spec(Calculator(training_state, start={"params": 1e9}))
    own = Calculator(training_state.using(changed), start={"params": 1e9})
    assert set(spec(own)["own"]["formulas"]) == {"bytes_per_param"}
    assert script(own, {}, "return onegpu.evaluate(spec, lib, state).values.training_state") == 18e9
    speed = Quantity("speed_for_test", "v", "m/s", start=3, slider=(1, 9))
    fall = Formula(Quantity("height_for_test", "y", "m"), speed**2 / 2)
    try:
        foreign = Calculator(fall, title="A fall", start={"speed_for_test": 3})
        assert spec(foreign)["own"]["formulas"] == {"height_for_test": fall.javascript} and foreign.result == {"height_for_test": 4.5}
    finally:
        del REGISTRY["speed_for_test"], REGISTRY["height_for_test"]
    assert published()["training_state"] == training_state.javascript


def test_refusing():
    """A start that no output takes, and a first value outside its domain."""
    with pytest.raises(ValueError, match="start = wombats: must be one of"):
        Calculator(training_state, start={"wombats": 1})
    with pytest.raises(ValueError, match="mfu = 2: must be"):
        Calculator(optimal_params, start={"gpu": "H100 SXM", "mfu": 2})


def test_own_model():
    """A Transformer of one's own starts a calculator; what the page pastes comes back to Python; both count alike."""
    mine = replace(MODELS["Llama 2 7B"], n_layers=40, name="mine")
    state = {"seq_len": 2048, "micro_batch": 2, "attention": "flash", "recompute": "none", "dropout": False}
    calculator = Calculator(training_memory, training_flops, start={"model": mine, "tokens": 1e12, **state})
    assert calculator.result["training_memory"] == training_memory(model=mine, **state) and dict(calculator.table())["model"] == "mine"
    found = script(calculator, {}, "return onegpu.evaluate(spec, lib, state).values")
    assert {n: found[n] for n in calculator.result} == pytest.approx(calculator.result, rel=1e-12)
    pasted = {"model": "theirs", "shape": read_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}) | {"name": "theirs"}}
    calculator.params = calculator.params | pasted
    assert calculator.result["training_flops"] == 6e12 * 124439808
    assert script(calculator, pasted, "return onegpu.evaluate(spec, lib, state).values.training_flops") == 6e12 * 124439808
    calculator.params = calculator.params | {"model": "Llama 2 7B"}
    assert calculator.result["training_flops"] == 6e12 * 6738415616
