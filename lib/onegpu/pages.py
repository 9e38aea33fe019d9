"""What makes the book's pages easy to find, to share and to trust; part of the extension ``onegpu.book``.

Formulas and symbols stand in the index, so that the search finds them by name. The first use of
each word of the glossary shows its meaning. Each page describes itself, says which version it is,
and leads to its source if the book has a public address.
"""

import json
import os
import re
import subprocess
import tomllib
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from docutils import nodes
from sphinx import addnodes
from sphinx.domains import Domain, ObjType
from sphinx.search.zh import SearchChinese
from sphinx.transforms import SphinxTransform

from onegpu import __version__

from . import labels, lean
from .calculator import HERE, modules
from .formula import REGISTRY

#: A text may link its words inside these only: no heading, link, code, mathematics, table or output of a cell.
PROSE = (nodes.document, nodes.section, nodes.block_quote, nodes.bullet_list, nodes.enumerated_list, nodes.list_item, nodes.paragraph, nodes.emphasis, nodes.strong)
#: About as much of a description as a search engine shows.
DESCRIPTION = 200
#: The project, and its editions: the folder of each by its language; the English one is at the root.
ROOT = HERE.parents[1]
EDITIONS = {n: "" if n == "en" else n for n in labels.languages() if n == "en" or (ROOT / n / "_config.yml").is_file()}
#: The branch that holds the published site.
PUBLISHED = "gh-pages"
#: Pages that are no document of the book.
MISSING, SEARCH = "404", "search"
#: The search's excerpts: none on the disk, where a page must not fetch another one; elsewhere of what a reader sees as prose.
EXCERPTS = """if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
addEventListener("DOMContentLoaded", () => {
  const whole = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    page.querySelectorAll(".onegpu-definition, annotation, .cell_input").forEach(e => e.remove());
    const html = page.documentElement.outerHTML;
    return whole(html, anchor) || whole(html);  // an equation has no words of its own
  };
});"""


def word(key, **fields):
    """A text of the pages, in the language of the edition; empty if there is none."""
    found = labels.lookup(f"page.{key}")
    return found.format(**fields) if isinstance(found, str) else ""


# -- formulas and symbols, for the search and the index ----------------------------------------------

def plain(latex):
    """A short equation or symbol as one types it, e.g. ``6·N·D``; empty if it has more than products, sums and subscripts."""
    text = re.sub(r"\s*\\,\s*", "·", re.sub(r"\\text\{([^{}]*)\}", r"\1", latex))
    text = re.sub(r"\\([a-zA-Z]+)", lambda m: m[1] if m[1] in GREEK else m[0], text).strip()
    return "" if re.search(r"[\\{}]", text) or len(text) > 40 else text


GREEK = ("beta", "epsilon", "eta", "lambda", "rho", "tau")


def formula_entries(formula):
    """Under what a formula is found: its name, its label, and what stands right of the equals sign."""
    latex = re.sub(r"\\tag\{[^}]*\}|\$", "", formula.latex)
    right = plain(latex.partition("=")[2])
    joined = right.replace("·", "") if re.fullmatch(r"\w(·\w)+", right) else ""
    return [t for t in (formula.name, formula.result.label, right, joined) if t]


def quantity_entries(quantity):
    """Under what a quantity is found: its name, its label, and its symbol."""
    return [t for t in (quantity.name, quantity.label, plain(quantity.tex)) if t]


class Formulas(Domain):
    """The formulas and symbols of the book, which the search shows by their names."""

    name = label = "onegpu"
    object_types = {"formula": ObjType("formula"), "symbol": ObjType("symbol")}
    initial_data = {"objects": {}}

    def note(self, page, kind, names, target):
        """Keep the names of what stands at the id ``target`` of a page."""
        self.data["objects"].setdefault(page, []).extend((name, kind, target) for name in names)

    def get_objects(self):
        """As Sphinx asks for them: name, shown name, kind, page, id, priority."""
        for page, objects in self.data["objects"].items():
            for name, kind, target in objects:
                yield name, name, kind, page, target, 0

    def get_type_name(self, type, primary=False):
        """What the search calls a kind."""
        return word(f"kind.{type.lname}")

    def clear_doc(self, docname):
        """Forget a page that is read again."""
        self.data["objects"].pop(docname, None)

    def merge_domaindata(self, docnames, otherdata):
        """Take what another process read."""
        self.data["objects"].update((p, o) for p, o in otherdata["objects"].items() if p in docnames)


