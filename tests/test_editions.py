"""The editions stay in step, and the Chinese one keeps to its words and its typography.

``zh/`` has every page of the English book: the same cells in the same order with the same tags, the same code but for the
language, headings of the same levels, the same links, mathematics and code. Its outputs show the same values, figures,
calculators and exercises. Its numbers in prose are held by ``test_prose.py``. ``zh/terms.toml`` is its list of terms.

``python tests/test_editions.py FILE…`` prints what is wrong with the words of a text.
"""

import copy
import functools
import json
import re
import sys
import tomllib
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import nbformat
import pytest
import yaml

from onegpu import GPUS, MODELS, NETWORKS, RECIPES, RUNS, labels, measured

ROOT = Path(__file__).parents[1]
TERMS = tomllib.loads((ROOT / "zh" / "terms.toml").read_text("utf-8"))["term"]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
#: Every page in the order of the table of contents.
ORDER = [TOC["root"], *(c["file"] for c in TOC["chapters"])]
NOTEBOOKS = [page for page in ORDER if (ROOT / f"{page}.ipynb").is_file()]
each_notebook = pytest.mark.parametrize("page", NOTEBOOKS)

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


# -- what is read ------------------------------------------------------------------------------------

@functools.cache
def notebook(page, edition=""):
    """A notebook of an edition."""
    return nbformat.read(ROOT / edition / f"{page}.ipynb", 4)


def contents(page, edition=""):
    """The Markdown of a page: (cell, text)."""
    if page in NOTEBOOKS:
        return [(c.id, c.source) for c in notebook(page, edition).cells if c.cell_type == "markdown"]
    return [("text", (ROOT / edition / f"{page}.md").read_text("utf-8"))]


def texts(node, key=""):
    """Each text of a file of labels with its key."""
    if isinstance(node, str):
        yield key, node
    else:
        for k, v in node.items() if isinstance(node, dict) else enumerate(node):
            yield from texts(v, f"{key}.{k}" if key else str(k))


def table(markdown):
    """The cells of a table in Markdown, row by row; none if the text is no table."""
    lines = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in markdown.splitlines()] if markdown.lstrip().startswith("|") else []
    return [[cell.strip().replace("\\|", "|") for cell in line] for line in lines[:1] + lines[2:]]


# -- the same page twice -------------------------------------------------------------------------------

#: What a translation keeps of a text: in its order, or in any order.
KEPT = {"headings": (r"^(#+) ", list), "lists": (r"^\s*([-*]|\d+\.) ", list), "fences": (r"^(?:```|:::).*", list), "tags": (r"</?[a-z][^>]*>", list), "folded parts": (r"<details", list),
        "links": (r"\]\(([^)]*)\)", Counter), "pictures": (r"!\[", list), "mathematics": (r"\$\$.*?\$\$|\$[^$]*\$", Counter), "code": (r"(?<![`}])`[^`]+`(?!`)", Counter), "roles": (r"\{[a-z:]+\}(?=`)", Counter)}


def differences_in_text(english, chinese):
    """What the two texts of a cell do not share."""
    for what, (pattern, order) in KEPT.items():
        en, zh = (order(re.findall(pattern, text, re.M | re.S if what == "mathematics" else re.M)) for text in (english, chinese.replace("} ../", "} ")))  # a folder deeper
        if en != zh:
            yield f"{what}: {dict(en - zh)} became {dict(zh - en)}" if order is Counter else f"{what}: {en} became {zh}"
    if not re.search(f"[{HAN}]", chinese):
        yield "it is not translated"


def specification(page):
    """The specification in a calculator's or an exercise's HTML, without its words."""
    spec = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])
    for words in (spec, *spec.get("own", {}).get("quantities", {}).values()):
        for key in ("title", "words", "label", "allowed"):
            words.pop(key, None)
    for choice in (c for q in spec.get("own", {}).get("quantities", {}).values() for c in q.get("choices", ())):
        choice.pop("label")
    spec.get("own", {}).pop("words", None)
    return spec


def digits(text):
    """Every number of a text as it is written, in any order; 1M is Chinese 100 万."""
    return Counter(re.findall(r"\d+(?:,\d{3})*(?!\d)(?:\.\d+)?", re.sub(r"(?<![\d.])1M\b", "100 万", text)))


