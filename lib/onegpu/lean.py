"""What a reader downloads: the theme's styles, icons and scripts without what no page of the book uses.

The theme links ten stylesheets, an icon font with 1,400 icons and a component library. After
the build, the pages link one stylesheet of the rules that can match, a font of the icons that
those rules draw, a font of the mathematics that stands in the pages, and the scripts that do
something. Where the theme no longer looks as expected, the build fails and says so.
"""

import hashlib
import html
import os
import re
from importlib.metadata import version
from pathlib import Path

import rjsmin

SHEET = re.compile(r'[ \t]*<link\b[^>]*\bhref="([^"?]*_static/[^"?]*\.css)[^"]*"[^>]*>\n?')
SCRIPT = re.compile(r'[ \t]*<script\b[^>]*\bsrc="([^"?]*)[^"]*"[^>]*></script>\n?')
#: Removed from every page: an icon script of 1.5 MB whose icons the font has too, what preloads a font (blocked under
#: file://) or a script that is deferred anyway, the state of widgets that the page makes live without it, and a second viewport.
NEEDLESS = re.compile(r'\s*<script src="[^"]*fontawesome[^"]*\.js[^"]*"></script>|\s*<link rel="preload"[^>]*>'
                      r'|\s*<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>|(?<=/>)<meta name="viewport" content="width=device-width, initial-scale=1" />', re.S)
#: Scripts that only some pages need: what must stand in a page, else its script is left out.
NEEDED_BY = {"design-tabs.js": 'class="sd-tab', "copybutton.js": 'class="highlight', "clipboard.min.js": 'class="highlight'}
#: What page.js does in place of the theme's component library.
REPLACED, COMPONENTS = "scripts/bootstrap.js", {'toggle="dropdown"', 'toggle="tooltip"', 'spy="scroll"'}