class IndexEntries(SphinxTransform):
    """Make the numbered equations and the rows of the table of symbols known to the search and the index."""

    default_priority = 710  # after the equations have their targets

    def apply(self, **kwargs):
        """Add index nodes to this page."""
        formulas = {f"eq-{f.name}": f for m in modules() for f in m._section.formulas}
        for node in list(self.document.findall(nodes.math_block)):
            name = next((n for n in node.get("names", ()) if n in formulas), None)
            if name and node["ids"]:
                node.parent.insert(node.parent.index(node), self.known("formula", formula_entries(formulas[name]), node["ids"][0]))
        if self.env.docname == "symbols":
            self.rows()
        for node in self.document.findall(addnodes.index):  # all that begins with a Chinese character stands under one heading
            node["entries"] = [(*e[:4], word("index") if re.match(r"[\u4e00-\u9fff]", e[1]) else e[4]) for e in node["entries"]]

    def rows(self):
        """Each row of the table gets an id and its entries."""
        for row in self.document.findall(nodes.row):
            quantity = next((REGISTRY[t.astext()] for t in row.findall(nodes.literal) if t.astext() in REGISTRY), None)
            target = quantity is not None and f"symbol-{quantity.name}"
            if target and target not in self.document.ids:
                row["ids"].append(target)
                self.document.ids[target] = row
                next(iter(row.findall(nodes.paragraph))).insert(0, self.known("symbol", quantity_entries(quantity), target))

    def known(self, kind, entries, target):
        """Note the names, which are written without spaces, and give the index node with all entries."""
        entries = list({e.lower(): e for e in reversed(entries)}.values())[::-1]
        self.env.get_domain("onegpu").note(self.env.docname, kind, [e for e in entries if " " not in e], target)
        return addnodes.index(entries=[("single", e.replace(";", ","), target, "", None) for e in entries])


class Chinese(SearchChinese):
    """Chinese search that knows the words of this book, and cuts what a reader asks for as the pages were cut."""

    js_splitter_code = r"""
var splitQuery = query => query.split(/[^\p{L}\p{N}_]+/u).flatMap(part => part.match(/\p{Script=Han}+|\P{Script=Han}+/gu) || []).flatMap(run => {
  if (!/\p{Script=Han}/u.test(run)) return [run];
  const known = word => Object.hasOwn(Search._index.terms, word) || Object.hasOwn(Search._index.titleterms, word), words = [];
  for (let at = 0; at < run.length;) {  // the longest word of the index that begins here
    let end = run.length;
    while (end > at + 1 && !known(run.slice(at, end))) end--;
    if (end > at + 1 || known(run[at])) words.push(run.slice(at, end));
    at = end;
  }
  return words.length ? words : [run];
});
"""

    def init(self, options):
        """Teach the words."""
        import jieba

        jieba.setLogLevel("WARNING")
        super().init(options)
        for term in tomllib.loads((ROOT / "zh" / "terms.toml").read_text("utf-8"))["term"]:
            jieba.add_word(term["zh"])


# -- the glossary ----------------------------------------------------------------------------------

class Term(nodes.inline):
    """A word of the glossary where a page uses it first."""


def visit_term(writer, node):
    """A link to the glossary, with the definition beside it for who points at it or tabs to it."""
    target, name = escape(node["target"]), escape(f"about-{node['name']}")
    writer.body.append(f'<span class="onegpu-term"><a class="reference internal" href="{target}" aria-describedby="{name}">')


def depart_term(writer, node):
    """The definition."""
    writer.body.append(f'</a><span class="onegpu-definition" role="tooltip" id="{escape("about-" + node["name"])}">{escape(node["definition"])}</span></span>')


def only_the_word(writer, node):
    """In a format without links, the word alone."""


def glossary(env):
    """The glossary of the book: (names, page, id, definition) for each entry."""
    found = []
    for page in sorted({page for (kind, _), (page, _) in env.get_domain("std").objects.items() if kind == "term"}):
        for item in env.get_doctree(page).findall(nodes.definition_list_item):
            terms = [t for t in item.children if isinstance(t, nodes.term)]
            definition = " ".join(" ".join(d.astext().split()) for d in item.children if isinstance(d, nodes.definition))
            if terms and terms[0]["ids"]:
                found.append(([t.astext() for t in terms], page, terms[0]["ids"][0], definition))
    return found


