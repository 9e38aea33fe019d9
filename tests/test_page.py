"""The built pages in a headless browser, from ``file://``, with the network cut.

Both editions are seen. Their scripts and templates are the same, so what is long is divided among them: the English pages
are operated by keyboard, the Chinese ones by mouse. A test of a page speaks the page's language.

``ONEGPU_SITE`` names a site that is built already; ``ONEGPU_REQUIRE_BROWSER`` makes a missing browser a failure.
"""

import functools
import gzip
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import threading
import unicodedata
from collections import Counter, namedtuple
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
import yaml
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

from exercises import pages as exercise_pages
from onegpu import labels
from onegpu.calculator import modules, row, slider
from onegpu.compute import training_time
from onegpu.configs import read_config
from onegpu.formula import REGISTRY, Largest, takes
from onegpu.planner import micro_batches, replicas

ROOT = Path(__file__).parents[1]
FORMULAS = {f.name: f for m in modules() for f in m._section.formulas} | {f.name: f for m in modules() for f in vars(m).values() if isinstance(f, Largest)}
CALCULATOR, CONTROL = ".onegpu-calculator", ".onegpu :is(input, select)[data-name]"
GENERATED = {"404.html", "genindex.html", "search.html"}
LOCAL = ("file:", "data:", "blob:")
PAGE_BYTES = 135_000  # the budget is 200 KB; this is what the pages keep to
NO_BROWSER = "NO BROWSER: the page tests did not run; install chromium"

#: Where a control does nothing at the start: other controls to set first, by the control's name, by name and value.
SETTINGS = {"measured_step_time": [{"reading": "step"}], "network": [{"gpus": "64", "seq_len": "512", "global_batch": "32768", "gpu_tokens_per_second": "2000"}]}


# -- the site and the browser ----------------------------------------------------------------------

def book_pages(site):
    """The pages of the book in a built site."""
    found = (p.relative_to(site) for p in Path(site).rglob("*.html"))
    return sorted(p.as_posix() for p in found if not any(part[0] == "_" for part in p.parts) and p.name not in GENERATED)


def listed_pages(entry):
    """The pages that the table of contents will give."""
    if isinstance(entry, list):
        return [page for e in entry for page in listed_pages(e)]
    if not isinstance(entry, dict):
        return []
    own = [Path(entry[key]).with_suffix(".html").as_posix() for key in ("root", "file") if key in entry]
    return sorted(own + [page for e in entry.values() for page in listed_pages(e)])


#: The pages of the English edition, of the Chinese one, and of both.
PAGES = listed_pages(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8")))
CHINESE = [f"zh/{path}" for path in PAGES]
BOTH = [*PAGES, *CHINESE]
each_page = pytest.mark.parametrize("path", BOTH)
each_english_page = pytest.mark.parametrize("path", PAGES)


def language_of(path):
    """The language of a page."""
    return "zh" if path.startswith("zh/") else "en"


@pytest.fixture(autouse=True)
def language(request):
    """The library speaks the language of the page that a test is for."""
    named = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    labels.set_language(language_of(named.get("path", "")))
    yield
    labels.set_language("en")


@pytest.fixture(scope="module")  # closed before notebooks run in the same process: its event loop would disturb theirs
def browser():
    """One headless Chromium."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        (pytest.fail if os.environ.get("ONEGPU_REQUIRE_BROWSER") else pytest.skip)(NO_BROWSER)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def noise():
    """What the pages of a test should not have done: errors, warnings, requests to the outside."""
    return []


@pytest.fixture
def loaded():
    """The files that the pages of a test loaded."""
    return []


#: Calculators and exercises become live one after another.
LIVE = """() => [...document.querySelectorAll(".onegpu-calculator")].every(e => e.onegpu) && [...document.querySelectorAll(".onegpu-exercise")].every(e => e.querySelector("button"))"""


def open_page(browser, address, noise, loaded, **options):
    """A page without a network, in a context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"} | options)  # each smooth scroll takes a second
    context.set_offline(True)
    context.set_default_timeout(5000)
    context.on("request", lambda r: None if r.url.startswith(LOCAL) else noise.append(f"request: {r.url}"))
    context.on("request", lambda r: loaded.append(unquote(urlsplit(r.url).path)) if r.url.startswith("file:") else None)
    context.on("console", lambda m: noise.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
    context.on("weberror", lambda e: noise.append(f"error: {e.error}"))
    page = context.new_page()
    page.on("websocket", lambda s: noise.append(f"socket: {s.url}"))
    if options.get("java_script_enabled", True):
        page.goto, page.reload = (functools.partial(until_live, page, move) for move in (page.goto, page.reload))
    page.goto(address)
    return page


def until_live(page, move, *address):
    """Load a page, and wait until all of it works."""
    move(*address)
    page.wait_for_function(LIVE)


@pytest.fixture
def visit(browser, site, noise, loaded):
    """Open a page of the site, in a context of its own."""
    contexts = []

    def visit(path, **options):
        page = open_page(browser, (site / path).as_uri(), noise, loaded, **options)
        contexts.append(page.context)
        return page

    yield visit
    for context in contexts:
        context.close()


#: A page that several tests look at in turn and do not operate: each asks for the window and the media that it needs. With what it did at first.
Seen = namedtuple("Seen", "page noise loaded")
in_turn = pytest.mark.parametrize("path", BOTH, scope="module")


@pytest.fixture(scope="module")
def seen(browser, site, path):
    """One page, opened once for all tests that are marked ``in_turn``."""
    noise, loaded = [], []
    page = open_page(browser, (site / path).as_uri(), noise, loaded)
    yield Seen(page, noise, loaded)
    page.context.close()


@pytest.fixture
def page(seen):
    """The page that is seen in turn, as it was opened."""
    seen.page.set_viewport_size({"width": 1200, "height": 900})
    seen.page.emulate_media(media="screen", color_scheme="light", forced_colors="none", contrast="no-preference", reduced_motion="reduce")
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = d.dataset.opened ??= d.open ? 'open' : ''; })")
    return seen.page


#: Pages whose calculators have dozens of folded inputs; random steps still reach those.
LONG = tuple(f"{place}chapters/{name}.html" for place in ("", "zh/") for name in ("04-walls-compound", "05-decide", "07-one-is-enough"))


# -- the pages as they are written -----------------------------------------------------------------

class Written(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Collect."""
        for key, value in attributes:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key == "id" and value or key == "name" and tag == "a":
                self.ids.append(value)


@functools.cache
def written(file):
    """A page's links and ids, parsed once."""
    return Written(file.read_text("utf-8"))


def dead(site, path, link):
    """What is wrong with an internal link, if anything."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = ((site / path).parent / unquote(parts.path)).resolve() if parts.path else site / path
    if not target.is_file():
        return f"{link}: no such file"
    fragment = unquote(parts.fragment)
    return f"{link}: no such id" if fragment and target.suffix == ".html" and fragment not in written(target).ids else None


@functools.cache
def specs(file):
    """The specifications of a page's calculators."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', file.read_text("utf-8"), re.S)
    return [spec for spec in map(json.loads, found) if "outputs" in spec]


def with_input(site, *names):
    """The first calculator that has one of these inputs: page, position, name."""
    return next((path, i, n) for n in names for path in PAGES for i, spec in enumerate(specs(site / path)) if n in spec["inputs"])


def test_contents(site):
    """Every page of the table of contents is built, and no other."""
    assert book_pages(site) == sorted(BOTH)
    assert any(specs(site / path) for path in PAGES)


@each_page
def test_links(site, path):
    """Every internal link leads to a file, and to an id if it names one."""
    assert [d for link in written(site / path).links if (d := dead(site, path, link))] == []


# -- the pages in the browser ----------------------------------------------------------------------

