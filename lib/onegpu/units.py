"""Units: base units inside, human units at the edge.

Every number in the library is in base units (bytes, FLOP, FLOP/s, bytes/s, seconds,
dollars, joules). This module turns such a number into the text that people read. The
calculator's JavaScript does the same with the same tables, and a test holds the two equal.
"""

import re
from decimal import ROUND_HALF_UP, Decimal
from math import floor, log10

from . import labels

KB, MB, GB, TB, PB = (10.0 ** (3 * k) for k in range(1, 6))
KIB, MIB, GIB, TIB, PIB = (2.0 ** (10 * k) for k in range(1, 6))
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
YEAR = 365.25 * DAY
MONTH = YEAR / 12

SI = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"]
SHORT_SCALE = ["", "k", "M", "B", "T", "Q"]
MYRIAD = {"万": 1e4, "亿": 1e8, "万亿": 1e12}

#: What a reader may type after a number, by unit: suffix -> factor. Matched case-sensitively first.
SUFFIXES = {
    "B": {f"{p}{b}B": (1024.0 if b else 1000.0) ** i for i, p in enumerate(SI[:6]) for b in ("", "i") if p or not b},
    "B/s": {f"{p}B/s": 1000.0**i for i, p in enumerate(SI[:6])} | {f"{p}b/s": 1000.0**i / 8 for i, p in enumerate(SI[:6])},
    "FLOP": {f"{p}FLOP": 1000.0**i for i, p in enumerate(SI)},
    "FLOP/s": {f"{p}FLOP/s": 1000.0**i for i, p in enumerate(SI)} | {p: 1000.0**i for i, p in enumerate(SI) if p},
    "s": {"s": 1.0, "ms": 1e-3, "min": MINUTE, "h": HOUR, "d": DAY, "day": DAY, "days": DAY, "month": MONTH,
          "months": MONTH, "y": YEAR, "year": YEAR, "years": YEAR, "秒": 1.0, "分钟": MINUTE, "小时": HOUR, "天": DAY, "个月": MONTH, "年": YEAR},
    "share": {"%": 0.01},
    "$": {p: 1000.0**i for i, p in enumerate(SHORT_SCALE) if p} | MYRIAD,
    "$/s": {"/h": 1 / HOUR, "$/h": 1 / HOUR},
    "J": {"kWh": 3.6e6, "MWh": 3.6e9, "GWh": 3.6e12},
    "tokens": {p: 1000.0**i for i, p in enumerate(SHORT_SCALE) if p} | MYRIAD,
    "": {p: 1000.0**i for i, p in enumerate(SHORT_SCALE) if p} | {"K": 1e3, "G": 1e9} | MYRIAD,
}


def significant(x, digits=4):
    """Write ``x`` with at most ``digits`` significant digits, halves rounded away from zero.

    The decimal is rounded from the float's exact value, as JavaScript's ``toPrecision`` does.

    Examples
    --------
    >>> significant(112.04), significant(0.5), significant(62500)
    ('112', '0.5', '62500')
    """
    if x == 0:
        return "0"
    exact = Decimal(x)
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    text = f"{exact.quantize(step, ROUND_HALF_UP) if step < 1 else (exact / step).quantize(Decimal(1), ROUND_HALF_UP) * step:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(x, base, prefixes, digits=4):
    """The number and the prefix that leave between one and ``base`` of the unit (after rounding)."""
    power = 0 if x == 0 else max(0, min(len(prefixes) - 1, floor(log10(abs(x)) / log10(base) + 1e-9)))
    text = significant(x / base**power, digits)
    if abs(float(text)) >= base and power < len(prefixes) - 1:
        power += 1
        text = significant(x / base**power, digits)
    return text, prefixes[power]


def _bytes(x, digits=4):
    (decimal, p), (binary, q) = _scaled(x, 1000.0, SI[:6], digits), _scaled(x, 1024.0, SI[:6], digits)
    return f"{decimal} {p}B ({binary} {q.upper()}iB)" if q else f"{decimal} {p}B"


def _prefixed(x, unit, prefixes=SI):
    text, prefix = _scaled(x, 1000.0, prefixes)
    return f"{text} {prefix}{unit}".rstrip()


