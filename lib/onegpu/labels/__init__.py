"""The words of the library, in one file a language.

A key is a dotted path into ``en.toml``, e.g. ``quantity.params``. Nothing else in the library
holds text that a reader sees.
"""

import tomllib
from functools import cache
from pathlib import Path

_language = "en"


def set_language(language):
    """Choose the language of all texts: the name of a file beside this one, e.g. ``"en"``.

    Raises
    ------
    ValueError
        If there is no such file.
    """
    global _language
    known = sorted(p.stem for p in Path(__file__).parent.glob("*.toml"))
    if language not in known:
        raise ValueError(f"language = {language!r}: must be one of {', '.join(known)}")
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


def count(unit, number):
    """A counted unit of time, with its plural: ``1 year``, ``2 years``."""
    one, many = lookup(f"unit.{unit}")
    return text("unit.count", number=number, unit=one if number == "1" else many)
