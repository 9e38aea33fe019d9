"""The static book: no stale numbers, no needless bytes, mathematics without JavaScript, figures."""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onegpu import book, figures, lean
from onegpu.calculator import HERE
from store_outputs import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import book as builder  # noqa: E402


def test_the_fingerprint_covers_every_file(tmp_path, monkeypatch):
    """A change of any file in lib/ re-executes the notebooks."""
    copy = tmp_path / "onegpu"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(book, "HERE", copy)
    first = book.fingerprint()
    for path in sorted(p for p in copy.rglob("*") if p.is_file()):
        old = path.read_bytes()
        path.write_bytes(old + b"\n")
        assert book.fingerprint() != first, path
        path.write_bytes(old)
    assert book.fingerprint() == first


def test_a_change_in_lib_changes_the_page(tmp_path):
    """With plain `jupyter-book build .`, twice in one folder: no stale cache."""
    for name in ("_config.yml", "references.bib", "symbols.ipynb", "lib"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: symbols\n")

    def build():
        jupyter_book = shutil.which("jupyter-book", path=str(Path(sys.executable).parent)) or "jupyter-book"
        clean = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}  # the copy's library, not this one
        done = subprocess.run([jupyter_book, "build", "."], cwd=tmp_path, capture_output=True, text=True, env=clean)
        assert done.returncode == 0, done.stdout + done.stderr
        return (tmp_path / "_build" / "html" / "symbols.html").read_text("utf-8")

    assert "training tokens" in build()
    labels = tmp_path / "lib" / "onegpu" / "labels" / "en.toml"
    labels.write_text(labels.read_text("utf-8").replace('tokens = "training tokens"', 'tokens = "tokens to learn from"'), "utf-8")
    page = build()
    assert "tokens to learn from" in page and "training tokens" not in page


def test_what_is_built_is_not_built_again(tmp_path, monkeypatch):
    """Unless a file, a package, or what the environment asks for is another."""
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    (tmp_path / "chapters").mkdir()
    page = tmp_path / "chapters" / "a.md"
    page.write_text("one")
    monkeypatch.setattr(builder, "fill_caches", lambda folder: built.append(folder))
    monkeypatch.setattr(builder, "build", lambda folder, edition: (output := builder.output(folder, edition) / "_build" / "html").mkdir(parents=True, exist_ok=True) or (output / "_sources").mkdir(exist_ok=True) or "")
    built = []

    def again():
        before = len(built)
        builder.main(tmp_path)
        return len(built) > before

    assert [again(), again()] == [True, False]
    page.write_text("two")
    assert [again(), again()] == [True, False]
    monkeypatch.setenv("ONEGPU_ADDRESS", "https://example.org/")
    assert [again(), again()] == [True, False]
    monkeypatch.setattr(builder, "distributions", list)
    assert [again(), again()] == [True, False]
    shutil.rmtree(tmp_path / "_build" / "html")
    assert again()


def test_a_failed_build_is_tried_again(tmp_path, monkeypatch):
    """It leaves no word of success, not even that of the build before it."""
    monkeypatch.setattr(builder, "ROOT", tmp_path)
    monkeypatch.setattr(builder, "fill_caches", lambda folder: None)
    monkeypatch.setattr(builder, "build", lambda folder, edition: "it broke")
    for _ in range(2):
        with pytest.raises(SystemExit, match="it broke"):
            builder.main(tmp_path)


def test_mathml():
    """Equations are MathML when the page is built."""
    assert book.mathml(r"6 \, N \, D", False).startswith('<span class="katex"><math')
    with pytest.raises(Exception, match="KaTeX"):
        book.mathml(r"\wombat", False)


@pytest.mark.parametrize("figure", [figures.state_against_card, figures.memory_over_time, figures.finish_years], ids=lambda f: f.__name__)
def test_figures(figure):
    """SVG with text, a title, alt text, the page's colours, and the same each time."""
    first, second = figure(), figure()
    assert first.svg == second.svg and first.alt and f'aria-label="{first.alt}"' in first.svg
    assert "<text" in first.svg and "currentColor" in first.svg and figures.INK not in first.svg and "http-equiv" not in first.svg
    ids = re.findall(r'\bid="([^"]+)"', first.svg)
    assert len(ids) == len(set(ids)) and all(f'id="{r}"' in first.svg for r in re.findall(r"url\(#([^)]+)\)", first.svg))