def read_glossary(app, env):
    """Keep the glossary; when it has changed, every page is written again."""
    old, env.onegpu_glossary = getattr(env, "onegpu_glossary", None), glossary(env)
    return [] if env.onegpu_glossary == old else list(env.found_docs)


def pattern(name):
    """How a word is found: as it is written, or with a capital at the start and an s at the end; letters other than Latin ones need no space around them."""
    start = f"[{name[0]}{name[0].upper()}]" if re.match("[a-z]", name) else re.escape(name[0])
    middle = re.sub(r"\\[ -]", r"[\\s-]", re.escape(name[1:]))
    before = "(?<![A-Za-z0-9_-])" if re.match("[A-Za-z0-9]", name) else ""
    after = "s?(?![A-Za-z0-9_])" if re.search("[A-Za-z0-9]$", name) else ""
    return before + start + middle + after


def finder(terms):
    """A pattern for any of the glossary's words, the longest first, and the entry for each of its groups."""
    names = sorted(((n, k) for k, (ns, *_) in enumerate(terms) for n in ns), key=lambda pair: -len(pair[0]))
    return re.compile("|".join(f"({pattern(n)})" for n, _ in names)), [k for _, k in names]


def in_prose(text):
    """The paragraph in which a text node stands, if it stands in nothing that is not prose."""
    node, paragraph = text.parent, None
    while node is not None:
        if not isinstance(node, PROSE):
            return None
        paragraph = paragraph or (node if isinstance(node, nodes.paragraph) else None)
        node = node.parent
    return paragraph


def link_terms(app, doctree, page):
    """Link the first use of each word of the glossary on a page."""
    terms = getattr(app.env, "onegpu_glossary", [])
    if app.builder.format != "html" or not terms or page in {t[1] for t in terms}:
        return
    find, entries = finder(terms)
    seen = set()
    for text in list(doctree.findall(nodes.Text)):
        paragraph = in_prose(text)
        if paragraph is None:
            continue
        parts, at, whole = [], 0, text.astext()
        for match in find.finditer(whole):
            entry = entries[match.lastindex - 1]
            if entry in seen:
                continue
            seen.add(entry)
            _, where, target, definition = terms[entry]
            address = f"{app.builder.get_relative_uri(page, where)}#{target}"
            parts += [nodes.Text(whole[at:match.start()]), Term("", match[0], target=address, name=target, definition=definition)]
            at = match.end()
        if parts:
            paragraph["classes"].append("onegpu-terms")
            text.parent.replace(text, [p for p in (*parts, nodes.Text(whole[at:])) if p.astext()])


# -- what a page says of itself --------------------------------------------------------------------

def description(doctree):
    """The first paragraph of a page, with the list that it introduces, at most about as long as it is shown."""
    section = next(iter(doctree.findall(nodes.section)), None)
    after = [n for n in section.children if isinstance(n, (nodes.paragraph, nodes.bullet_list))][:2] if section else []
    if not after or not isinstance(after[0], nodes.paragraph):
        return ""
    text = " ".join(after[0].astext().split())
    if len(after) == 2 and isinstance(after[1], nodes.bullet_list) and section.index(after[1]) == section.index(after[0]) + 1:
        goals = [" ".join(i.astext().split()).rstrip(".;。；") for i in after[1].children]
        text += word("goals") + goals.pop(0)
        while goals and len(text) + len(goals[0]) < DESCRIPTION:
            text += labels.text("join.parts") + goals.pop(0)
        text += labels.text("join.stop").rstrip()
    return text


