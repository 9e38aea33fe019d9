"""Finding and sharing: the index, the glossary, descriptions, addresses; on a small book of its own, in two languages."""

import json
import re
from html import unescape

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from myst_parser.docutils_ import Parser
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from onegpu import __version__, pages
from onegpu.book import LongCells
from onegpu.compute import training_flops, training_time
from onegpu.memory import activations
from onegpu.quantities import d_model, kernel_efficiency, matmul_params
from store_outputs import ROOT

BOOK = {
    "index.md": "# The book\n\nAn MFU is a share. The MFU of `MFU` is [MFU](glossary.md), **LoRA** is not.\n\n## About LoRA\n\nTokens, and more LoRA-like tokens.\n",
    "one.md": "# One\n\nAfter this section you can\n\n- find an MFU;\n- say what it is & why.\n\nMore.\n",
    "glossary.md": "# Words\n\n```{glossary}\nMFU\nmodel FLOPs utilisation\n  The share of <peak> & more.\n\nLoRA\n  Two thin matrices.\n\ntoken\n  A piece of text.\n```\n",
    "symbols.md": "# Symbols\n\nThe table.\n\n| symbol | name |\n|---|---|\n| $h$ | `d_model` |\n| $x$ | `something` |\n",
    "zh.md": "# 中文\n\n用LoRA训练时，显存里的激活值不变，激活值很多。\n",
    "words.md": "# 词\n\n```{glossary}\n激活值\n  前向算出、反向要用的张量。\n```\n"}