@in_turn
def test_quiet(seen, path):
    """A page logs nothing wrong and asks the outside for nothing."""
    seen.page.wait_for_timeout(300)
    assert seen.noise == []


@functools.cache
def compressed(name):
    """The bytes of a file as a server sends them."""
    return len(gzip.compress(Path(name).read_bytes()))


@in_turn
def test_weight(seen, path):
    """A first visit transfers no more than the budget, as a server compresses it."""
    seen.page.evaluate("document.fonts.ready.then(() => 0)")
    sizes = {name: compressed(name) for name in seen.loaded}
    assert any(name.endswith(".woff2") for name in sizes) and sum(sizes.values()) <= PAGE_BYTES, sizes


def test_menu_and_contents(visit):
    """The menu of downloads opens, closes and goes by keyboard; the contents follow the reader."""
    page = visit("chapters/01-memory-wall.html")
    button, menu = page.locator(".dropdown-toggle"), page.locator(".dropdown-menu")
    button.press("Enter")
    assert menu.is_visible() and button.get_attribute("aria-expanded") == "true"
    button.press("ArrowDown")
    assert page.evaluate("document.activeElement.classList.contains('dropdown-item')")
    page.keyboard.press("Escape")
    assert not menu.is_visible() and page.evaluate("document.activeElement.classList.contains('dropdown-toggle')")
    button.click()
    page.locator(".bd-article h1").click()
    assert not menu.is_visible()
    assert page.locator(".bd-toc-nav a.active").count() == 0
    link = page.locator(".bd-toc-nav a").nth(3)
    page.evaluate("id => document.getElementById(id).scrollIntoView()", link.get_attribute("href")[1:])
    page.wait_for_function("link => link.classList.contains('active')", arg=link.element_handle())


@in_turn
def test_narrow(page, path):
    """No page scrolls sideways on a phone, folded or unfolded."""
    for change in (None, unfold):
        if change:
            change(page)
        for width, scheme in ((360, "light"), (320, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 740})
            wear(page, scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme, change)


# -- for every reader, on every page ---------------------------------------------------------------

#: With the two that are generated; the third finds its styles on a server only.
every_page = pytest.mark.parametrize("path", [*BOTH, *(f"{place}{name}" for place in ("", "zh/") for name in sorted(GENERATED - {"404.html"}))], scope="module")

#: What axe leaves out unless it is asked.
ASKED = {"rules": {"label-content-name-mismatch": {"enabled": True}, "target-size": {"enabled": True}}, "resultTypes": ["violations"], "preload": False}


def violations(page, context):
    """What axe finds wrong: rule, place, reason."""
    found = page.evaluate("([context, options]) => axe.run(context, options)", [context, ASKED])["violations"]
    return [(v["id"], node["target"], node["failureSummary"]) for v in found for node in v["nodes"]]


def wear(page, scheme):
    """Show a page in light or dark."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)


@every_page
def test_axe(page, path):
    """Axe finds nothing wrong, wide or narrow, light or dark, all unfolded: an English page wide and a Chinese one narrow, its article, which is long, in one scheme."""
    unfold(page)
    page.evaluate(AXE_SCRIPT)
    rest = {"exclude": [[".bd-article"]]}
    views = {"en": [(1280, "light", "html"), (1280, "dark", rest)], "zh": [(360, "dark", "html"), (360, "light", rest)]}
    for width, scheme, context in views[language_of(path)]:
        page.set_viewport_size({"width": width, "height": 800})
        wear(page, scheme)
        page.wait_for_timeout(50)  # boxes that scroll become stops after a frame
        assert violations(page, context) == [], (width, scheme)


#: Note where the keyboard comes: what it is, whether it can be seen, and whether one sees that it is there; null when it leaves the page.
WATCH = """() => { window.seen = [];
    addEventListener("focusout", event => { if (!event.relatedTarget) seen.push([null, true, true]); });
    addEventListener("focusin", ({ target: e }) => { const s = getComputedStyle(e), b = e.getBoundingClientRect();
        seen.push([e.outerHTML.slice(0, 120), b.width > 0 && b.right > 0 && b.left < innerWidth && s.visibility === "visible", s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2]); }); }"""


@pytest.mark.parametrize("path, width", [*((path, 1280) for path in PAGES), *((path, 360) for path in CHINESE)])
def test_keyboard(visit, path, width):
    """The keyboard reaches every control and every box that scrolls, in sight and with a visible focus; nothing holds it."""
    page = visit(path, viewport={"width": width, "height": 800})
    unfold(page)
    page.wait_for_timeout(50)
    boxes = page.evaluate("""() => [...document.querySelectorAll(".bd-article *")].filter(e => e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(e).overflowX)
        && e.checkVisibility() && !e.matches("input, textarea") && e.tabIndex < 0 && !e.querySelector("a, button, input, [tabindex]")).map(e => e.outerHTML.slice(0, 120))""")
    assert boxes == []
    page.evaluate(WATCH)
    seen = []
    for _ in range(100):
        for _ in range(20):
            page.keyboard.press("Tab")
        seen = page.evaluate("seen")
        if None in (names := [element for element, _, _ in seen]) or names[0] in names[1:]:
            break
    else:
        pytest.fail(f"the keyboard stays at {seen[-1]}")
    end = next(i for i, name in enumerate(names) if name is None or name in names[:1] and i)
    assert [s for s in seen[:end] if not (s[1] and s[2])] == []
    wanted = page.locator(".bd-article :is(input, select, textarea, button, summary, a[href]):enabled").evaluate_all("all => all.filter(e => e.checkVisibility()).length")
    assert end >= wanted


def on_paper(page):
    """The text of each calculator as it is printed: (label, value) by row."""
    page.emulate_media(media="print")
    page.wait_for_timeout(50)
    return page.locator(".onegpu").evaluate_all("""all => all.map(e => [...e.querySelectorAll(".onegpu-grid tr")].filter(r => r.checkVisibility()).map(r => [...r.cells].map(c => c.innerText.trim())))""")


#: What is on the screen in a calculator: each control's label, value and whether it is folded, and the results.
ON_SCREEN = """all => all.map(e => [[...e.querySelectorAll(".onegpu-row")].map(r => { const c = r.querySelector("select, [type=text]");
    return [r.querySelector("label").textContent, c.selectedOptions ? c.selectedOptions[0].text : c.value, !!r.closest("details"), c.dataset.name]; }),
    [...e.querySelectorAll("output")].map(o => [o.closest("tr").cells[0].textContent, o.textContent])])"""


@pytest.mark.parametrize("path, scheme", [*((path, "light") for path in PAGES), *((path, "dark") for path in CHINESE)])
def test_print(visit, noise, path, scheme):
    """On paper a calculator is its present inputs and results; nothing is there to be clicked; black on white; answers are unfolded, code that is folded is left out."""
    page = visit(path, viewport={"width": 700, "height": 900}, color_scheme=scheme)
    before = page.locator(".onegpu").evaluate_all(ON_SCREEN)
    for root in page.locator(CALCULATOR).all():
        folded = root.locator(".onegpu-controls > details:not(.onegpu-own) [type=text]:enabled")
        if folded.count():
            folded.first.evaluate("(e, text) => { e.value = text; e.dispatchEvent(new Event('change')); }", another(folded.first, folded.first.get_attribute("data-name"), 0.4))
        for control in root.locator(".onegpu-controls > .onegpu-row [type=text]:enabled").all()[:1]:
            enter(control, another(control, control.get_attribute("data-name"), 0.6))
    page.wait_for_timeout(100)  # what follows a readout comes in small turns
    screen = page.locator(".onegpu").evaluate_all(ON_SCREEN)
    for (inputs, outputs), (old, _), printed in zip(screen, before, on_paper(page), strict=True):
        assert printed[-len(outputs):] == outputs
        shown = [(label, value, name) for (label, value, hidden, name), was in zip(inputs, old, strict=True) if not hidden or value != was[1]]
        assert len(printed) == len(shown) + len(outputs)
        for line, (label, value, name) in zip(printed, shown, strict=False):
            assert line[0] == label and (line[1] == value or line[1].startswith(f"{value} {name} = "))  # what is refused says why
    visible = "all => all.filter(e => e.checkVisibility()).map(e => e.outerHTML.slice(0, 100))"
    assert page.locator("input, button, select, textarea, nav, .bd-sidebar, .bd-header-article, .prev-next-footer, .headerlink").evaluate_all(visible) == []
    assert page.locator(".cell details.hide summary").evaluate_all(visible) == []
    assert page.locator(".onegpu-exercise details p").evaluate_all("all => all.every(e => e.checkVisibility())")
    inks = page.locator(".bd-article p, .bd-article li, .bd-article td, .bd-article pre *, svg.onegpu-figure, .onegpu td").evaluate_all("all => [...new Set(all.filter(e => e.checkVisibility()).map(e => getComputedStyle(e).color))]")
    assert [ink for ink in inks if max(map(int, re.findall(r"\d+", ink)[:3])) > 0x40] == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    links = page.locator(".bd-article p a[href^=http]").evaluate_all("all => all.map(e => getComputedStyle(e).textDecorationLine)")
    assert set(links) <= {"underline"}
    assert page.evaluate("""[...document.querySelectorAll(".onegpu-equation math, .bd-article table, pre")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth).map(e => e.textContent.slice(0, 80))""") == []
    assert noise == []


def squeezed(text):
    """A text without spaces and ligatures, which a PDF has in places of its own."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", text))