STRING = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|url\([^)"\']*\)'
WORD = re.compile(r"-?[A-Za-z_][\w-]*")


class ThemeChanged(Exception):
    """The theme is not as this module expects."""


# -- a stylesheet without the rules that match nothing ----------------------------------------------

def statements(css):
    """The statements of a stylesheet: pairs of what stands before the braces and in them, which is None if there are none."""
    depth = start = opened = 0
    for token in re.finditer(STRING + "|[{};]", css):
        if token[0] == "{":
            depth += 1
            if depth == 1:
                opened = token.end()
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                yield css[start:opened - 1].strip(), css[opened:token.start()]
                start = token.end()
        elif token[0] == ";" and depth == 0:
            yield css[start:token.start()].strip(), None
            start = token.end()


def selectors(prelude):
    """The selectors of a rule, split at the commas outside brackets."""
    parts, depth = [""], 0
    for c in prelude:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def can_match(selector, names):
    """Whether all tags, classes and ids of a selector stand in the pages; what a pseudo-class says in brackets is taken to hold."""
    plain = re.sub(r"\[[^\]]*\]", "", selector)
    while plain != (plain := re.sub(r"::?[\w-]+(\([^()]*\))?|\([^()]*\)", "", plain)):
        pass
    return all(name in names for name in WORD.findall(plain.replace("\\", "")))


def purge(css, names):
    """A stylesheet without the rules that cannot match."""
    kept = []
    for prelude, body in statements(css):
        prelude = re.sub(r"\s+", " ", prelude)
        if body is None:
            kept.append(f"{prelude};")
        elif prelude.startswith(("@media", "@supports", "@container", "@layer")):
            kept.append(block(prelude, purge(body, names)))
        elif prelude.startswith("@"):
            kept.append(block(prelude, body))
        else:
            kept.append(block(",".join(s for s in selectors(prelude) if can_match(s, names)), body))
    return "".join(kept)


def block(prelude, body):
    """A statement with braces, or nothing if either side is empty."""
    body = re.sub(rf"({STRING})|\s+", lambda m: m[1] or " ", body).strip()
    return f"{prelude}{{{body}}}" if prelude and body else ""


def unnamed(css, elsewhere):
    """A stylesheet without the fonts, animations and variables that nothing names."""
    blocks = re.compile(r"@(?:-webkit-)?(font-face|keyframes)\s*([\w-]*)\s*(\{(?:[^{}]|\{[^{}]*\})*\})\n?")
    rest = blocks.sub("", css)

    def named(block):
        name = block[2] or re.search(r"font-family:\s*[\"']?([^\"';}]+)", block[3])[1]
        return block[0] if name in rest else ""

    css = blocks.sub(named, css)
    variable = re.compile(r"(?<=[{;])\s*(--[\w-]+)\s*:(?:" + STRING + r"|[^;{}\"'])*(;|(?=\}))")
    while True:
        used = set(re.findall(r"var\(\s*(--[\w-]+)", css + elsewhere)) | set(re.findall(r"[\"'](--[\w-]+)[\"']", elsewhere))
        shorter = re.sub(r"(?:^|(?<=[}\n]))[^{}@]+\{\}\n?", "", variable.sub(lambda v, used=used: v[0] if v[1] in used else "", css))
        if shorter == css:
            return css
        css = shorter


def read(path, static):
    """A stylesheet with what it imports, without comments and needless space, its addresses from the folder of static files."""
    def moved(match):
        return match[0] if re.match(r"data:|#|[a-z]+:", match[1]) else f"url({Path(os.path.relpath(path.parent / match[1], static)).as_posix()})"

    css = re.sub(rf"({STRING})|/\*.*?\*/", lambda m: m[1] or "", path.read_text("utf-8-sig"), flags=re.S)
    css = re.sub(rf"({STRING})|\s*([{{}};])\s*|\s+", lambda m: m[1] or m[2] or " ", css)
    css = re.sub(r'@charset "[^"]*";', "", css)
    css = re.sub(r"@import ([\"'][^\"']+[\"'])", r"@import url(\1)", css)
    css = re.sub(r"url\([\"']?([^\"')]+)[\"']?\)", moved, css)
    return re.sub(r"@import url\(([^?)]+)[^)]*\);", lambda m: read(static / m[1], static), css)


def names_in(pages, scripts):
    """The tags, classes and ids of pages, and every word in a script's strings: a script may make what it names."""
    found = {"before", "after", *re.findall(r"<([a-z][\w-]*)", pages)}
    for values in re.findall(r'\b(?:class|id)="([^"]*)"', pages):
        found.update(values.split())
    for string in re.findall(r'"[^"\n]*"|\'[^\'\n]*\'|`[^`]*`', scripts):
        found.update(WORD.findall(string))
    return found


# -- fonts -------------------------------------------------------------------------------------------

def write_icons(css, font, path):
    """Of an icon font, the icons that a stylesheet draws."""
    from fontTools import subset

    drawn = "".join(re.findall(r"(?:content|--[\w-]*(?:icon|caret|content)[\w-]*)\s*:\s*[\"']([^\"']*)[\"']", css))
    codes = {int(c, 16) for c in re.findall(r"\\([0-9a-fA-F]{2,6})", drawn)} | {ord(c) for c in drawn}
    options = subset.Options(flavor="woff2", layout_features=[], hinting=False)
    loaded = subset.load_font(str(font), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=codes & set(loaded.getBestCmap()))
    subsetter.subset(loaded)
    subset.save_font(loaded, str(path), options)


def italic(c):
    """The letter of the mathematical alphabet that a browser shows for a variable of one letter."""
    if c == "h":
        return "\u210e"
    for first, last, to in (("A", "Z", 0x1D434), ("a", "z", 0x1D44E), ("\u0391", "\u03a9", 0x1D6E2), ("\u03b1", "\u03c9", 0x1D6FC)):
        if first <= c <= last:
            return chr(to + ord(c) - ord(first))
    return c


def mathematics(pages):
    """The characters that a font needs for the mathematics of pages: those of its text, and the sign that a root draws itself."""
    found = set("0123456789")
    if re.search("<m(sqrt|root)", pages):
        found.add("√")
    for formula in re.findall(r"<math\b.*?</math>", pages, re.S):
        found.update(html.unescape(re.sub(r"<annotation.*?</annotation>|<[^>]*>", "", formula, flags=re.S)))
    return found | set(map(italic, found))


def write_mathematics(characters, path):
    """These characters out of STIX Two Math (SIL Open Font License)."""
    import ziamath
    from fontTools import subset

    options = subset.Options(flavor="woff2", layout_features=[], hinting=False)
    options.drop_tables += ["GPOS", "kern"]
    font = subset.load_font(next((Path(ziamath.__file__).parent / "fonts").glob("STIXTwoMath*")), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, characters))
    subsetter.subset(font)
    subset.save_font(font, str(path), options)


# -- the pages ---------------------------------------------------------------------------------------

