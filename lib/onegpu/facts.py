"""Single facts that the chapter cites, each with a public source: ``data/facts.csv``."""

import csv
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Fact:
    """A number in base units, what it is, and where it is printed."""

    name: str
    value: float
    unit: str
    what: str
    source: str
    url: str


def rows(file):
    """The rows of a table in ``data/`` as dictionaries of text."""
    with open(DATA / file, encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle)


FACTS = {row["name"]: Fact(**row | {"value": float(row["value"])}) for row in rows("facts.csv")}