def symbols(latex):
    """An equation without its words."""
    return re.sub(r"(?<![_^])\\text\{([^{}]*)\}", lambda m: rf"\text{{{sorted(digits(m[1]))}}}", latex)


#: What an output shows in any language, by its kind. A drawing's lines of words may break elsewhere.
SHOWN = {"text/html": specification, "text/latex": symbols, "text/plain": digits, "text/markdown": lambda text: [list(map(digits, row)) for row in table(text)] or digits(text),
         "image/svg+xml": lambda text: [text.count("<path"), text.count("<use"), "<text" in text]}

def differences_in_output(english, chinese):
    """What two outputs of a cell do not share."""
    if english.output_type != chinese.output_type:
        yield f"{english.output_type} became {chinese.output_type}"
        return
    en, zh = ({"text/plain": o.text} if o.output_type == "stream" else o.get("data", {}) for o in (english, chinese))
    if en.keys() != zh.keys():
        yield f"{sorted(en)} became {sorted(zh)}"
    for kind in en.keys() & zh.keys():
        if kind == "text/plain" and "text/html" in en:
            continue  # the same in other words, with other units
        was, now = SHOWN[kind](en[kind]), SHOWN[kind](zh[kind])
        if was != now:
            yield f"{kind}: {was} became {now}" if len(str(was)) < 400 else f"{kind}: {parted(was, now)}"


def parted(was, now):
    """Where two large values differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        return {k: parted(was.get(k), now.get(k)) for k in {**was, **now} if was.get(k) != now.get(k)}
    if isinstance(was, list) and isinstance(now, list):
        return [parted(a, b) for a, b in zip_longest(was, now) if a != b]
    return f"{was} became {now}"


def differences(english, chinese):
    """What is not the same in two notebooks, cell by cell: kinds, tags, code, the frame of the texts, what the outputs show."""
    for en, zh in zip_longest(english.cells, chinese.cells):
        if en is None or zh is None or (en.id, en.cell_type, en.metadata) != (zh.id, zh.cell_type, zh.metadata):
            yield f"{en and (en.id, en.cell_type, dict(en.metadata))} became {zh and (zh.id, zh.cell_type, dict(zh.metadata))}"
            return
        if en.cell_type == "markdown":
            yield from (f"{en.id}: {d}" for d in differences_in_text(en.source, zh.source))
            continue
        if en.source.replace('set_language("en")', 'set_language("zh")') != zh.source or en.id == "setup" and zh.source.count('set_language("zh")') != 1:
            yield f"{en.id}: other code"
        if len(en.outputs) != len(zh.outputs):
            yield f"{en.id}: {len(en.outputs)} outputs became {len(zh.outputs)}"
        yield from (f"{en.id}: {d}" for outputs in zip(en.outputs, zh.outputs, strict=False) for d in differences_in_output(*outputs))


# -- the tests: the same book ---------------------------------------------------------------------------

def test_the_same_pages():
    """One table of contents, and the same files."""
    assert (ROOT / "zh" / "_toc.yml").read_text("utf-8") == (ROOT / "_toc.yml").read_text("utf-8")
    files = {edition: {p.relative_to(ROOT / edition).as_posix() for pattern in ("*.ipynb", "*.md", "chapters/*") for p in (ROOT / edition).glob(pattern) if p.suffix in (".ipynb", ".md")} for edition in ("", "zh")}
    assert files[""] - {"README.md"} == files["zh"] and {Path(f).with_suffix("").as_posix() for f in files["zh"]} == set(ORDER)


#: The settings that are an edition's own.
OWN = {"title", "author", "exclude_patterns", "bibtex_bibfiles", "html.favicon", "html.extra_footer", "sphinx.local_extensions.onegpu.book", "sphinx.config.language",
       "sphinx.config.nb_code_prompt_show", "sphinx.config.nb_code_prompt_hide"}


def settings(node, key=""):
    """Each setting with its path."""
    if isinstance(node, dict):
        return {p: v for k, n in node.items() for p, v in settings(n, f"{key}.{k}" if key else k).items()} or {key: {}}
    return {key: node}


def test_the_same_settings():
    """But for the language, the words and the paths."""
    en, zh = (settings(yaml.safe_load((ROOT / edition / "_config.yml").read_text("utf-8"))) for edition in ("", "zh"))
    assert {k for k in {**en, **zh} if en.get(k) != zh.get(k)} == OWN


@each_notebook
def test_the_same_notebook(page):
    """Cells, code, frame of the texts, outputs."""
    assert list(differences(notebook(page), notebook(page, "zh"))) == []


@pytest.mark.parametrize("page", sorted(set(ORDER) - set(NOTEBOOKS)))
def test_the_same_text(page):
    """The frame of a page that is no notebook."""
    (_, english), (_, chinese) = *contents(page), *contents(page, "zh")
    assert list(differences_in_text(english, chinese)) == []


def entries(edition):
    """The entries of an edition's glossary: the names of each, and what it says."""
    inside = (ROOT / edition / "glossary.md").read_text("utf-8").partition(":sorted:")[2].partition("```")[0]
    return [(names.split("\n")[:-1], said.strip()) for names, said in re.findall(r"^((?:\S.*\n)+)((?:  .*\n?)+)", inside, re.M)]