@pytest.mark.parametrize("path", [*PAGES[1::2], *CHINESE[::2]], scope="module")
def test_pdf(page, path):
    """Saved as PDF, a page has all of its headings, in order, and its last paragraph."""
    page.emulate_media(media="print")
    meant = page.locator(".bd-article :is(h1, h2, h3), .bd-article :is(p, li):last-of-type").evaluate_all("""all => { const shown = all.filter(e => e.checkVisibility() && !e.querySelector("math"));
        return [...shown.filter(e => e.matches("h1, h2, h3")), shown.at(-1)].map(e => e.innerText.replace(/#$/, "")); }""")
    text = squeezed("".join(p.extract_text() for p in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages))
    at = 0
    for part in map(squeezed, meant[:-1]):
        at = text.find(part, at)
        assert at >= 0, part
    assert squeezed(meant[-1]) in text


@in_turn
def test_less_motion(page, path):
    """Nothing moves by itself for readers who want no motion."""
    unfold(page)
    assert page.evaluate("""[...document.querySelectorAll("*")].filter(e => { const s = getComputedStyle(e);
        return s.animationName !== "none" || s.transitionDuration.split(", ").some(t => parseFloat(t) > 0) || s.scrollBehavior === "smooth"; }).map(e => e.outerHTML.slice(0, 80))""") == []


@in_turn
def test_more_contrast(page, path):
    """Forced colours keep the controls' borders, the results and the bars' colours apart; more contrast makes lines as dark as text."""
    page.emulate_media(forced_colors="active", contrast="more")
    unfold(page)
    look = """all => all.filter(e => e.checkVisibility()).map(e => { const s = getComputedStyle(e); return [s.borderTopColor, s.backgroundColor, s.color, +s.opacity]; })"""
    ground = page.evaluate("getComputedStyle(document.querySelector('.bd-article')).backgroundColor, getComputedStyle(document.body).backgroundColor")
    for border, _, ink, opacity in page.locator(".onegpu :is(select, button, input[type=text]):enabled").evaluate_all(look):
        assert ground not in (border, ink) and opacity == 1
    for _, _, ink, opacity in page.locator(".onegpu output, .onegpu-note, svg.onegpu-figure").evaluate_all(look):
        assert ink != ground and opacity == 1
    for bar in page.locator(".onegpu-bar").all():
        colours = {background for _, background, _, _ in bar.locator("i").evaluate_all(look)}
        assert len(colours) == len(set(bar.locator("i").evaluate_all("all => all.map(e => e.className)"))) and ground not in colours
    page.emulate_media(forced_colors="none", contrast="more")
    for border, _, ink, _ in page.locator(".onegpu :is(select, input[type=text]):enabled").evaluate_all(look):
        assert border == ink