def build(folder, monkeypatch, changed=None, **addresses):
    """A small book with some pages changed, built: its output folder."""
    for name in ("ONEGPU_ADDRESS", "ONEGPU_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in addresses.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, text in (BOOK | (changed or {})).items():
        (folder / name).write_text(text, "utf-8")
    (folder / "index.md").write_text(BOOK["index.md"] + "\n```{toctree}\none\nglossary\nsymbols\nzh\nwords\n```\n", "utf-8")
    settings = {"extensions": ["myst_nb", "sphinx_book_theme", "onegpu.pages"], "html_theme": "sphinx_book_theme", "project": "Book", "html_title": "Book", "nb_execution_mode": "off", "language": "en"}
    with docutils_namespace():
        Sphinx(folder, None, folder / "out", folder / "trees", "html", settings, status=None, warningiserror=True).build()
    return folder / "out"


def meta(text):
    """The descriptions of a page by their names."""
    return {n: unescape(v) for n, v in re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)" />', text)}


def terms(text):
    """The words of the glossary that a page links, with what is shown."""
    return [(word, unescape(shown)) for word, shown in re.findall(r'<span class="onegpu-term"><a [^>]*>([^<]*)</a><span class="onegpu-definition"[^>]*>([^<]*)</span>', text)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The small book without any address."""
    with pytest.MonkeyPatch.context() as patch:
        yield build(tmp_path_factory.mktemp("plain"), patch)


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """The small book with an address, and a repository."""
    with pytest.MonkeyPatch.context() as patch:
        yield build(tmp_path_factory.mktemp("public"), patch, ONEGPU_ADDRESS="https://example.org/book", ONEGPU_REPOSITORY="https://github.com/some/book.git")


def test_entries_of_the_index():
    """A formula and a quantity are found as one types them."""
    assert pages.formula_entries(training_flops) == ["training_flops", training_flops.result.label, "6·N·D", "6ND"]
    assert "L·s·b·h·c_kept" in pages.formula_entries(activations)
    assert pages.formula_entries(training_time) == ["training_time", training_time.result.label]  # a fraction is not typed
    assert pages.quantity_entries(kernel_efficiency) == ["kernel_efficiency", kernel_efficiency.label, "eta_kernel"]
    assert "N_mm" in pages.quantity_entries(matmul_params)


def test_the_search_knows_a_symbol(plain):
    """By name, symbol and label, each leading to its row."""
    known = json.loads((plain / "searchindex.js").read_text("utf-8").removeprefix("Search.setIndex(").rstrip(")\n;"))
    page = known["docnames"].index("symbols")
    assert {e[4]: e[3] for e in known["objects"][""] if e[0] == page} == {"d_model": "-", "h": "symbol-d_model"}  # "-": as the name says
    assert [page, "symbol-d_model", False] in known["indexentries"][d_model.label] and "something" not in known["indexentries"]
    assert ["onegpu", "symbol", "symbol"] in known["objnames"].values()
    assert '<tr class="row-even" id="symbol-d_model">' in (plain / "symbols.html").read_text("utf-8")


@pytest.mark.parametrize("name, text, found", [
    ("token", "Tokens and tokens", "Tokens"), ("token", "tokenizer or my_token", None), ("MFU", "mfu", None), ("LoRA", "QLoRA", None), ("LoRA", "用LoRA训练", "LoRA"), ("激活值", "把激活值存下", "激活值"),
    ("FLOP", "GFLOP", None), ("tensor parallel", "a tensor-parallel cut", "tensor-parallel"), ("shard", "sharded", None), ("micro-batch", "Micro-batches", None), ("ring", "a restoring ring", "ring")])
def test_a_word_of_the_glossary(name, text, found):
    """It is found as a whole word, in Chinese without spaces."""
    match = re.search(pages.pattern(name), text)
    assert (match and match[0]) == found


def test_first_uses(plain):
    """Only the first use in prose is linked: no heading, no code, no link, nothing in the glossary itself."""
    assert terms((plain / "index.html").read_text("utf-8")) == [("MFU", "The share of <peak> & more."), ("LoRA", "Two thin matrices."), ("Tokens", "A piece of text.")]
    assert terms((plain / "one.html").read_text("utf-8")) == [("MFU", "The share of <peak> & more.")]
    assert terms((plain / "zh.html").read_text("utf-8")) == [("LoRA", "Two thin matrices."), ("激活值", "前向算出、反向要用的张量。")]
    assert not terms((plain / "glossary.html").read_text("utf-8"))
    page = (plain / "index.html").read_text("utf-8")
    for name in re.findall(r'class="reference internal" href="glossary.html#[^"]*" aria-describedby="([^"]+)"', page):
        assert page.count(f'id="{name}"') == 1


def test_a_changed_definition_reaches_every_page(tmp_path, monkeypatch):
    """Also a page that has not changed itself."""
    build(tmp_path, monkeypatch)
    out = build(tmp_path, monkeypatch, changed={"glossary.md": BOOK["glossary.md"].replace("Two thin", "Two very thin")})
    assert ("LoRA", "Two very thin matrices.") in terms((out / "zh.html").read_text("utf-8"))


def test_descriptions(plain):
    """Each page says what it is about; goals are joined to the words before them."""
    found = {p.stem: meta(p.read_text("utf-8")) for p in plain.glob("*.html")}
    assert found["one"]["description"] == found["one"]["og:description"] == 'After this section you can find an MFU; say what it is & why.'
    assert found["one"]["og:title"] == "One" and found["one"]["og:site_name"] == "Book"
    described = [m["description"] for m in found.values()]
    assert all(described) and len(set(described)) == len(described)


def test_without_an_address(plain):
    """No canonical link, no list of pages, and no button that leads nowhere."""
    page = (plain / "one.html").read_text("utf-8")
    assert "canonical" not in page and "og:url" not in page and not (plain / "sitemap.xml").exists()
    assert "source-edit-button" not in page and "colab" not in page
    assert f"Version {__version__}, 2023-11-14." in page
    assert re.findall(r'<a class="(left-prev|right-next)"\s+href="(\w+.html)"', page) == [("left-prev", "index.html"), ("right-next", "glossary.html")]


def test_with_an_address(public):
    """Canonical links, a list of the pages, "suggest an edit"."""
    page = (public / "one.html").read_text("utf-8")
    assert '<link rel="canonical" href="https://example.org/book/one.html" />' in page and meta(page)["og:url"] == "https://example.org/book/one.html"
    assert re.findall("<loc>(.*?)</loc>", (public / "sitemap.xml").read_text("utf-8")) == [f"https://example.org/book/{p}.html" for p in ("glossary", "index", "one", "symbols", "words", "zh")]
    assert "https://github.com/some/book/edit/main/one.md" in page


def test_the_missing_page(plain, public):
    """At any depth it finds its style and its links; its own fragments stay its own; no search engine lists it."""
    for folder, base in ((plain, '<base href="/" />'), (public, '<base href="/book/" />')):
        page = (folder / "404.html").read_text("utf-8")
        assert page.index(base) < page.index("stylesheet") and 'href="#' not in page and 'name="robots" content="noindex"' in page
        assert "canonical" not in page and 'href="index.html"' in page


def test_buttons():
    """Colab opens notebooks from GitHub only; without a repository there is no button."""
    assert pages.source_options("", "") == {"use_edit_page_button": False} and pages.colab("", "", "index") == ""
    assert pages.source_options("https://gitlab.com/some/book", "zh")["use_edit_page_button"] and pages.source_options("https://gitlab.com/some/book", "zh")["path_to_docs"] == "zh"
    assert pages.colab("https://gitlab.com/some/book", "", "index") == "" and "/github/some/book/blob/" in pages.colab("https://github.com/some/book", "", "index")


def test_the_date(tmp_path, monkeypatch):
    """The day of SOURCE_DATE_EPOCH, else of the last commit, else none."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert pages.build_date(tmp_path) == "1970-01-01"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert pages.build_date(tmp_path) == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d|", pages.build_date(ROOT))


@pytest.mark.parametrize("edition", ["", "zh"])
def test_every_word_of_the_glossary_is_used(edition):
    """The glossary explains what the book says."""
    text = (ROOT / edition / "glossary.md").read_text("utf-8").partition(":sorted:")[2]
    entries = [names.split("\n") for names in re.findall(r"^((?:[^\s`].*\n)+)  \S", text, re.M)]
    prose = "\n".join(p.read_text("utf-8") for p in [ROOT / edition / "index.ipynb", *(ROOT / edition).glob("chapters/*.ipynb")])
    assert len(entries) > 40 and not [names for names in entries if not any(re.search(pages.pattern(n), prose) for n in names if n)]


def test_long_cells():
    """A cell of many words has a width of its own, in Chinese at half as many characters; a name or a symbol does not wrap anyway."""
    rows = "\n".join(f"| {cell} |" for cell in ("a few words", "x" * 25, "`" + "x" * 25 + "`", "字" * 13))
    document = publish_doctree(f"| a |\n|---|\n{rows}\n", parser=Parser())
    LongCells(document, None).apply()
    assert [bool(cell["classes"]) for cell in document.findall(nodes.entry)] == [False, False, True, False, True]