def test_the_same_glossary():
    """Each entry bears its English names, after Chinese ones if there are any; further names are those of terms.toml."""
    english, chinese = ([names for names, _ in entries(edition)] for edition in ("", "zh"))
    latin = [[n for n in names if not re.search(f"[{HAN}]", n)] for names in chinese]
    assert len(latin) == len(english) > 40 and [names for names in english if sum(set(names) <= set(found) for found in latin) != 1] == []
    assert {n for names in latin for n in names} - {n for names in english for n in names} <= {t[k] for t in TERMS for k in ("en", "short") if k in t}
    assert [names for names in chinese if sorted(names, key=lambda n: not re.search(f"[{HAN}]", n)) != names] == []


def test_the_same_labels():
    """zh.toml has every text of en.toml, each with the same placeholders. English has no words for its own tables, and no names of units."""
    en, zh = (dict(texts(labels.load(language))) for language in ("en", "zh"))
    zh = {k: t for k, t in zh.items() if not k.startswith(("told.", "unit.name.", "page.theme."))}
    en = {k: t for k, t in en.items() if not k.startswith("page.theme.")}
    assert en.keys() == zh.keys()
    fields = {k: [Counter(re.findall(r"\{[^{}]*\}", t)) for t in (en[k], zh[k])] for k in en}
    assert {k: found for k, found in fields.items() if found[0] != found[1]} == {}
    told = labels.load("zh")["told"]
    assert [k for k, t in told.items() if k.count("#") != t.count("#")] == []


# -- the tests: no English is left in the tables -------------------------------------------------------

#: What has a name, which is the same in every language.
NAMES = {n for rows in (MODELS, GPUS, NETWORKS, RECIPES, RUNS, measured.MEASURED, measured.FINETUNED) for n in rows} | {m.trainer for rows in (measured.MEASURED, measured.FINETUNED) for m in rows.values()}
NAMES |= {n.replace(", ", "，") for n in NAMES}
#: Words that Chinese texts leave in English: programs, kinds of numbers, collectives, short names.
SAME = set("FlashAttention kernel dropout logits softmax eager all-gather all-reduce LoRA QLoRA PEFT MFU HFU DP TP PP ZeRO ZeRO-1 ZeRO-2 ZeRO-3 GPT-3 dX dW GB FLOP FLOP/s FLOP/B FLOP/token GPU·s bf16 fp32".split())
MEASURE = re.compile(r"[-−]?\$?[\d,.]+(?: × 10[⁰¹²³⁴⁵⁶⁷⁸⁹]+)? ?(?:[kMGTPE]?i?(?:B|FLOP|W|Wh)(?:/s)?|ms|GPU·h)?(?: \([−\d.]+ [KMGTP]iB\))?")


def is_name(cell):
    """Whether a cell of a table is the same in all languages: code, mathematics, a link, a name, a number with a unit."""
    if cell in labels.load("zh")["unit"]["name"].values():
        return True
    cell = re.sub(r"`[^`]*`|\$[^$]*\$|\[[^\]]*\]\([^)]*\)|\*", "", cell).strip()
    if not re.search("[A-Za-z]{2}", cell) or cell in NAMES or MEASURE.fullmatch(cell):
        return True
    parts = re.split(r", | ÷ |，", cell)
    return all(p in NAMES or p in SAME or MEASURE.fullmatch(p) or set(p.split()) <= SAME for p in parts)


