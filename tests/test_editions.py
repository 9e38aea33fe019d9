"""The editions stay in step, and the Chinese one keeps to its words and its typography.

``zh/`` has every page of the English book: the same cells in the same order with the same tags, the same code but for the
language, headings of the same levels. Its numbers are held by ``test_prose.py``. ``zh/terms.toml`` is its list of terms.

``python tests/test_editions.py FILE…`` prints what is wrong with the words of a text.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TERMS = tomllib.loads((ROOT / "zh" / "terms.toml").read_text("utf-8"))["term"]

HAN = r"\u3400-\u9fff"
WIDE = "，。；：？！、（）《》“”"
#: Left out of prose: fenced and inline code, mathematics, link targets, addresses, tags. Code and mathematics leave a Latin letter behind.
CODE = re.compile(r"```.*?```|^:::.*$", re.S | re.M)
INLINE = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", re.S)
#: Emphasis with punctuation just inside and a letter just outside: Markdown shows its asterisks.
STRONG = re.compile(r"(\w?)\*\*([^*]+)\*\*(\w?)")
#: What is wrong, and how it looks.
SLIPS = {
    "half-width punctuation beside Chinese": re.compile(rf"[{HAN}][,;:?!(]|[{HAN}]\.(?!\w)|[,;:?!)][{HAN}]|\([^()]*[{HAN}][^()]*\)"),
    "no space between Chinese and Latin or digits": re.compile(rf"[{HAN}][A-Za-z0-9$]|[A-Za-z0-9%$][{HAN}]"),
    "a space beside full-width punctuation": re.compile(rf"[{WIDE}] +(?=\S)|(?<=\S) +[{WIDE}]"),
    "a space between Chinese": re.compile(rf"[{HAN}] +[{HAN}]"),
    "a space before %": re.compile(r"\d %"),
    "straight quotes": re.compile(r'"'),
}


def prose(markdown):
    """The words of a Markdown text: emphasis and links by their text, code and mathematics as one letter."""
    text = CODE.sub("", markdown)
    text = INLINE.sub("x", text)
    text = re.sub(r"\]\([^)]*\)|https?://\S+|</?[a-z][^>]*>|\{[a-z:]+\}", "", text)
    text = re.sub(r"^\s*(#+|[-*>]|\d+\.)\s+", "", text, flags=re.M)
    return re.sub(r"[*\[\]_|]", "", text)


def slips(markdown):
    """What is wrong with the typography and the terms of a Chinese text."""
    for before, inside, after in STRONG.findall(markdown):
        if before and inside[0] in WIDE or after and inside[-1] in WIDE:
            yield f"Markdown shows the asterisks of **{inside}**"
    text = prose(markdown)
    for what, pattern in SLIPS.items():
        for match in pattern.finditer(text):
            yield f"{what}: …{text[max(0, match.start() - 8):match.end() + 8]!r}"
    for term in TERMS:
        for wrong in term.get("not", ()):
            if wrong in text:
                yield f"{wrong!r} is not this book's word for {term['en']}, {term['zh']!r} is"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*(f"{name}: {s}" for s in slips(Path(name).read_text("utf-8"))), sep="\n")
