"""Exercises: every draw computes, and Python and the page write the same, in every language."""

import functools
import itertools
import json
import re
from math import prod

import pytest

from exercises import pages
from javascript import run
from onegpu import MODELS, labels
from onegpu.calculator import library
from onegpu.exercise import THEN, Exercise, exact, uniform
from onegpu.memory import training_state

ALL = [(page, e) for page, made in pages().items() for e in made]
each = pytest.mark.parametrize("exercise", [e for _, e in ALL], ids=[e.name for _, e in ALL])
CHINESE = [e for made in pages("zh").values() for e in made]
each_language = pytest.mark.parametrize("language, exercise", [*(("en", e) for _, e in ALL), *(("zh", e) for e in CHINESE)], ids=[*(e.name for _, e in ALL), *(f"zh-{e.name}" for e in CHINESE)])
SEEDS = [*range(40), 17, 123456, 999999999]
#: What the page knows of a specification, as its own script has it.
LOCAL = "const lib = spec => { const own = spec.own ? onegpu.compile(spec.own) : {}; return { ...ONEGPU, formulas: { ...ONEGPU.formulas, ...own.formulas }, quantities: { ...ONEGPU.quantities, ...own.quantities } }; };"


def spec(exercise):
    """The specification that stands in the page."""
    return json.loads(re.search(r'<script type="application/json">(.*)</script>', exercise.html(), re.S)[1])


@pytest.fixture(autouse=True)
def spoken(request):
    """The library speaks the language of a test."""
    named = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    labels.set_language(named.get("language", "en"))
    yield
    labels.set_language("en")


@functools.cache
def in_javascript(language):
    """All exercises of a language in the page's script, by name: draws and texts of each seed."""
    body = LOCAL + """return Object.fromEntries(data.specs.map(s => [s.exercise, data.seeds.map(seed => [onegpu.drawn(s, seed), onegpu.written(s, lib(s), seed)])]));"""
    return run(body, {"specs": [spec(e) for e in (CHINESE if language == "zh" else [e for _, e in ALL])], "seeds": SEEDS})


def all_draws(exercise):
    """Every combination that a seed can draw."""
    return (dict(zip(exercise.draws, values, strict=True)) for values in itertools.product(*exercise.draws.values()))


def test_stream():
    """The numbers are mulberry32's of the FNV-1a hash, in Python and JavaScript alike."""
    texts = ["", "a", "recipe 17", "zero 999999999"]
    found = run("return data.map(t => { const u = onegpu.uniform(t); return [...Array(50)].map(() => u.next().value); })", texts)
    assert found == [list(itertools.islice(uniform(t), 50)) for t in texts]
    assert list(itertools.islice(uniform("foobar"), 1)) == pytest.approx([first_of(0xBF9CF968)])  # FNV-1a's published hash of "foobar"
    numbers = list(itertools.islice(uniform("even"), 4000))
    assert all(0 <= x < 1 for x in numbers) and sum(numbers) / 4000 == pytest.approx(0.5, abs=0.02)


def first_of(state):
    """The first number of mulberry32, as its author wrote it, with signed products cut to 32 bits."""
    a = (state + 0x6D2B79F5) % 2**32
    t = (a ^ a >> 15) * (1 | a) % 2**32
    t = (t + (t ^ t >> 7) * (61 | t) % 2**32) % 2**32 ^ t
    return (t ^ t >> 14) / 2**32


@each_language
def test_every_draw(language, exercise):
    """No formula refuses a combination, and each place in the words is filled."""
    for given in itertools.islice(all_draws(exercise), None if language == "en" else 1000):
        for kind in ("ask", "answer"):
            text = exercise.fill(exercise.words[kind], given)
            assert not re.search(r"[{}]|nan|inf\b|None", text), text
            assert not re.search(r"(?<![\d.,])0 (micro-batches|replicas)", text), text


@each
def test_many_variants(exercise):
    """There is enough to draw for a class, and the seeds reach every value of every input."""
    assert prod(map(len, exercise.draws.values())) >= 18
    drawn = [exercise.draw(seed) for seed in range(1, 400)]
    for name, values in exercise.draws.items():
        assert len(set(values)) == len(values) and {d[name] for d in drawn} == set(values), name
    assert len({exercise.ask(seed) for seed in range(1, 41)}) > 10


@each_language
def test_same_as_in_the_page(language, exercise):
    """Draws and texts of many seeds are those of the page's script."""
    for seed, (draw, texts) in zip(SEEDS, in_javascript(language)[exercise.name], strict=True):
        assert (draw, texts) == (exercise.draw(seed), [exercise.ask(seed), exercise.answer(seed)])


@each_language
def test_printed(language, exercise):
    """Without JavaScript, or in plain text, the first values stand."""
    assert exercise.draw() == {n: v[0] for n, v in exercise.draws.items()}
    page = exercise.html()
    assert exercise.ask() in page.replace("&#x27;", "'").replace("&quot;", '"') and "</details>" in page and repr(exercise) == f"{exercise.number} {exercise.ask()}"