def tables(page, edition=""):
    """The cells of a notebook's tables: (cell of the notebook, cell of the table)."""
    for cell in notebook(page, edition).cells:
        for output in cell.get("outputs", ()):
            for row in table(output.get("data", {}).get("text/markdown", "")):
                yield from ((cell.id, c) for c in row)


@each_notebook
def test_no_table_keeps_english_words(page):
    """A cell of a Chinese table is Chinese, or it is a name."""
    left = {(where, c) for where, c in tables(page, "zh") if not re.search(f"[{HAN}]", c) and not is_name(c)}
    assert left == set(), f"put these into told of zh.toml, or store the outputs again: {sorted(left)}"


# -- the tests: words and typography -------------------------------------------------------------------

@pytest.mark.parametrize("page", ORDER)
def test_typography(page):
    """The words of each Chinese page."""
    wrong = [(cell, s) for cell, text in contents(page, "zh") for s in slips(re.sub("```(\\{glossary\\})?", "", text) if page == "glossary" else text)]
    assert wrong == []


#: A piece of Python in a text of the labels.
PYTHON = re.compile(r'\w+\["[^"]*"\]')


def test_typography_of_the_labels():
    """The texts of the interface, with a letter for what they fill in and a digit for a number in a table."""
    wrong = []
    for key, text in texts(labels.load("zh")):
        shown = text.replace("#", "1") if key.startswith("told.") else PYTHON.sub("x", re.sub(r"\{[^{}]*\}", "x", text))
        wrong += [(key, s) for s in slips(shown)]
    assert wrong == []


def running(markdown):
    """The prose of a text without headings and tables, emphasis and links by their text."""
    return prose(re.sub(r"^(?:#+ .*|\|.*)$", "", markdown, flags=re.M))


def first_uses():
    """Where each term that has to be explained is used first: (term, page, cell, what follows it). A term within a longer one is not used."""
    longest = sorted([*(t["zh"] for t in TERMS), "低秩"], key=len, reverse=True)
    wanted = {t["zh"]: t for t in TERMS if t.get("first", True)}
    for page in (p for p in ORDER if p != "glossary"):
        for cell, text in contents(page, "zh"):
            words = running(text)
            for match in re.finditer("|".join(map(re.escape, longest)), words):
                if term := wanted.pop(match[0], None):
                    yield term, page, cell, words[match.end():match.end() + 60]


def explained(term, after):
    """Whether the English of a term follows it in brackets."""
    return after.startswith("（") and any(after[1:].lower().startswith(n.lower()) for n in (term["en"], term.get("short", term["en"])))


@pytest.mark.parametrize("term, page, cell, after", [pytest.param(*f, id=f[0]["zh"]) for f in first_uses()])
def test_a_term_is_explained_where_it_is_used_first(term, page, cell, after):
    """In the order of the pages: 梯度累积（gradient accumulation）."""
    assert explained(term, after), f"zh/{page}, {cell}: {term['zh']} lacks （{term.get('short', term['en'])}）: …{after!r}"


# -- the tests find what they are for ------------------------------------------------------------------

def changed(page, cell, change):
    """A notebook with one cell changed."""
    found = copy.deepcopy(notebook(page, "zh"))
    change(found, next(i for i, c in enumerate(found.cells) if c.id == cell))
    return found


def edit(pattern, new, output=None):
    """A change of a cell's source, or of one kind of its first output."""
    def change(book, i):
        place, key = (book.cells[i], "source") if output is None else (book.cells[i].outputs[0].data, output)
        place[key], count = re.subn(pattern, new, place[key], count=1)
        assert count, f"nothing to change: {pattern}"
    return change


