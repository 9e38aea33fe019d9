"""Numbers as people read them, in Python and in JavaScript."""

import random

import pytest

from javascript import run
from onegpu import units

UNITS = ["B", "B/s", "FLOP", "FLOP/s", "s", "share", "", "B/param", "W"]


@pytest.mark.parametrize("value, unit, text", [
    (1.12e11, "B", "112 GB (104.3 GiB)"), (80 * 2**30, "B", "85.9 GB (80 GiB)"), (500, "B", "500 B"), (-2.5e9, "B", "−2.5 GB (−2.328 GiB)"),
    (1.05e24, "FLOP", "1.05 × 10²⁴ FLOP"), (989.4e12, "FLOP/s", "989.4 TFLOP/s"), (3.35e12, "B/s", "3.35 TB/s"),
    (0.5, "share", "50 %"), (7e9, "", "7B"), (4096, "", "4096"), (1e12, "", "1T"), (999_999_999, "", "1B"), (16, "B/param", "16 B/param"),
])
def test_human(value, unit, text):
    """The printed form of each unit."""
    assert units.human(value, unit) == text


@pytest.mark.parametrize("seconds, text", [
    (8.489e7, "2 years 8 months"), (8.4e7, "2 years 8 months"), (units.YEAR, "1 year"), (2 * units.YEAR - 10 * units.DAY, "2 years"),
    (units.YEAR + units.MONTH, "1 year 1 month"), (23.7 * units.DAY, "23.7 days"), (units.DAY, "1 day"), (units.HOUR, "1 hour"),
    (90, "90 seconds"), (600, "10 minutes"), (0.348, "348 ms"), (1, "1 second"), (1000 * units.YEAR, "1000 years"),
])
def test_duration(seconds, text):
    """Durations are rounded to the month, with carry at twelve."""
    assert units.duration(seconds) == text


def test_javascript_writes_the_same():
    """Ten thousand values, halves and edges of prefixes among them."""
    draw = random.Random(1)
    values = [0, 1, 1000, 1024, 999.95, 1023.95, 112.5, 0.125, 1e15, 9.995e21, 365.25 * 86400]
    values += [draw.choice([1, -1]) * 10 ** draw.uniform(-6, 26) for _ in range(1200)] + [draw.randrange(10**7) / 8 for _ in range(300)]
    cases = [(abs(v) if unit == "s" else v, unit) for v in values for unit in UNITS]
    found = run("return data.map(([x, unit]) => onegpu.human(x, unit, ONEGPU.words))", cases)
    wrong = [(c, f, units.human(*c)) for c, f in zip(cases, found, strict=True) if f != units.human(*c)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("text, unit, value", [
    ("7e9", "", 7e9), ("7B", "", 7e9), ("1.5T", "", 1.5e12), ("1,024", "", 1024), ("80 GiB", "B", 80 * 2**30), ("80GB", "B", 80e9), ("40 %", "share", 0.4),
    ("30 days", "s", 30 * 86400), ("2 years", "s", 2 * units.YEAR), ("400 Gb/s", "B/s", 50e9), ("989.4 TFLOP/s", "FLOP/s", 989.4e12), ("989.4T", "FLOP/s", 989.4e12),
    ("7 apples", "", "7 apples"), ("abc", "", "abc"), ("", "", ""), ("-1", "", -1), (".5", "share", 0.5),
])
def test_typed_entry(text, unit, value):
    """What a reader may type beside a slider."""
    found = run("return onegpu.parse(data[0], data[1], ONEGPU.suffixes)", [text, unit])
    assert found == (pytest.approx(value, rel=1e-15) if not isinstance(value, str) else value)


def test_entry_survives_a_round_trip():
    """What stands in the box means the number it stands for, to six digits."""
    draw = random.Random(2)
    cases = [(10 ** draw.uniform(0, 14), unit) for unit in ("B", "B/s", "FLOP/s", "s", "share", "") for _ in range(200)]
    found = run("return data.map(([x, unit]) => onegpu.parse(onegpu.entry(x, unit, ONEGPU.words), unit, ONEGPU.suffixes))", cases)
    assert found == [pytest.approx(x, rel=1e-5) for x, _ in cases]