def test_plans_divide():
    """Where a count is rounded down, no draw leaves a rest."""
    for exercise in [e for _, e in ALL if "data_parallel" in e.formulas]:
        for given in all_draws(exercise):
            v = exercise.values(given)
            assert v["data_parallel"] * v["tensor_parallel"] * v.get("context_parallel", 1) * v["pipeline_parallel"] == v["gpus"]
            assert "accumulation_steps" not in v or v["accumulation_steps"] * v["data_parallel"] * v["micro_batch"] * v["seq_len"] == v["global_batch"]
            assert v.get("matmul_tokens", 8192) >= 8192  # the planner's own limit


def test_numbers_and_names():
    """An exercise bears its chapter's number, and no two have one name."""
    assert all(e.number.split(".")[0] == re.search(r"\d+", page)[0].lstrip("0") for page, e in ALL)
    assert len({e.name for _, e in ALL}) == len({e.number for _, e in ALL}) == len(ALL)


def test_worked_by_hand():
    """Three answers as a person computes them."""
    answers = {e.name: e for _, e in ALL}
    recipe = answers["recipe"]
    assert recipe.answer() == "2 + 4 + 4 + 8 = 18 bytes per parameter. For 13B: 234 GB (217.9 GiB)."
    given = {"params": 7e9, "grad_bytes": 2, "master_bytes": 0, "optimizer_bytes": 4}
    assert recipe.fill(recipe.words["answer"], given) == "2 + 2 + 0 + 4 = 8 bytes per parameter. For 7B: 56 GB (52.15 GiB)."
    assert "bf16 gradients, no master copy and two bf16 moments" in recipe.fill(recipe.words["ask"], given)
    state = answers["largest_state"]
    assert [state.fill("{fits}", {"memory_bytes": m, "params": 1e9}) for m in (16e9, 15.9e9)] == ["would fit", "would not fit"]
    bubble = answers["bubble"]
    assert bubble.fill("{pipeline_bubble} {then.pipeline_bubble}", {"pipeline_parallel": 2, "accumulation_steps": 1, THEN + "virtual_stages": 3}) == "50 % 25 %"


def test_widget():
    """In a notebook: a trait for the seed, one script, and the library that the widget needs."""
    exercise = Exercise("recipe", training_state, params=(13e9, 7e9), grad_bytes=4)
    seen = []
    exercise.observe(lambda change: seen.append(change.new), "seed")
    exercise.seed = 3
    assert seen == [3] and repr(exercise) == exercise.ask(3) and exercise.draw(3)["grad_bytes"] == 4
    assert set(exercise.spec["library"]) == set(library([], {})) and "own" not in exercise.spec
    written = run("return onegpu.written(data, onegpu.compile(data.library), 3)", exercise.spec)
    assert written == [exercise.ask(3), exercise.answer(3)]


def test_a_row_of_a_catalogue_fills_in():
    """An input that a drawn row gives is that row's."""
    exercise = next(e for _, e in ALL if e.name == "gradient_buffer")
    seed = next(s for s in range(1, 99) if exercise.draw(s)["model"] == "GPT-3 175B")
    assert exercise.values(exercise.draw(seed))["params"] == MODELS["GPT-3 175B"].n_params


@pytest.mark.parametrize("inputs, message", [
    (dict(wombats=1), "wombats = 1: must be one of"), (dict(params=-1), "params = -1: must be above 0"), (dict(params=(1e9, "7B")), "params = 7B: must be a number"),
    (dict(gpu="H1000"), "gpu = H1000: must be one of"), (dict(then={"wombats": 1}, params=1e9), "wombats = 1: must be one of"), (dict(), "params is missing")])
def test_refusing(inputs, message):
    """An unknown input, a bad value, an unknown row, a missing input."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Exercise("recipe", training_state, **inputs)


def test_refusing_words_and_seeds():
    """Words that name nothing, and what is no seed."""
    exercise = Exercise("recipe", training_state, params=1e9)
    for template in ("{wombats}", "{params:roman}"):
        with pytest.raises(ValueError, match=re.escape(f"exercise.recipe = {template}: must be one of")):
            exercise.fill(template, exercise.draw())
    for seed in (-1, 1.5, "7", True, 10**9):
        with pytest.raises(ValueError, match=f"seed = {seed}: must be a whole number, at least 0 and at most 999999999"):
            exercise.draw(seed)
    with pytest.raises(ValueError, match="seed = -1"):
        exercise.seed = -1
    with pytest.raises(KeyError, match="exercise.wombats.ask"):
        Exercise("wombats", training_state, params=1e9)


def test_exact():
    """All digits, in groups from five on, as the prose writes them."""
    assert [exact(x) for x in (8, 4096, 16384, 4194304, 0.4, 1e12)] == ["8", "4096", "16,384", "4,194,304", "0.4", "1,000,000,000,000"]