def compact(script):
    """A script without comments and needless space."""
    return rjsmin.jsmin(script)


def only(found, what):
    """The one thing that should have been found."""
    found = list(found)
    if len(found) != 1:
        raise ThemeChanged(f"expected one {what}, found {len(found)}: see {__name__}")
    return found[0]


def lighten(page, static):
    """A page without what it does not need, its scripts deferred."""
    page = NEEDLESS.sub("", page)

    def script(match):
        name = match[1].rpartition("_static/")[2]
        if name == REPLACED:
            unknown = set(re.findall(r'data-bs-((?:toggle|spy)="\w+")', page)) - COMPONENTS
            if unknown:
                raise ThemeChanged(f"{unknown} needs {name}, and page.js does not do it")
            return ""
        if NEEDED_BY.get(name, "") not in page:
            return ""
        if name == "documentation_options.js":  # a script in the page needs it at once
            return f"<script>{(static / name).read_text('utf-8')}</script>\n"
        return match[0] if " defer" in match[0] else match[0].replace("<script", "<script defer", 1)

    return SCRIPT.sub(script, page)


def stylesheet(pages, static, sheets, own):
    """The one stylesheet of the site, with our own sheets whole, and the characters of its mathematics."""
    everything = "".join(pages.values())
    scripts = {static / m[1].rpartition("_static/")[2] for m in SCRIPT.finditer(everything)}
    code = "".join(p.read_text("utf-8") for p in sorted(scripts) if p.is_file())
    names = names_in(everything, code)
    texts = [(sheet, read(static / sheet, static)) for sheet in sheets]
    css = "".join(text if sheet in own else purge(text, names) for sheet, text in texts)
    return unnamed(css, everything + code), mathematics(everything)


def pages_of(out):
    """The pages of a built edition, without those of another one in a folder of its own."""
    others = {p.parent for p in out.glob("*/_static")}
    return sorted(p for p in out.rglob("*.html") if "_static" not in p.parts and others.isdisjoint(p.parents))


def trim(out, own):
    """Lighten every page of a built site that has not been lightened yet, and write what they all link.

    Parameters
    ----------
    out : Path
        The folder of the built site
    own : sequence of str
        Our own stylesheets: they have no rule to spare

    Raises
    ------
    ThemeChanged
        If the theme is not as this module expects
    """
    static = out / "_static"
    texts = {p: p.read_text("utf-8") for p in pages_of(out)}
    pages = {p: text for p, text in texts.items() if SHEET.search(text)}  # a page that only redirects has no styles
    fresh = [p for p, page in pages.items() if "_static/site.css?" not in page]
    if not fresh:  # Sphinx has written nothing
        return
    sheets = list(dict.fromkeys(m[1].rpartition("_static/")[2] for p in fresh for m in SHEET.finditer(pages[p])))
    if len(sheets) < 5 or not all((static / s).is_file() for s in sheets):
        raise ThemeChanged(f"the pages link these stylesheets: {sheets}")
    for p in fresh:
        pages[p] = lighten(pages[p], static)
    css, characters = stylesheet(pages, static, sheets, own)
    icons = only(static.glob("vendor/fontawesome/*/webfonts/fa-solid-900.woff2"), "font of icons")
    css, n = re.subn(r"(@font-face\{[^}]*font-weight:900;?[^}]*src:)[^;}]*fa-solid-900\.woff2[^;}]*", r"\1url(icons.woff2)", css)
    if not n:
        raise ThemeChanged("no rule names the font of icons")
    stamp = f"/* {digest(css, sorted(characters), version('fonttools'))} */"
    sheet = static / "site.css"
    if not sheet.is_file() or not sheet.read_text("utf-8").startswith(stamp):
        write_icons(css, icons, static / "icons.woff2")
        write_mathematics(characters, static / "math.woff2")
        sheet.write_text(f"{stamp}\n{css}", "utf-8")
    for p, page in pages.items():
        root = "../" * (len(p.relative_to(out).parts) - 1)
        link = f'    <link rel="stylesheet" href="{root}_static/site.css?v={stamp[3:11]}" />\n'
        links = SHEET.finditer(page)
        first = next(links)
        new = page[:first.start()] + link + SHEET.sub("", page[first.end():])
        if new != p.read_text("utf-8"):
            p.write_text(new, "utf-8")


def digest(*parts):
    """A short hash."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