@in_turn
def test_figures_and_ids(page, path):
    """Figures say what they show, no id stands twice, and the page names its language."""
    assert page.evaluate("document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[language_of(path)]
    figures = page.locator("svg.onegpu-figure").evaluate_all("all => all.map(e => [e.getAttribute('role'), e.getAttribute('aria-label')])")
    assert [f for f in figures if f[0] != "img" or not (f[1] or "").strip()] == []
    ids = Counter(page.locator("[id]").evaluate_all("all => all.map(e => e.id)"))
    assert [i for i, n in ids.items() if n > 1] == []


@each_page
def test_without_javascript(visit, site, path):
    """Without JavaScript each calculator is a table of what Python computes at the start."""
    tables = visit(path, java_script_enabled=False).locator(f"{CALCULATOR} > table")
    assert tables.count() == len(specs(site / path))
    for table, spec in zip(tables.all(), specs(site / path), strict=True):
        assert table.is_visible()
        rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tr").all()]
        for name in spec["outputs"]:
            assert [REGISTRY[name].label, REGISTRY[name].human(expected(spec, spec["start"], name))] in rows


# -- calculators: reading and operating them -------------------------------------------------------

def unfold(page):
    """Open everything that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def calculators(visit, path):
    """The live calculators of a page, all controls visible."""
    page = visit(path)
    unfold(page)
    return page.locator(CALCULATOR).all()


def settle(root):
    """Wait for what follows a readout some milliseconds later: the list of plans, and which controls are disabled."""
    root.evaluate("root => new Promise(done => { const look = () => root.onegpu.settled ? done() : requestAnimationFrame(look); look(); })")


def controls(root, folded=True):
    """The controls of a calculator: (name, type, element); without those that are folded away at first."""
    settle(root)
    found = root.locator(CONTROL if folded else ".onegpu-controls > .onegpu-row [data-name]")
    return [(name, kind, found.nth(i)) for i, (name, kind) in enumerate(found.evaluate_all("all => all.map(e => [e.dataset.name, e.type])"))]


def box(root, name):
    """The text box of an input."""
    return root.locator(f'input[type="text"][data-name="{name}"]')


def readout(root, name=""):
    """All that a calculator shows of its results, and every value but one input's own, unrounded, when it is settled."""
    return root.evaluate("""async (root, name) => { while (!root.onegpu.settled) await new Promise(requestAnimationFrame); return [
        [...root.querySelectorAll("output, .onegpu-stack, .onegpu-plans, .onegpu-wrong .onegpu-note")].map(e => e.textContent)
            .concat([...root.querySelectorAll(".onegpu-curve")].map(e => e.innerHTML)).join("|"),
        JSON.stringify({ ...root.onegpu.values, [name]: 0 })]; }""", name)


def note(control):
    """The words beside a control."""
    return control.evaluate("e => document.getElementById(e.getAttribute('aria-describedby')).textContent")


def reset(root):
    """Back to the start, without looking for the mouse's way to the button."""
    root.locator(".onegpu-title button").dispatch_event("click")


def enter(control, text):
    """Put text into a box, the short way."""
    control.fill(text)
    control.press("Enter")


def type_into(control, text):
    """Replace a box's text by keyboard."""
    control.focus()
    control.page.keyboard.press("Control+a")
    control.page.keyboard.type(text)
    control.page.keyboard.press("Enter")


def prepare(root, settings):
    """Set other controls first, by value."""
    for name, text in settings.items():
        if (choice := root.locator(f'select[data-name="{name}"]')).count():
            choice.select_option(index=REGISTRY[name].choices.index(text))
        else:
            enter(box(root, name), text)


def between(name, share):
    """A value along an input's slider, as plain text."""
    q, scale = REGISTRY[name], slider(REGISTRY[name])
    low, high = scale["low"], scale["high"]
    share = round(share * scale["steps"]) / scale["steps"] if q.doubles else share
    x = low * (high / low) ** share if scale["log"] else low + (high - low) * share
    return str(round(x)) if q.integer else f"{x:.4g}"


def another(control, name, share):
    """A value along an input's slider that does not stand in its box."""
    text = between(name, share)
    return text if text != control.input_value() else between(name, share + 0.3)


def extent(control):
    """A slider's position and its last one."""
    return control.evaluate("e => [+e.value, +e.max]")


#: More options than this are a catalogue's rows: tests of the catalogue see each of them, those of a control some.
MANY = 8

# Each of these operates a control step by step and yields what it did; every step should change the readout, of a
# choice at least one. A single arrow on a slider may hide behind rounding: it should change the unrounded results.

def press_range(control, name):
    """A slider, by keyboard."""
    position, last = extent(control)
    control.focus()
    for key in ("ArrowLeft", "End", "Home", "ArrowRight") if position == last else ("ArrowRight", "Home", "End", "ArrowLeft"):
        control.page.keyboard.press(key)
        yield key


def drag_range(control, name):
    """A slider, by mouse: two clicks on its track and a drag."""
    position, last = extent(control)
    mouse = control.page.mouse
    first, second, end = (0.1, 0.9, 0.4) if position > last / 2 else (0.9, 0.1, 0.6)

    def place(share):  # where it is now: a message above may have moved it
        control.scroll_into_view_if_needed()
        area = control.bounding_box()
        return area["x"] + area["width"] * share, area["y"] + area["height"] / 2

    for share in (first, second):
        mouse.click(*place(share))
        yield f"click at {share}"
    area, (x, y) = control.bounding_box(), place(second)
    mouse.move(area["x"] + min(max(area["width"] * second, 8), area["width"] - 8) if last > 1 else x, y)
    mouse.down()
    before = extent(control)
    mouse.move(*place(end), steps=4)
    mouse.up()
    if extent(control) != before:  # a slider of few steps may not leave its step
        yield f"drag to {end}"


def press_text(control, name):
    """A text box, by keyboard."""
    for share in (0.35, 0.7):
        text = another(control, name, share)
        type_into(control, text)
        yield f"type {text}"


def click_text(control, name):
    """A text box, by mouse: click into it, type, click elsewhere."""
    for share in (0.35, 0.7):
        text = another(control, name, share)
        control.click(click_count=3)
        control.page.keyboard.type(text)
        control.locator("xpath=ancestor::section[@class='onegpu']").locator(".onegpu-title").click(position={"x": 2, "y": 2})
        yield f"type {text}"


def press_choice(control, name):
    """A choice, by keyboard: down to its end, then up."""
    position, count = control.evaluate("e => [e.selectedIndex, e.length]")
    control.focus()
    way = ["ArrowDown"] * (count - 1 - position) + ["ArrowUp"] * (count - 1)
    for key in way if count <= MANY else ["ArrowDown", "End", "ArrowUp", "Home", "ArrowDown"]:
        control.page.keyboard.press(key)
        yield key


def click_choice(control, name):
    """A choice, option by option; of a long catalogue some rows with the first and the last."""
    position, count = control.evaluate("e => [e.selectedIndex, e.length]")
    for i in range(count) if count <= MANY else sorted({i * (count - 1) // MANY for i in range(MANY + 1)}):
        if i != position:
            control.select_option(index=i)
            yield f"option {i}"


WAYS = {"keyboard": {"range": press_range, "text": press_text, "select-one": press_choice},
        "mouse": {"range": drag_range, "text": click_text, "select-one": click_choice}}


def idle_steps(root, name, steps):
    """The steps that changed nothing, one by one."""
    before = readout(root, name)
    for step in steps:
        now = readout(root, name)
        moved = now[1] != before[1] if step in ("ArrowLeft", "ArrowRight") else now[0] != before[0]
        yield None if moved else step
        before = now


def complaint(root, name, kind, control, operate):
    """What is wrong with a control: from the start, or from the first of its settings where it is right, nothing."""
    wrong = None
    for settings in [{}, *SETTINGS.get(name, ())]:
        if settings:
            reset(root)
            prepare(root, settings)
        settle(root)
        if control.is_disabled():
            wrong = "disabled" if note(control).strip() else "disabled without a reason"
            continue
        steps = list(idle_steps(root, name, operate(control, name)))
        if kind == "range" and None in steps[:1]:  # one arrow moves it; near an end, whole numbers of cards may not show the other
            steps = [s for s in steps if s not in ("ArrowLeft", "ArrowRight")]
        idle = (None if any(step is None for step in steps) else "no option") if kind == "select-one" else [s for s in steps if s]
        if not idle:
            return None
        wrong = f"changes nothing: {idle}"
    return f"{name} ({kind}): {wrong}"


@pytest.mark.parametrize("path, way", [*((path, "keyboard") for path in PAGES), *((path, "mouse") for path in CHINESE)])
def test_controls(visit, noise, path, way):
    """Each control changes the readout, and the reset button brings the start back, pressed or clicked."""
    wrong = []
    for root in calculators(visit, path):
        start, operable = readout(root), controls(root, folded=path not in LONG)
        for name, kind, control in operable:
            wrong.append(complaint(root, name, kind, control, WAYS[way][kind]))
            reset(root)
            assert readout(root) == start, name
        for name, kind, control in [c for c in operable if c[2].is_enabled()][:1]:
            *_, _ = WAYS[way][kind](control, name)
            button = root.locator(".onegpu-title button")
            button.click() if way == "mouse" else button.press("Enter")
            assert readout(root) == start, name
    assert list(filter(None, wrong)) == []
    assert noise == []


@each_page
def test_disabled_controls_say_why(visit, path):
    """A control that does nothing says so, and so do its parts."""
    for root in calculators(visit, path):
        settle(root)
        silent = "all => all.filter(e => e.disabled && !document.getElementById(e.getAttribute('aria-describedby')).textContent.trim()).map(e => e.dataset.name)"
        assert root.locator(CONTROL).evaluate_all(silent) == []


# -- calculators against Python --------------------------------------------------------------------

def arguments(spec, state, formula):
    """The keyword arguments that stand for a calculator's state."""
    rows = {o: row(o, state) for o in spec["pickers"] if o in takes(formula)}
    known = [n for n in formula.inputs() if n in state or spec["inputs"][n]["source"] is None]
    return rows | {n: state.get(n, spec["inputs"][n]["start"]) for n in known}


def expected(spec, state, name):
    """An output as Python computes it."""
    formula = FORMULAS[name]
    if "data_parallel" in spec["formulas"] and not isinstance(formula, Largest):  # the planner computes replicas and micro-batches
        formula = formula.connect(replicas, micro_batches)
    return formula(**arguments(spec, state, formula))


def act(rng, name, kind, control):
    """Do something with a control."""
    if kind == "select-one":
        control.select_option(index=rng.randrange(control.evaluate("e => e.length")))
    elif kind == "range":
        control.press(rng.choice(["ArrowRight", "ArrowLeft", "PageUp", "PageDown", "Home", "End"]))
    else:
        enter(control, between(name, rng.random()))


def differences(root, spec):
    """Where a calculator and Python disagree: values, shown text, refusals."""
    found, text, notes = root.evaluate("""async root => { while (!root.onegpu.settled) await new Promise(requestAnimationFrame); return [
        root.onegpu, Object.fromEntries([...root.querySelectorAll("output")].map(e => [e.dataset.name, e.textContent])), [...root.querySelectorAll(".onegpu-note")].map(e => e.textContent)]; }""")
    refused = bool(found["errors"])
    for name in spec["outputs"]:
        try:
            value = expected(spec, found["state"], name)
        except (ValueError, ArithmeticError) as error:
            explained = text[name] == str(error) or text[name] == "–" and refused  # the reason stands beside its field
            if not isinstance(error, ValueError) or not explained:
                yield f"{name}: {text[name]!r}, Python: {error!r}; {found['state']}"
            continue
        if not math.isclose(found["values"].get(name, math.nan), value, rel_tol=1e-12):
            yield f"{name} = {found['values'].get(name)}, Python {value!r}; {found['state']}"
        # one refused output blanks the others, as in Calculator.result, and a rule of several names the value in question
        due = found["errors"].get(name, "–") if refused else REGISTRY[name].human(value)
        if text[name] != due:
            yield f"{name}: {text[name]!r}, Python {due!r}; {found['state']}"
    if not all(text.get(n) == words or words in notes for n, words in found["errors"].items()):
        yield f"{found['errors']}: not shown; {found['state']}"


@each_page
def test_same_as_python(visit, noise, site, path):
    """A calculator agrees with Python at the start and after each of many random steps."""
    rng, wrong = random.Random(path), []
    for root, spec in zip(calculators(visit, path), specs(site / path), strict=True):
        wrong += differences(root, spec)
        operable = controls(root)
        for _ in range(20 if language_of(path) == "en" else 10):
            name, kind, control = rng.choice(operable)
            if control.is_enabled():
                act(rng, name, kind, control)
                wrong += differences(root, spec)
    assert wrong == []
    assert noise == []


@pytest.mark.parametrize("path, end", [*((path, "Home") for path in PAGES), *((path, "End") for path in CHINESE)])
def test_same_as_python_at_the_ends(visit, noise, site, path, end):
    """Calculator and Python agree, and refuse alike, while every slider is run to one end."""
    wrong = []
    for root, spec in zip(calculators(visit, path), specs(site / path), strict=True):
        for _, kind, control in controls(root):
            if kind == "range" and control.is_enabled():
                control.press(end)
                wrong += differences(root, spec)
    assert wrong == []
    assert noise == []


def refusal(name, value):
    """The words with which Python refuses a value."""
    with pytest.raises(ValueError) as error:
        REGISTRY[name].check(value)
    return str(error.value)


def after_typing(root, name, text):
    """What a reader sees after typing: the words beside the box, the box, and the digits that the outputs show."""
    control = box(root, name)
    enter(control, text)
    return tuple(control.evaluate("""e => [document.getElementById(e.getAttribute("aria-describedby")).textContent, e.value,
        [...e.closest(".onegpu").querySelectorAll("output")].map(o => o.textContent).join("").replace(/\\D/g, "")]"""))


def test_refuses_in_the_words_of_the_call(visit, site):
    """An MFU above one is refused in the words of ``training_time``."""
    path, i, name = with_input(site, "mfu")
    with pytest.raises(ValueError) as error:
        training_time(params=7e9, tokens=1e12, peak_flops=989.4e12, mfu=1.2)
    assert after_typing(calculators(visit, path)[i], name, "1.2") == (str(error.value), "1.2", "")


#: Put a text into each box in turn, and start over: the box's name, the words beside it, what stands in it, and the digits that the outputs show.
REFUSED = """(root, text) => [...root.querySelectorAll("[type=text][data-name]:enabled")].map(e => {
    e.value = text;
    e.dispatchEvent(new Event("change", { bubbles: true }));
    const found = [e.dataset.name, document.getElementById(e.getAttribute("aria-describedby")).textContent, e.value, [...root.querySelectorAll("output")].map(o => o.textContent).join("").replace(/\\D/g, "")];
    root.querySelector(".onegpu-title button").click();
    return found; })"""


@each_page
@pytest.mark.parametrize("text, value", [("-1", -1.0), ("nan", math.nan), ("abc", "abc")])
def test_refuses(visit, noise, path, text, value):
    """Each box refuses what Python refuses, in the same words, and keeps what was typed."""
    for root in calculators(visit, path):
        settle(root)
        found = root.evaluate(REFUSED, text)
        assert found == [[name, refusal(name, value), text, ""] for name, *_ in found] and len(found) > 1
    assert noise == []


# -- the reader's own model ------------------------------------------------------------------------

QWEN = {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False, "_name_or_path": "my/model"}


@each_page
def test_own_model(visit, noise, site, path):
    """A pasted config.json drives every calculator of the page; a broken or foreign one is refused in Python's words, and nothing is lost."""
    found = [(root, spec) for root, spec in zip(calculators(visit, path), specs(site / path), strict=True) if "model" in spec["pickers"] and "calibrate" not in spec]
    for root, _ in found[:1]:
        for text in (json.dumps(QWEN)[:80], "[]", json.dumps(QWEN | {"model_type": "resnet"}), json.dumps({k: v for k, v in QWEN.items() if k != "hidden_size"}), json.dumps(QWEN | {"vocab_size": "many"})):
            root.locator(".onegpu-own textarea").fill(text)
            try:
                refused = f"never: {read_config(json.loads(text))}" if text[:1] == "{" else labels.text("config.object", name="text")
            except json.JSONDecodeError:
                refused = labels.text("config.object", name="text")
            except ValueError as error:
                refused = str(error)
            assert note(root.locator("select[data-name=model]")) == refused and root.locator(".onegpu-own textarea").input_value() == text
            assert set(root.locator("output").all_inner_texts()) == {"–"}
        root.locator(".onegpu-own textarea").fill(json.dumps(QWEN))
    if found:
        settled(found[0][0].page)
    for root, spec in found:
        assert root.evaluate("root => root.onegpu.state.model") == "my/model"
        assert list(differences(root, spec)) == [] and spec["stack" if "stack" in spec else "outputs"]
    for root, _ in found[:1]:
        root.locator("select[data-name=model]").select_option(index=0)
        assert root.evaluate("root => root.onegpu.state.model") != "my/model"
    assert noise == []


def test_dropped_model(visit, noise, site):
    """A file dropped on a calculator is read by the browser alone."""
    path, i, _ = with_input(site, "seq_len")
    root = next(r for r, spec in zip(calculators(visit, path), specs(site / path), strict=True) if "model" in spec["pickers"])
    drop = """(root, text) => { const data = new DataTransfer(); data.items.add(new File([text], "config.json"));
              root.querySelector("section").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })); }"""
    root.evaluate(drop, json.dumps(QWEN)[:50])
    root.page.wait_for_timeout(100)
    assert note(root.locator("select[data-name=model]")) == "config = config.json: must be a JSON object"
    root.evaluate(drop, json.dumps(QWEN))
    root.page.wait_for_timeout(100)
    assert root.evaluate("root => root.onegpu.state.model") == "my/model" and noise == []


@pytest.mark.parametrize("names, text, value", [
    (["params"], "7B", 7e9), (["params"], "7b", 7e9), (["tokens"], "1.5T", 1.5e12), (["mfu"], "40 %", 0.4), (["mfu"], "0.4", 0.4),
    (["memory_bytes", "usable_bytes"], "80 GiB", 80 * 1024**3), (["usable_bytes"], "80 GB", 80e9), (["seq_len"], "8,192", 8192)])
def test_units(visit, site, names, text, value):
    """A box understands what people type."""
    path, i, name = with_input(site, *names)
    root = calculators(visit, path)[i]
    for typed in (between(name, 0.6), text):
        type_into(box(root, name), typed)
    assert root.evaluate("(root, name) => root.onegpu.state[name]", name) == pytest.approx(value, rel=1e-12)
    assert note(box(root, name)) == ""


# -- one scenario ------------------------------------------------------------------------------------

SHOWN = "root => Object.fromEntries([...root.querySelectorAll('output')].map(e => [e.dataset.name, e.textContent]))"
STATE = "root => root.onegpu.state"


def settled(page):
    """Wait until the other calculators, the link and the store have followed."""
    page.wait_for_timeout(400)


def states(page):
    """What every calculator of a page holds."""
    return [root.evaluate(STATE) for root in page.locator(CALCULATOR).all()]


def test_one_scenario(visit, noise, site, browser):
    """What is set on the front page is seen on all pages, after a reload, and in a fresh profile by the copied link; one click puts all of it back."""
    page = visit("index.html")
    root = page.locator(CALCULATOR).first
    root.locator('select[data-name="model"]').select_option(label="Mistral 7B")
    root.locator('select[data-name="gpu"]').select_option(label="H200")
    enter(box(root, "seq_len"), "2048")
    enter(box(root, "tokens"), "2T")
    settled(page)
    wanted = {"model": "Mistral 7B", "gpu": "H200", "seq_len": 2048, "tokens": 2e12}
    for path in PAGES:
        with page.expect_navigation():
            page.locator(f'a[href*="{Path(path).name}"]').first.evaluate("a => a.click()")
        for state, spec in zip(states(page), specs(site / path), strict=True):
            if "calibrate" in spec:  # what was measured is its own scenario
                continue
            assert {n: state[n] for n in wanted if n in spec["pickers"] or n in spec["inputs"]} == {n: x for n, x in wanted.items() if n in spec["pickers"] and x in spec["pickers"][n] or n in spec["inputs"]}, path
    page.goto((site / "index.html").as_uri())
    page.reload()
    assert wanted.items() <= states(page)[0].items()
    page.locator(CALCULATOR).first.get_by_role("button", name="copy link").click()
    link = page.locator(".onegpu-copied").first.input_value()
    there = visit("chapters/05-decide.html")
    there.goto(link.replace("index.html", "chapters/05-decide.html") + "#exercises")
    assert wanted["model"] == states(there)[0]["model"] and there.url.endswith("#exercises")
    page.locator(CALCULATOR).first.locator(".onegpu-title button").click()
    settled(page)
    assert "?" not in page.url and not page.locator('a[href*="model="]').count()
    page.reload()
    assert states(page)[0]["model"] == "Llama 2 7B"
    assert noise == []


@pytest.mark.parametrize("path, there", [("index.html", "zh/index.html"), ("chapters/05-decide.html", "zh/chapters/05-decide.html"), ("zh/index.html", "index.html"), ("zh/chapters/05-decide.html", "chapters/05-decide.html")])
def test_the_language_link_carries_the_scenario(visit, noise, site, path, there):
    """The link to the other edition leads to the same page, which computes the same question, also where nothing is stored."""
    page = visit(path)
    page.locator(CALCULATOR).first.locator('select[data-name="model"]').select_option(value="Mistral 7B")
    enter(box(page.locator(CALCULATOR).first, "seq_len"), "2048")
    settled(page)
    before, link = states(page)[0], page.locator(f".btn-language-{language_of(there)}").first
    asked = dict(parse_qsl(urlsplit(link.evaluate("a => a.href")).query))
    assert asked.items() >= {"model": "Mistral 7B", "seq_len": "2048"}.items()
    fresh = visit(there)
    fresh.goto(f"{link.evaluate('a => a.href')}")
    assert fresh.url.partition("?")[0] == (site / there).as_uri() and states(fresh)[0] == before
    link.click()
    page.wait_for_url(f"**/{there}?*")
    assert states(page)[0] == before and labels_of(page) == language_of(there) and noise == []


def labels_of(page):
    """The language in which a page's scripts speak."""
    word = page.evaluate("ONEGPU.words.calculator.reset")
    return next(language for language in labels.languages() if labels.load(language)["calculator"]["reset"] == word)


@pytest.mark.parametrize("path", ["chapters/01-memory-wall.html", "zh/chapters/01-memory-wall.html"])
def test_the_language_link_leads_to_the_section_in_view(visit, path):
    """Who changes the language stays at the section that is read."""
    page = visit(path)
    name = page.locator(".bd-toc-nav a").nth(3).get_attribute("href")
    page.wait_for_function("""name => { document.getElementById(name.slice(1)).scrollIntoView();
        return document.querySelector("[class*=btn-language-]").hash === name; }""", arg=name)  # calculators above may still take their room
    page.locator("[class*=btn-language-]").first.dispatch_event("click")  # not while it waits: it would look again on the page that follows, and come back
    page.wait_for_url(lambda url: url.partition("#")[2] == name[1:] and ("/zh/" in url) != path.startswith("zh/"))


ADDRESS, REPOSITORY = "https://example.org/some/sub/path", "https://github.com/someone/book"
MAKE = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}  # a make of its own, not a part of the one that runs the tests


@pytest.fixture(scope="module")
def published(site):
    """What `make publish` makes for a folder of another site."""
    done = subprocess.run(["make", "publish", f"SITE={ADDRESS}", f"REPO={REPOSITORY}"], cwd=ROOT, env=MAKE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return ROOT / ".venv" / "publish" / "_build" / "html"


def stamped(published, link):
    """Where a link with one of the two addresses leads in the published site or in the repository; None for any other."""
    for start, folder in ((f"{ADDRESS}/", published), (f"{REPOSITORY}/edit/main/", ROOT), ("https://colab.research.google.com/github/someone/book/blob/gh-pages/", published)):
        if link.startswith(start):
            return folder / (unquote(urlsplit(link.removeprefix(start)).path) or "index.html")
    return None


def test_published_links(published):
    """Every link of every published page leads to a file, the stamped ones too: each page has its two addresses, a way to edit it, and each notebook its Colab."""
    for path in [*BOTH, *(f"{place}{name}" for place in ("", "zh/") for name in GENERATED)]:
        links = written(published / path).links
        if not path.endswith("404.html"):  # this one's links start at the site's address
            assert [d for link in links if (d := dead(published, path, link))] == [], path
        assert [link for link in links if (file := stamped(published, link)) and not file.is_file()] == [], path
        if path in BOTH:
            source = next(f for f in ROOT.glob(path.replace(".html", ".*")) if f.suffix in (".ipynb", ".md"))
            assert sum(link.startswith(f"{REPOSITORY}/edit/main/{source.relative_to(ROOT).as_posix()}") for link in links) == 1, path
            assert sum("colab.research.google.com" in link for link in links) == (source.suffix == ".ipynb"), path
            assert {f"{ADDRESS}/{p}" for p in (path.removeprefix("zh/"), f"zh/{path.removeprefix('zh/')}")} <= set(links), path
    for place in ("", "zh/"):
        assert f'<base href="/some/sub/path/{place}" />' in (published / f"{place}404.html").read_text("utf-8")
        listed = re.findall("<loc>(.*?)</loc>", (published / place / "sitemap.xml").read_text("utf-8"))
        assert sorted(stamped(published, link) for link in listed) == sorted(published / place / p for p in PAGES)


def test_push(published, tmp_path):
    """What `make push-site` pushes is the published site, as the only commit of its branch."""
    git = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
    git(["git", "init", "-q", "--bare", tmp_path])
    for _ in range(2):
        git(["make", "push-site", f"REPO={tmp_path.as_uri()}"], cwd=ROOT, env=MAKE)
    assert git(["git", "-C", tmp_path, "rev-list", "--count", "gh-pages"]).stdout == "1\n"
    files = {p.relative_to(published).as_posix() for p in published.rglob("*") if p.is_file() and ".git" not in p.parts}
    assert set(git(["git", "-C", tmp_path, "-c", "core.quotepath=off", "ls-tree", "-r", "--name-only", "gh-pages"]).stdout.splitlines()) == files


@pytest.fixture(scope="module")
def served(published, tmp_path_factory):
    """The published site on a server, in a folder of another site; its address."""
    root = tmp_path_factory.mktemp("server")
    place = root / "some" / "sub" / "path"
    place.parent.mkdir(parents=True)
    place.symlink_to(published)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}))
    server.RequestHandlerClass = functools.partial(server.RequestHandlerClass, directory=str(root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/some/sub/path/"
    server.shutdown()


@pytest.mark.parametrize("path, query, wanted", [
    ("zh/search.html", "显存", "chapters/01-memory-wall.html"), ("zh/search.html", "梯度累积", "chapters/04-walls-compound.html"), ("zh/search.html", "张量并行", "chapters/04-walls-compound.html"),
    ("zh/search.html", "MFU", "chapters/02-compute-wall.html"), ("zh/search.html", "激活重计算 显存", "chapters/01-memory-wall.html"), ("zh/search.html", "kernel_efficiency", "symbols.html"),
    ("search.html", "recomputation memory", "chapters/01-memory-wall.html"), ("search.html", "MFU", "chapters/02-compute-wall.html"), ("search.html", "kernel_efficiency", "symbols.html")])
def test_search(browser, served, path, query, wanted):
    """The search of each edition finds a word, a name and several words, on the edition's own pages."""
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    try:
        page.goto(f"{served}{path}?q={quote(query)}")
        page.locator("#search-results li a").first.wait_for(timeout=5000)
        page.wait_for_timeout(200)
        found = [urlsplit(a) for a in page.locator("#search-results li a").evaluate_all("all => all.map(a => a.href)")]
        home = urlsplit(served).path + path.replace("search.html", "")
        assert f"{home}{wanted}" in {a.path for a in found} and all(a.path.startswith(home) and ("/zh/" in a.path) == path.startswith("zh/") for a in found) and errors == []
    finally:
        page.close()


@pytest.mark.parametrize("path", [*PAGES[::2], *CHINESE[1::2]])
def test_under_a_path(browser, served, path):
    """In a folder of another site a page finds all it needs, each calculator computes, the theme changes, the search opens, and its other language is there."""
    page, wrong = browser.new_page(), []
    page.set_default_timeout(5000)
    page.on("response", lambda r: wrong.append(r.url) if r.status >= 400 or not r.url.startswith(served) else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    try:
        page.goto(served + path)
        page.wait_for_function(LIVE)
        for calculator in page.locator(CALCULATOR).all():
            before = calculator.locator("output").all_text_contents()
            slider = calculator.locator("input[type=range]:enabled").first
            slider.press("Home" if slider.input_value() == slider.get_attribute("max") else "End")
            page.wait_for_timeout(100)
            assert calculator.locator("output").all_text_contents() != before
        theme = page.evaluate("document.documentElement.dataset.mode")
        page.locator(".theme-switch-button:visible").first.click()
        assert page.evaluate("document.documentElement.dataset.mode") != theme
        page.locator(".search-button__button:visible").first.click()
        page.locator("#search-input").fill("MFU")
        page.locator("#search-input").press("Enter")
        page.locator("#search-results li a").first.wait_for()
        page.go_back()
        page.wait_for_function(LIVE)
        page.locator("[class*=btn-language-]").first.click()
        page.wait_for_url(lambda url: urlsplit(url).path == urlsplit(served).path + (path.removeprefix("zh/") if path.startswith("zh/") else f"zh/{path}"))
        page.wait_for_function(LIVE)
        assert wrong == []
    finally:
        page.close()


def test_calculators_follow_each_other(visit, noise):
    """On one page too: a value, a row, a pasted model; each keeps its own first values of what was not set; a refused value stays where it was typed."""
    page = visit("chapters/01-memory-wall.html")
    first, last = page.locator(CALCULATOR).first, page.locator(CALCULATOR).last
    before = last.evaluate(STATE)
    enter(box(last, "seq_len"), "1024")
    enter(box(last, "micro_batch"), "-3")
    settled(page)
    middle = page.locator(CALCULATOR).nth(1).evaluate(STATE)
    assert middle["seq_len"] == 1024 and middle["micro_batch"] == 1 and last.evaluate(STATE)["micro_batch"] == -3
    first.locator('select[data-name="gpu"]').select_option(label="RTX 4090")
    settled(page)
    assert last.evaluate(STATE)["gpu"] == "RTX 4090" and last.evaluate(STATE)["model"] == before["model"]
    assert noise == []


def test_a_link_by_hand(visit, noise, site):
    """People's own words for numbers are read; other keys, an anchor and a seed stay."""
    page = visit("index.html")
    page.goto((site / "index.html").as_uri() + "?utm_source=x&tokens=1.5T&mfu=40%25&seed=7#how-to-read-this-book")
    settled(page)
    state = states(page)[0]
    assert (state["tokens"], state["mfu"]) == (1.5e12, 0.4) and "utm_source=x" in page.url and "seed=7" in page.url and page.url.endswith("#how-to-read-this-book")
    assert noise == []


@pytest.mark.parametrize("query", ["model=Wombat", "tokens=-1", "mfu=7", "seq_len=abc", "attention=none", "shape=%7B", "shape=%7B%22n_layers%22%3A0%7D", "calibration=5", "calibration=%7B%22mfu%22%3A3%7D", "gpu=__proto__", "recompute=toString"])
def test_a_damaged_link_is_ignored_with_a_notice(visit, noise, site, query):
    """The page stands as if nothing had been asked, and says what it left out."""
    page = visit("index.html")
    before = states(page)[0]
    page.goto((site / "index.html").as_uri() + "?" + query)
    assert states(page)[0] == before and page.locator(".onegpu-ignored").inner_text().startswith("Left out")
    assert noise == []


@pytest.mark.parametrize("stored", ["{", "7", '"x"', "[1]", "null", '{"mfu": 3}', '{"calibration": {"mfu": {"value": "x"}}}', '{"calibration": [1]}', '{"shape": 5, "model": "x"}'])
def test_a_damaged_store_is_ignored(visit, noise, stored):
    """What another hand stored breaks nothing."""
    page = visit("chapters/03-scale-out.html")
    before = states(page)
    page.evaluate("text => localStorage.setItem('onegpu-scenario', text)", stored)
    page.reload()
    assert states(page) == before and "†" not in page.locator(CALCULATOR).nth(0).inner_text()
    assert noise == []


def test_calibration_goes_everywhere(visit, noise):
    """A measured speed and peak replace the defaults in every calculator of this and of other pages, marked, with a warning outside their range, until they are dropped."""
    page = visit("chapters/07-one-is-enough.html")
    roots = page.locator(CALCULATOR)
    tune = roots.nth(0)
    before = tune.evaluate(SHOWN)
    for i in (1, 2):
        roots.nth(i).locator(".onegpu-results > button", has_text="use in all calculators").click()
    settled(page)
    measured = [roots.nth(i).evaluate("root => root.onegpu.values") for i in (1, 2)]
    after, state = tune.evaluate(SHOWN), tune.evaluate(STATE)
    assert state["kernel_efficiency"] == measured[0]["measured_efficiency"] and state["overhead_bytes"] == measured[1]["measured_overhead"]
    marked = {n for n, text in after.items() if text.endswith(" †")}
    assert marked == {n for n in after if after[n] != before[n]} == {"finetune_headroom", "longest_sequence", "largest_micro_batch", "finetune_time", "finetune_cost"}
    assert "Outside the range it was measured in: card = RTX 4090 (measured at A100 80GB)" in tune.inner_text()
    page.goto(page.url.replace("07-one-is-enough", "03-scale-out"))
    far = page.locator(CALCULATOR).nth(0)
    assert far.evaluate(STATE)["mfu"] == measured[0]["run_mfu"] and "rests on your own run" in far.inner_text()
    far.get_by_role("button", name="use the defaults again").click()
    settled(page)
    assert "†" not in far.inner_text() and far.evaluate(STATE)["mfu"] != measured[0]["run_mfu"]
    page.goto(page.url.replace("03-scale-out", "07-one-is-enough"))
    assert page.locator(CALCULATOR).nth(0).evaluate(SHOWN) == before
    assert noise == []


@each_english_page
def test_copied_python_gives_the_same(visit, noise, site, path):
    """The copied code runs in a bare Python and gives what the calculator shows, at the start and after some steps."""
    rng = random.Random(path)
    for root in calculators(visit, path):
        for _ in range(3):
            if not root.evaluate("root => Object.keys(root.onegpu.errors).length"):
                root.get_by_role("button", name="copy as Python").click()
                code, values = root.locator(".onegpu-copied").input_value(), root.evaluate("root => root.onegpu.values")
                scope = {}
                imports, _, calls = code.partition("\n{")
                exec(imports, scope)
                found = eval("{" + calls, scope)
                assert {n: values[n] for n in found} == pytest.approx({n: float(x) for n, x in found.items()}, rel=1e-12), code
            for _ in range(4):
                name, kind, control = rng.choice(controls(root))
                if control.is_enabled():
                    act(rng, name, kind, control)
    assert noise == []


# -- exercises -------------------------------------------------------------------------------------

EXERCISES = {f"{page}.html": made for language in ("en", "zh") for page, made in exercise_pages(language).items()}
each_exercise_page = pytest.mark.parametrize("path", EXERCISES)


def texts(page):
    """What the exercises of a page show: question, answer, whether it is folded."""
    return page.locator(".onegpu-exercise").evaluate_all("""all => all.map(e => [e.querySelector("p").textContent, e.querySelector("details p").textContent, !e.querySelector("details").open])""")


def due(path, seed):
    """What they should show for a seed."""
    return [[f"{e.number} {e.ask(seed)}", e.answer(seed), True] for e in EXERCISES[path]]


def address(page):
    """The page's link as it stands now."""
    return page.evaluate("location.href")


def seed_of(page):
    """The seed in the page's link."""
    return int(dict(parse_qsl(urlsplit(address(page)).query)).get("seed", 0))


@each_exercise_page
def test_another_one(visit, noise, path):
    """The button draws other numbers in all exercises of the page, as Python does; the link keeps them; the way back is there."""
    page, words = visit(path), labels.lookup("calculator.exercise")
    page.evaluate("history.replaceState(null, '', '?own=key#exercises')")
    assert texts(page) == due(path, 0)
    for i, root in enumerate(page.locator(".onegpu-exercise").all()):
        again, back = root.locator("button").all()
        assert again.inner_text() == words["another"] and (back.is_visible() or not i)
        before, seed = texts(page), seed_of(page)
        root.locator("summary").click()
        again.focus()
        page.keyboard.press("Enter" if i % 2 else "Space")
        assert seed_of(page) > seed and texts(page)[i][0] != before[i][0] and again.evaluate("e => e === document.activeElement")
        assert texts(page) == due(path, seed_of(page)) and words["variant"].format(seed=seed_of(page)) in root.inner_text()
        assert root.locator("p").first.get_attribute("aria-live") == "polite" and page.locator(".onegpu-exercise [aria-live=polite]").count() == 1
    last = seed_of(page)
    page.reload()
    assert texts(page) == due(path, last) and address(page).endswith(f"?own=key&seed={last}#exercises")
    page.locator(".onegpu-again").last.get_by_text(words["printed"]).click()
    assert texts(page) == due(path, 0) and address(page).endswith("?own=key#exercises") and not page.locator(".onegpu-again").get_by_text(words["printed"]).first.is_visible()
    assert page.evaluate("document.activeElement.textContent") == words["another"] and noise == []


@each_exercise_page
def test_a_link_with_a_seed(visit, noise, site, path):
    """A class opens one link and sees one variant; what is no seed shows the printed one."""
    page = visit(path)
    for query, seed in (("17", 17), ("-3", 0), ("9999999999", 0))[:3 if language_of(path) == "en" else 1]:
        page.goto(f"{(site / path).as_uri()}?seed={query}")
        assert texts(page) == due(path, seed), query
    assert noise == []


@each_exercise_page
def test_exercises_without_javascript(visit, path):
    """The printed variant stands, its answer folds, and no button promises more."""
    page = visit(path, java_script_enabled=False)
    for root, exercise in zip(page.locator(".onegpu-exercise").all(), EXERCISES[path], strict=True):
        assert root.locator("p").first.inner_text() == f"{exercise.number} {exercise.ask()}" and not root.locator("details p").is_visible()
        root.locator("summary").click()
        assert root.locator("details p").inner_text() == exercise.answer() and root.locator("button").count() == 0


# -- what a reader sees at once ----------------------------------------------------------------------

def test_says_what_is_not_as_printed(visit):
    """A value from another page is named, until a reset."""
    page = visit("chapters/02-compute-wall.html")
    page.goto(f"{page.url}?tokens=3000000000000")
    root = page.locator(CALCULATOR).first
    told = root.get_by_text("Not as printed: training tokens.")
    assert told.is_visible() and told.evaluate("e => !e.closest('[aria-live], [role=status]')")
    reset(root)
    assert root.get_by_text("Not as printed").count() == 0


@pytest.mark.parametrize("width, moves", [(1400, False), (360, True)])
def test_readouts_stay_in_sight(visit, width, moves):
    """Beside the controls; below them, in a narrow window, they scroll with the page."""
    page = visit("chapters/05-decide.html", viewport={"width": width, "height": 800})
    place = "() => Math.round(document.querySelector('.onegpu-results').getBoundingClientRect().top)"
    page.evaluate("() => scrollTo(0, scrollY + document.querySelector('.onegpu-grid').getBoundingClientRect().top + 50)")
    before = page.evaluate(place)
    page.evaluate("() => scrollBy(0, 100)")
    assert page.evaluate(place) == before - 100 * moves


def test_escape_closes_a_meaning(visit):
    """And it opens again when the pointer comes back."""
    page = visit("chapters/01-memory-wall.html")
    word, meaning = page.locator(".onegpu-term").first, page.locator(".onegpu-definition").first
    word.hover()
    assert meaning.is_visible()
    page.keyboard.press("Escape")
    assert meaning.is_hidden()
    page.mouse.move(0, 0)
    word.hover()
    assert meaning.is_visible()


def test_excerpts_are_prose(visit):
    """Without meanings of words, sources of equations and code."""
    text = """<div role="main">into <math><mi>k</mi><annotation>k</annotation></math> parts<span class="onegpu-definition">Pieces.</span>.<div class="cell_input">x = 1</div></div>"""
    assert visit("search.html").evaluate("text => Search.htmlToText(text)", text) == "into k parts."


@each_page
def test_equations_are_well_formed(visit, path):
    """Fractions and scripts of an equation have the parts that they need."""
    page = visit(path)
    assert page.evaluate("[...document.querySelectorAll('mfrac, msub, msup, munder, mover')].filter(e => e.children.length !== 2).map(e => e.outerHTML.slice(0, 100))") == []