def test_table():
    """Markdown and plain text of the same cells."""
    table = figures.Table(["a", "b"], [(1, "x|y")])
    assert table._repr_markdown_().splitlines()[-1] == "| 1 | x\\|y |" and repr(table) == "a | b\n1 | x|y"


def test_signs_in_tables():
    """A column of signed numbers stands at the right; a minus is no hyphen, and zero has no sign."""
    lines = figures.Table(["a", "b", "c"], [("-x", "-1.5%", "-1"), ("y", "+0.0%", "or -2")])._repr_markdown_().splitlines()
    assert lines[1:] == ["| --- | ---: | --- |", "| -x | −1.5 % | −1 |", "| y | 0.0 % | or -2 |"]


@pytest.mark.parametrize("css, kept", [
    (".used,.not{color:red}", ".used{color:red}"),
    ("@media print{.not{color:red}}.used>a:not(.not):hover{color:red}", ".used>a:not(.not):hover{color:red}"),
    ("@media print{.not{color:red}.used{color:red}}", "@media print{.used{color:red}}"),
    ('.used:is(.not,a)::after{content:"}{;"}', '.used:is(.not,a)::after{content:"}{;"}'),
    ('html[data-theme="dark"] .used{background:url(data:image/png;base64,aa)}', 'html[data-theme="dark"] .used{background:url(data:image/png;base64,aa)}'),
    ("#not a{color:red}table a{color:red}*{margin:0}", "*{margin:0}"),
])
def test_purge(css, kept):
    """Rules go whose tags, classes or ids no page has; what stands in strings and in :not() does not count."""
    assert lean.purge(css, lean.names_in('<html><a class="used">table</a>', "")) == kept


def test_a_script_keeps_what_it_names():
    """A class that a script sets is as good as one in a page."""
    assert lean.purge(".shown{color:red}", lean.names_in("<a>", 'e.classList.add("is shown")')) == ".shown{color:red}"


def test_variables_and_fonts_that_nothing_names():
    """They go, and what only they named goes too."""
    css = ":root{--a:1px;--b:var(--c);--c:2px}@font-face{font-family:X;src:url(x)}@keyframes k{from{top:0}}p{margin:var(--a);animation:l 1s}@keyframes l{from{top:0}}"
    assert lean.unnamed(css, "") == ":root{--a:1px;}p{margin:var(--a);animation:l 1s}@keyframes l{from{top:0}}"


def test_characters_of_the_mathematics():
    """A root draws a sign that stands in no text."""
    assert lean.mathematics("<math><mi>x</mi></math>") == {*"0123456789", "x", "\U0001d465"}
    assert "√" in lean.mathematics(book.mathml(r"\sqrt{x}", False))


def test_a_changed_theme_fails_the_build(tmp_path):
    """A theme that links no stylesheets, or needs a component that page.js does not have, is noticed."""
    (tmp_path / "page.html").write_text('<link rel="stylesheet" href="_static/one.css" />')
    with pytest.raises(lean.ThemeChanged, match="one.css"):
        lean.trim(tmp_path, ())
    with pytest.raises(lean.ThemeChanged, match="modal"):
        lean.lighten('<a data-bs-toggle="modal"><script src="_static/scripts/bootstrap.js"></script>', tmp_path)


def test_our_own_scripts_and_styles_are_small():
    """Within the budget of 20 KB, compressed; the script made from formulas and catalogues is counted with the page."""
    own = [lean.compact((HERE / name).read_text("utf-8")) for name in ("calculator.js", "page.js")] + [lean.read(HERE / name, HERE) for name in book.STYLES]
    assert sum(len(gzip.compress(text.encode())) for text in own) <= 20_000
