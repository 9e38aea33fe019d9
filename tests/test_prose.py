"""Every number in the prose is computed, or is listed with a reason.

``prose.toml`` lists, for each Markdown cell of each page, the numbers that stand in it:
``"112 GB = training_state(params=7e9)"`` is compared at the printed precision,
``"3 : reason"`` is a plain number that is not computed. Numbers that are part of a name are not
listed. ``python tests/test_prose.py`` prints what is not listed yet.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from onegpu import FACTS, GPUS, MODELS, RECIPES, RUNS, catalog, compute, coupling, finetune, memory, planner, quantities, scaling, units
from store_outputs import ROOT, notebooks

LISTED = tomllib.loads((Path(__file__).parent / "prose.toml").read_text("utf-8"))
NAMES = [*MODELS, *GPUS, *RECIPES, *LISTED["names"]]
SCOPE = {n: v for m in (quantities, catalog, units, finetune, memory, scaling, coupling, planner, compute) for n, v in vars(m).items() if not n.startswith("_")}
SCOPE |= {"FACTS": FACTS, "GPUS": GPUS, "MODELS": MODELS, "RECIPES": RECIPES}



def whole_run(name):
    """The MFU that a published run implies."""
    run = RUNS[name]
    return scaling.implied_mfu(params=run.active_params, tokens=run.tokens, gpu_seconds=3600 * run.gpu_hours, gpu=GPUS[run.gpu])


def makers_mfu(kernel_efficiency):
    """The MFU of Llama 3.1 405B's published plan."""
    return coupling.step_mfu(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], seq_len=8192, micro_batch=1, accumulation_steps=16, data_parallel=128, tensor_parallel=8,
                             pipeline_parallel=16, virtual_stages=8, zero_stage=2, network_bandwidth=50e9, kernel_efficiency=kernel_efficiency, causal=True)


def makers_ratio():
    """The time of that plan over the fastest of the whole search."""
    given = dict(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], gpus=16384, tokens=1e12, seq_len=8192, global_batch=2**24, network_bandwidth=50e9, kernel_efficiency=0.6, causal=True)
    theirs = dict(tensor_parallel=(8,), pipeline_parallel=(16,), virtual_stages=(8,), zero_stage=(2,), recompute=("none",), micro_batch=(1,))
    return planner.search(**given, axes=theirs).best["step_time"] / planner.search(**given).fastest["step_time"]


def dp_ratio(k):
    """Bytes of ZeRO-3 over those of plain data parallel, with k micro-batches."""
    sent = [coupling.data_parallel_bytes(params=1e9, data_parallel=64, zero_stage=z, accumulation_steps=k) for z in (3, 0)]
    return sent[0] / sent[1]


SOURCE_50, SOURCE_40 = (scaling.cluster_time(params=175e9, tokens=1e12, gpus=1024, gpu=GPUS["H100 SXM"], mfu=m) for m in (0.5, 0.4))
RUNS_405B = sorted((r.mfu_printed for r in RUNS.values() if r.name.startswith("Llama 3.1 405B, ") and r.scope == "step"), reverse=True)
SCOPE |= {"RUNS": RUNS, "RUNS_405B": RUNS_405B, "SOURCE_40": SOURCE_40, "SOURCE_50": SOURCE_50, "dp_ratio": dp_ratio, "makers_mfu": makers_mfu, "makers_ratio": makers_ratio, "whole_run": whole_run}

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
UNITS = {"": 1, "%": 0.01, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "bytes": 1, "byte": 1, "seconds": 1, "GB": 1e9, "GiB": 2**30, "TB": 1e12, "TiB": 2**40,
         "GB/s": 1e9, "TFLOP/s": 1e12, "FLOP/s": 1, "FLOP": 1, "minutes": 60, "days": 86400, "day": 86400, "months": units.MONTH, "years": units.YEAR, "billion": 1e9}
DURATION = re.compile(r"(\d+) years (\d+) months?")
NUMBER = re.compile(r"(?<![\w.])(\d+(?:,\d{3})*(?:\.\d+)?)([⁰¹²³⁴⁵⁶⁷⁸⁹]*)( × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?(?:\s?(" + "|".join(re.escape(u) for u in sorted(UNITS, key=len, reverse=True) if u) + r")(?![\w/]))?")


