"""The words of the library, in one file a language.

A key is a dotted path into ``en.toml``, e.g. ``quantity.params``. Nothing else in the library
holds text that a reader sees, but for the words of the notebooks' tables, which stand in their
English cells; another language has them under ``told``.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

_language = "en"


def set_language(language):
    """Choose the language of all texts: ``"en"`` or ``"zh"``, or another one that has a file of labels.

    Raises
    ------
    ValueError
        If there is no such file.
    """
    global _language
    if language not in languages():
        raise ValueError(f"language = {language!r}: must be one of {', '.join(languages())}")
    _language = language


@cache
def load(language=None):
    """All texts of a language as nested dictionaries."""
    return tomllib.loads((Path(__file__).parent / f"{language or 'en'}.toml").read_text("utf-8"))


def lookup(key):
    """The entry under ``key``, or None."""
    node = load(_language)
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def text(key, **fields):
    """The text under ``key`` with its ``{fields}`` filled in.

    Raises
    ------
    KeyError
        If the language has no such text.
    """
    found = lookup(key)
    if found is None:
        raise KeyError(f"no text {key!r} in labels/{_language}.toml")
    return found.format(**fields) if fields else found


def languages():
    """The languages that there are texts for, by code: the names of the files beside this one."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.toml"))


#: A number in a text, but not one that belongs to a name.
NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?")


def told(text):
    """A word of a table or a row's name in the current language; English is as it stands, and so is a name but for its commas.

    A text with numbers is found as it is, or with ``#`` for each of them: ``"# days"``.
    """
    known = load(_language).get("told", {})
    if text in known:
        return known[text]
    numbers = iter(NUMBER.findall(text))
    return re.sub("#", lambda _: next(numbers), known.get(NUMBER.sub("#", text), "")) or text.replace(", ", lookup("join.comma"))


def count(unit, number):
    """A counted unit of time, with its plural: ``1 year``, ``2 years``."""
    one, many = lookup(f"unit.{unit}")
    return text("unit.count", number=number, unit=one if number == "1" else many)