def describe(app, page, template, context, doctree):
    """Give each page a description, for search engines and for whoever shares its link."""
    title = re.sub("<[^>]*>", "", context.get("title") or "")
    text = (doctree is not None and description(doctree)) or word(f"description.{page}", title=context["docstitle"]) or title
    tags = {"name": {"description": text}, "property": {"og:title": title, "og:description": text, "og:type": "article", "og:site_name": context["docstitle"]}}
    if page == MISSING:
        tags = {"name": {"description": text, "robots": "noindex"}}
        context["pageurl"] = None
    elif context.get("pageurl"):
        tags["property"]["og:url"] = context["pageurl"]
    written = "".join(f'<meta {kind}="{escape(name)}" content="{escape(value)}" />\n' for kind, group in tags.items() for name, value in group.items() if value)
    context["metatags"] = (base(app) if page == MISSING else "") + written + context.get("metatags", "")
    if page == SEARCH:
        app.add_js_file(None, body=EXCERPTS, priority=900)


# -- the editions ----------------------------------------------------------------------------------

def edition(app):
    """The language of the book that is built."""
    return next((n for n, folder in EDITIONS.items() if folder and Path(app.srcdir).resolve() == (ROOT / folder).resolve()), "en")


class SameSections(SphinxTransform):
    """Give a translated page's sections the ids that they have in English, so that a link to one leads to the same one in any language."""

    default_priority = 250  # before anything takes the ids that the headings give

    def apply(self, **kwargs):
        """Name the sections of this page in their order."""
        names = headings(ROOT / f"{self.env.docname}") if edition(self.app) != "en" else []
        for section, name in zip(self.document.findall(nodes.section), names, strict=False):
            if name not in self.document.ids:
                section["ids"] = [name, *section["ids"]]
                self.document.ids[name] = section


def headings(page):
    """The ids that the headings of an English page give."""
    notebook, text = page.with_suffix(".ipynb"), page.with_suffix(".md")
    if notebook.is_file():
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        source = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    else:
        source = text.read_text("utf-8") if text.is_file() else ""
    return [nodes.make_id(t) for t in re.findall(r"^#+ +(.*)", source, re.M)]


def others(app, page):
    """The same page in the other editions: (language, address as it is written on this page)."""
    own, folders = edition(app), {n: ROOT / folder for n, folder in EDITIONS.items()}
    up = "../" * (page.count("/") + bool(EDITIONS[own]))
    written = app.builder.get_target_uri(page)
    for language, folder in EDITIONS.items():
        if language != own and (page not in app.env.found_docs or any((folders[language] / page).with_suffix(s).is_file() for s in (".ipynb", ".md"))):
            yield language, up + "/".join(filter(None, [folder, written]))


def open_in_colab(app, page, template, context, doctree):
    """A button that opens the page's notebook in Colab, if it was published at GitHub."""
    address = colab(repository(app.config), EDITIONS[edition(app)], page)
    if address and doctree is not None and str(app.env.doc2path(page)).endswith(".ipynb"):
        context["header_buttons"].append({"type": "link", "url": address, "text": "Colab", "label": "launch-colab"})


def switch(app, page, template, context, doctree):
    """A button that leads to the same page in another language, and what tells search engines of it; only where the editions stand side by side."""
    if not os.environ.get("ONEGPU_EDITIONS") or page == MISSING:
        return
    for language, address in others(app, page):
        name = labels.load(language)["page"]["language"]
        context["header_buttons"].append({"type": "link", "url": address, "text": name, "tooltip": name, "label": f"language-{language}"})
    site = app.config.html_baseurl
    if site and page in app.env.found_docs:  # a search engine wants whole addresses
        pages = {edition(app): app.builder.get_target_uri(page).rpartition("/")[2], **dict(others(app, page))}
        for language, address in pages.items():
            context["metatags"] += f'<link rel="alternate" hreflang="{language}" href="{escape(urljoin(site + app.builder.get_target_uri(page), address))}" />\n'


# -- where the book lives --------------------------------------------------------------------------

def locate(app, config):
    """Take the addresses of the site and of its repository, if there are any, from the environment or from _config.yml."""
    if site := os.environ.get("ONEGPU_ADDRESS"):
        config.html_baseurl = "/".join([site.rstrip("/"), *filter(None, [EDITIONS[edition(app)]]), ""])
    options = config.html_theme_options
    options.update(source_options(repository(config), EDITIONS[edition(app)]))
    options["extra_footer"] = options.get("extra_footer", "") + f"<p>{escape(version_line(app))}</p>\n"


def repository(config):
    """The address of the book's repository, without a trace of git, or empty."""
    return (os.environ.get("ONEGPU_REPOSITORY") or config.onegpu_repository).rstrip("/").removesuffix(".git")