def _scientific(x, unit):
    """``4.2 × 10²² FLOP``: with powers beyond the prefixes people know."""
    if abs(x) < 1e15:
        return _prefixed(x, unit)
    mantissa, exponent = f"{Decimal(x):.30e}".split("e")
    text = significant(float(mantissa), 3)
    power = int(exponent)
    if abs(float(text)) >= 10:
        text, power = "1", power + 1
    return f"{text} × 10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))} {unit}"


def parse(text, unit):
    """A typed number in base units, or the text itself if it is none.

    Parameters
    ----------
    text : str
        E.g. ``"7e9"``, ``"7B"``, ``"80 GiB"``, ``"1.5T"``
    unit : str
        Base unit of what is typed

    Examples
    --------
    >>> parse("7B", ""), parse("80 GiB", "B"), parse("50 %", "share"), parse("1.5万亿", "tokens")
    (7000000000.0, 85899345920.0, 0.5, 1500000000000.0)
    """
    match = re.fullmatch(r"\$?([-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*)", text.strip(), re.I)
    if not match:
        return text
    known, suffix = {"": 1.0, unit: 1.0} | SUFFIXES.get(unit, {}), match[2].strip()
    factor = known.get(suffix, next((f for s, f in known.items() if s.lower() == suffix.lower()), None))
    return text if factor is None else float(match[1].replace(",", "").replace("−", "-")) * factor


def duration(seconds):
    """A duration as people say it, rounded to the month, with carry at twelve.

    Parameters
    ----------
    seconds : float
        Duration [s]

    Returns
    -------
    str
        In the current language.

    Examples
    --------
    >>> duration(8.489e7), duration(2.045e6), duration(5400)
    ('2 years 8 months', '23.67 days', '1.5 hours')
    """
    if seconds >= 100 * YEAR:
        return labels.count("year", significant(seconds / YEAR, 4))
    months = floor(seconds / MONTH + 0.5)
    if months >= 12:
        years, months = divmod(months, 12)
        parts = [labels.count("year", str(years))] + ([labels.count("month", str(months))] if months else [])
        return labels.text("unit.join").join(parts)
    for name, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE), ("second", 1.0)):
        if seconds >= size * (1 if size >= HOUR else 2):
            return labels.count(name, significant(seconds / size, 4))
    if seconds >= 1:
        return labels.count("second", significant(seconds, 4))
    return f"{significant(seconds * 1000, 3)} ms"


def shown(unit):
    """A unit as it is written in the current language, e.g. ``"tokens"``."""
    return labels.lookup("unit.name").get(unit, unit)


def human(x, unit):
    """Write a value in base units as people read it.

    Parameters
    ----------
    x : float
        Value, in the base unit ``unit``
    unit : str
        One of the base units of the registry, e.g. ``"B"``, ``"FLOP/s"``, ``"s"``, ``"share"``

    Returns
    -------
    str
        E.g. ``"112 GB (104.3 GiB)"``: memory sizes carry GB and GiB both.

    Examples
    --------
    >>> human(1.12e11, "B"), human(4.2e22, "FLOP"), human(0.5, "share"), human(7e9, "")
    ('112 GB (104.3 GiB)', '4.2 × 10²² FLOP', '50 %', '7B')
    """
    if x < 0:
        return "−" + human(-x, unit).replace("(", "(−")
    if unit == "s":
        return duration(x)
    if unit == "share":
        return labels.text("unit.percent", number=significant(100 * x))
    if unit == "B":
        return _bytes(x)
    if unit == "FLOP":
        return _scientific(x, unit)
    if unit in ("B/s", "FLOP/s", "W"):
        return _prefixed(x, unit)
    if unit == "J":
        return _prefixed(x / 3.6e3, "Wh")
    if unit == "$":
        return "$" + "".join(_scaled(x, 1000.0, SHORT_SCALE)) if x >= 1e6 else f"${significant(x)}"
    if unit == "$/s":
        return f"${significant(x * HOUR)}/h"
    if unit == "GPU·s":
        return "".join(_scaled(x / HOUR, 1000.0, SHORT_SCALE)) + " GPU·h"
    if unit == "":
        return "".join(_scaled(x, 1000.0, SHORT_SCALE)) if abs(x) >= 1e6 else significant(x)
    return f"{''.join(_scaled(x, 1000.0, SHORT_SCALE)) if x >= 1e6 else significant(x)} {shown(unit)}"