MEMORY = "chapters/01-memory-wall"
CHANGES = {
    "a heading's level": (MEMORY, "ledger", edit("^## ", "### ")), "an item": (MEMORY, "ledger", edit(r"(?m)^- .*\n", "")), "a cell is gone": (MEMORY, "ledger", lambda b, i: b.cells.pop(i)),
    "two cells trade places": (MEMORY, "ledger", lambda b, i: b.cells.insert(i + 1, b.cells.pop(i))), "a tag": (MEMORY, "recipes", lambda b, i: b.cells[i].metadata.update(tags=["other"])),
    "code": (MEMORY, "recipes", edit(r"\(", "((")), "the language": (MEMORY, "setup", edit('"zh"', '"en"')), "an output is gone": (MEMORY, "recipes", lambda b, i: b.cells[i].outputs.clear()),
    "a number in a table": (MEMORY, "recipes", edit("8", "9", "text/markdown")), "an equation": (MEMORY, "training-state", edit("N", "M", "text/latex")),
    "a figure": (MEMORY, "figure-state", edit("<path", "<line", "image/svg+xml")), "a calculator": (MEMORY, "calculator-fit", edit('"formulas": ', '"formulae": ', "text/html")),
    "an exercise": (MEMORY, "exercise-recipe", edit('"exercise": "recipe"', '"exercise": "other"', "text/html")),
    "what an exercise draws": (MEMORY, "exercise-recipe", edit(r'("params": \[)\d', r"\g<1>77", "text/html")), "it is English": (MEMORY, "ledger", edit("(?s).*", notebook(MEMORY).cells[1].source)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_in_one_edition_is_found(what):
    """Each of these, in the Chinese notebook only, is a difference that was not there."""
    page, cell, change = CHANGES[what]
    english = notebook(page)
    assert set(differences(english, changed(page, cell, change))) - set(differences(english, notebook(page, "zh")))


@pytest.mark.parametrize("english, chinese, what", [
    ("[a](b.ipynb#c)", "[甲](b.ipynb#d)", "links"), ("It is $x^2$.", "它是 $x^3$。", "mathematics"), ("Call `f(x)`.", "调用 `f(y)`。", "code"), ("{ref}`a <b>`", "{doc}`甲 <b>`", "roles"),
    ("<details><summary>A</summary>", "<summary>甲</summary>", "folded parts"), ("```python\nx\n```", "```\n甲\n```", "fences"), ("Words.", "Words.", "it is not translated")])
def test_a_change_of_a_text_is_found(english, chinese, what):
    """A link, mathematics, code, a folded part, a fence."""
    assert any(d.startswith(what) for d in differences_in_text(english, chinese)) and not [d for d in differences_in_text(english, f"{english}\n甲")]


@pytest.mark.parametrize("cell, same", [
    ("Llama 2 7B", True), ("H100 SXM", True), ("112 GB (104.3 GiB)", True), ("4.2 × 10²² FLOP", True), ("`params`", True), (r"$N_\text{mm}$", True), ("[LLaMA-Factory table](https://x.org)", True), ("RTX 4090, 24 GB", True),
    ("RTX A6000, 48 GB", True), ("16", True), ("eager，fp32 softmax", True), ("training state", False), ("cards", False), ("24 days", False), ("Llama 2 7B, all layers", False), ("no", False)])
def test_a_name_is_told_from_words(cell, same):
    """A row's name and a number may stay as they are; words may not."""
    assert is_name(cell) == same


@pytest.mark.parametrize("text, slip", [
    ("显存,很多", "half-width"), ("用LoRA训练", "no space"), ("显存 ，很多", "a space beside"), ("显 存", "a space between Chinese"), ("占 50 %", "a space before %"), ('他说"好"', "straight quotes"),
    ("**梯度累积：**然后", "asterisks"), ("梯度累加", "not this book's word")])
def test_a_slip_is_found(text, slip):
    """One of each kind, and none in a text that is right."""
    assert any(slip in s for s in slips(text))
    assert not list(slips("用 LoRA 训练时，显存占 50%：`f(x, y)` 与 $x,y$（见“[前文](a.md)”）。"))


@pytest.mark.parametrize("en, short, after, right", [
    ("gradient accumulation", None, "（gradient accumulation）", True), ("gradient accumulation", None, "（Gradient accumulation，见下）", True), ("model FLOPs utilisation", "MFU", "（MFU）", True),
    ("gradient accumulation", None, "，然后", False), ("gradient accumulation", None, "(gradient accumulation)", False), ("node", None, "（见下）", False)])
def test_an_explanation_is_told_from_none(en, short, after, right):
    """In full-width brackets, by its whole name or its short one."""
    assert explained({"en": en} | ({"short": short} if short else {}), after) == right


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*(f"{name}: {s}" for s in slips(Path(name).read_text("utf-8"))), sep="\n")