def source_options(repository, folder):
    """The theme's buttons that lead to the source: none without a repository's address.

    Parameters
    ----------
    repository : str
        Address of a repository at GitHub, GitLab or Bitbucket, or empty
    folder : str
        The edition's folder in it
    """
    if not repository:
        return {"use_edit_page_button": False}
    return {"repository_url": repository, "repository_branch": "main", "path_to_docs": folder,
            "use_edit_page_button": True}


def colab(repository, folder, page):
    """Where Colab opens a page's notebook as it was published, with the library inside; empty if the repository is not at GitHub.

    >>> colab("https://github.com/someone/book", "zh", "chapters/03-scale-out")
    'https://colab.research.google.com/github/someone/book/blob/gh-pages/zh/_sources/chapters/03-scale-out.ipynb'
    """
    parts = urlsplit(repository)
    path = "/".join(filter(None, [folder, "_sources", page]))
    return f"https://colab.research.google.com/github{parts.path}/blob/{PUBLISHED}/{path}.ipynb" if parts.hostname == "github.com" else ""


def build_date(folder):
    """The day of the sources, so that two builds of one commit are equal: SOURCE_DATE_EPOCH, else the last commit's, else empty."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        try:
            seconds = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat() if seconds else ""


def version_line(app):
    """The version, with the day of its sources if it is known."""
    date = build_date(app.srcdir)
    return word("version_of", version=__version__, date=date) if date else word("version", version=__version__)


def base(app):
    """Where the links of the page for missing pages start, at whatever depth it is shown: at the site's address, else at the server's root."""
    return f'<base href="{escape(urlsplit(app.config.html_baseurl).path or "/")}" />\n'


def missing_page(app):
    """The page that a server shows when there is none."""
    title, home = word("missing.title"), app.builder.get_target_uri(app.config.root_doc)
    links = f'<a class="reference internal" href="{home}">{escape(word("missing.home"))}</a>', f'<a class="reference internal" href="{SEARCH}.html">{escape(word("missing.search"))}</a>'
    yield MISSING, {"title": title, "body": f"<h1>{escape(title)}</h1>\n<p>{escape(word('missing.text'))}</p>\n<ul><li>{links[0]}</li>\n<li>{links[1]}</li></ul>\n"}, "page.html"


def translate(page):
    """A page with the theme's words in the language of the edition, where the theme itself leaves them in English."""
    for english, own in (labels.lookup("page.theme") or {}).items():
        page = re.sub(rf'([">]\s*){re.escape(english)}(?=\s*["<])', lambda m, own=own: m[1] + own, page)
    return page


def finish_pages(app, error):
    """Write the list of pages for search engines, if the site has an address; mend the links within the page for missing pages, and the theme's words."""
    if error or app.builder.format != "html":
        return
    out, address = Path(app.outdir), app.config.html_baseurl
    if address:
        pages = "".join(f"<url><loc>{escape(address.rstrip('/') + '/' + app.builder.get_target_uri(p))}</loc></url>\n" for p in sorted(app.env.found_docs))
        (out / "sitemap.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{pages}</urlset>\n', "utf-8")
    page = out / f"{MISSING}.html"
    if page.is_file():  # with a base address, a bare fragment would lead to the front page
        page.write_text(re.sub(r'href="#', f'href="{MISSING}.html#', page.read_text("utf-8")), "utf-8")
    for page in lean.pages_of(out) if labels.lookup("page.theme") else ():
        was = page.read_text("utf-8")
        if (now := translate(was)) != was:
            page.write_text(now, "utf-8")


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("onegpu_repository", "", "html", str)
    app.add_node(Term, html=(visit_term, depart_term), latex=(only_the_word, only_the_word), text=(only_the_word, only_the_word))
    app.add_domain(Formulas)
    app.add_transform(IndexEntries)
    app.add_transform(SameSections)
    app.connect("config-inited", locate)
    app.connect("env-updated", read_glossary)
    app.connect("doctree-resolved", link_terms)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", open_in_colab, priority=502)
    app.connect("html-page-context", switch, priority=502)  # after the theme's own buttons
    app.add_search_language(Chinese)
    app.connect("html-collect-pages", missing_page)
    app.connect("build-finished", finish_pages)