def prose(text):
    """The text without code, link targets, tags and names."""
    text = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "] ", text)
    text = re.sub(r"<[^>]+>", " ", text)
    for name in sorted(NAMES, key=len, reverse=True):
        text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", " ", text)
    return text


def numbers(text):
    """Each number with its unit, as written."""
    text = re.sub(r"\s+", " ", prose(text))
    return [m[0] for m in DURATION.finditer(text)] + [m[0] for m in NUMBER.finditer(DURATION.sub(" ", text))]


def value(written):
    """What a written number means in base units, and half a unit of its last digit."""
    if duration := DURATION.fullmatch(written):
        return int(duration[1]) * units.YEAR + int(duration[2]) * units.MONTH, units.MONTH / 2
    number, power, scale, unit = NUMBER.fullmatch(written).groups()
    digits = number.replace(",", "")
    x = float(digits) ** int(power.translate(SUPERSCRIPTS)) if power else float(digits)
    factor = UNITS[unit or ""] * (10.0 ** int(scale[5:].translate(SUPERSCRIPTS)) if scale else 1)
    step = 0 if power else 10.0 ** -len(digits.partition(".")[2])
    return x * factor, step * factor / 2


def cells():
    """Each Markdown cell: page, cell id, text."""
    for path in notebooks():
        page = path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("zh/")
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "markdown":
                yield page, cell.id, cell.source


def listed(page, cell):
    """The entries of a cell: what is written, and its expression or None."""
    for entry in LISTED.get(page, {}).get(cell, []):
        written, sign, rest = re.split(r" (=|:) ", entry, maxsplit=1)
        yield written, rest if sign == "=" else None


CELLS = list(cells())


@pytest.mark.parametrize("page, cell, text", CELLS, ids=[f"{p}:{c}" for p, c, _ in CELLS])
def test_every_number_is_listed(page, cell, text):
    """No number is unlisted, none is listed in vain."""
    found, known = Counter(numbers(text)), Counter(w for w, _ in listed(page, cell))
    missing, idle = found - known, known - found
    assert not missing and not idle, (
        f"{page}, cell {cell}: written and not listed {list(missing.elements())}, listed and not written {list(idle.elements())}. A changed number is wrong; "
        f'a new one goes into tests/prose.toml, ["{page}"] {cell}: "… = <expression>" or "… : <reason>"')


ENTRIES = [(p, c, w, e) for p, cs in LISTED.items() if p != "names" for c in cs for w, e in listed(p, c) if e]


@pytest.mark.parametrize("page, cell, written, expression", ENTRIES, ids=[f"{p}:{c}:{w}" for p, c, w, _ in ENTRIES])
def test_every_number_is_true(page, cell, written, expression):
    """The expression gives the written number at its printed precision."""
    meant, half = value(written)
    found = eval(expression, dict(SCOPE))
    assert abs(found - meant) <= half + 1e-9 * abs(meant), f"{written} is written, {expression} = {found}"


def test_no_cell_is_listed_in_vain():
    """prose.toml names no page or cell that does not exist."""
    assert {(p, c) for p, cs in LISTED.items() if p != "names" for c in cs} <= {(p, c) for p, c, _ in CELLS}


def test_a_changed_digit_is_found():
    """The checker sees a changed digit, a changed unit and a changed power."""
    for one, other in (("16 bytes", "18 bytes"), ("14.9 GiB", "14.9 GB"), ("10⁹ bytes", "10⁸ bytes"), ("3.14 × 10²³ FLOP", "3.14 × 10²⁴ FLOP")):
        assert numbers(f"It is {one}.") == [one] and value(one) != value(other)


if __name__ == "__main__":
    for page, cell, text in CELLS:
        missing = Counter(numbers(text)) - Counter(w for w, _ in listed(page, cell))
        if missing:
            print(f'["{page}"]\n{cell} = {list(missing.elements())}'.replace("'", '"'))
