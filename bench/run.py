"""`make bench`: the book's budgets beside what is measured, and beside the usual way in the same run; written to bench/RESULTS.md."""

import gzip
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import nbformat
import pages
import peers

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent
SHOWN = ["index.html", *(f"chapters/{name}.html" for name in ("01-memory-wall", "05-decide", "07-one-is-enough"))]
OWN = ("calculator.js", "page.js", "calculator.css", "book.css")


def run(*command, cwd, check=True):
    """Run a command with the book's programs; its seconds."""
    start = time.perf_counter()
    environment = os.environ | {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(Path(cwd) / "lib")}
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise SystemExit(done.stdout)
    return time.perf_counter() - start


def build(folder):
    """Build a copy of the book, both editions, as `make book` does: seconds of all, of the notebooks, of section 06's alone, of an unchanged rebuild."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    fill = [sys.executable, "-c", "import sys; from pathlib import Path; sys.path.insert(0, 'tools'); import book; book.fill_caches(Path.cwd())"]
    notebooks = run(*fill, cwd=folder)
    clean = notebooks + run(sys.executable, "tools/book.py", cwd=folder)
    unchanged = run(sys.executable, "tools/book.py", cwd=folder)
    return clean, notebooks, compiler(folder), unchanged


def compiler(folder):
    """The seconds of section 06's notebook alone, most of which its compiler takes."""
    notebook = folder / "chapters" / "06-evidence.ipynb"
    code = "\n".join(c.source for c in nbformat.read(notebook, 4).cells if c.cell_type == "code")
    return run(sys.executable, "-c", f"display = print\n{code}", cwd=folder)


def importing():
    """The milliseconds of `import onegpu` and of `import sympy`, in turn, and their medians."""
    times = {"onegpu": [], "sympy": []}
    for _ in range(5):
        for name, found in times.items():
            found.append(run(sys.executable, "-c", f"import {name}", cwd=ROOT))
    return {name: median(found) for name, found in times.items()}


def ours(site):
    """The bytes of our own scripts and styles, and of the script made from the formulas, as gzip."""
    size = {n: len(gzip.compress((site / "_static" / n).read_bytes(), 6)) for n in (*OWN, "onegpu-site.js")}
    return sum(size[n] for n in OWN), size["onegpu-site.js"]


def verdict(value, limit, least=False):
    """Whether a budget is held."""
    return "held" if (value >= limit if least else value <= limit) else f"missed by {abs(value - limit):.3g}"


def table(rows):
    """Rows as Markdown."""
    lines = ["| what | budget | measured | |", "|---|---|---|---|", *("| " + " | ".join(map(str, r)) + " |" for r in rows)]
    return "\n".join(lines)


def kb(n):
    """Bytes as people read them."""
    return f"{n / 1000:.1f} KB"


def latency(chromium, base):
    """Rows for every calculator of the book."""
    rows, all_times = [], []
    for path in sorted(p.relative_to(SITE[0]).as_posix() for p in [*SITE[0].glob("*.html"), *SITE[0].glob("chapters/*.html")]):
        for found in pages.latencies(chromium, base, path):
            mid, high = pages.middle(found["times"])
            all_times += found["times"]
            rows.append((f"{found['title']} ({Path(path).stem}): event → readout, median / p95", "4 / 16 ms", f"{mid:.1f} / {high:.1f} ms ({found['cpu']:.1f} ms of the processor)",
                         f"{verdict(mid, 4)}, {verdict(high, 16)}"))
            if found["lists"]:
                mid, longest = pages.middle(found["lists"])[0], max(found["blocked"])
                rows.append(("its list of plans after the last event; longest callback", "50 / 16 ms", f"{mid:.0f} / {longest:.1f} ms", f"{verdict(mid, 50)}, {verdict(longest, 16)}"))
    return rows, median(all_times)


SITE = []


def main():
    """Measure, print and write."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        clean, notebooks, evidence, unchanged = build(scratch / "book")
        site = scratch / "book" / "_build" / "html"
        SITE.append(site)
        rows = [("clean build of both editions without section 06's own time", "60 s", f"{clean - evidence:.0f} s ({clean:.0f} s with its {evidence:.0f} s; notebooks {notebooks:.0f} s)", verdict(clean - evidence, 60)),
                ("unchanged rebuild", "5 s", f"{unchanged:.1f} s", verdict(unchanged, 5))]
        times = importing()
        rows.append(("`import onegpu` beyond `import sympy`", "0.1 s", f"{times['onegpu'] - times['sympy']:.2f} s", verdict(times["onegpu"] - times["sympy"], 0.1)))
        own, made = ours(site)
        rows += [("our own scripts and styles, gzip", "20 KB", kb(own), verdict(own / 1000, 20)), ("the script made from formulas and catalogues, gzip", "–", kb(made), "")]
        with pages.served(site) as base, pages.browser() as chromium:
            for path in SHOWN:
                found = pages.weigh(chromium, base, path)
                rows.append((f"first visit, {path}", "200 KB, 0 outside", f"{kb(found['bytes'])}, {found['requests']} requests, {len(found['outside'])} outside",
                             verdict(found["bytes"] / 1000, 200) + (", OUTSIDE" if found["outside"] else "")))
            more, mid = latency(chromium, base)
            rows += more
        with pages.served(site) as base:
            for path in SHOWN:
                found = pages.lighthouse(str(ROOT / ".venv" / "bench"), base + path)
                if found is None:
                    rows.append((f"Lighthouse, {path}", "95 / 100 / 100 / 100", "not installed: no package registry in reach", ""))
                    continue
                scores = list(found["scores"].values())
                rows.append((f"Lighthouse {found['version']} mobile, {path}", "95 / 100 / 100 / 100", " / ".join(map(str, scores)),
                             ("held" if scores[0] >= 95 and scores[1:] == [100] * 3 else "missed: " + ", ".join(found["wrong"] or ["performance"])) + f"; FCP {found['fcp'] / 1000:.1f} s, TBT {found['tbt']:.0f} ms, CLS {found['cls']:.3f}"))
        beside = peers.measure(scratch / "peer", mid)
    names = ("jupyter-book", "sphinx-book-theme", "anywidget", "ipywidgets", "sympy", "playwright")
    said = [f"Python {platform.python_version()}; " + "; ".join(f"{n} {version(n)}" for n in names),
            f"{os.cpu_count()} cores, load {load:.1f} at the start. Times are medians of one run: compare them with the peers beside them, not with another machine's."]
    text = "# What was measured\n\nWritten by `make bench`.\n\n" + "\n".join(said) + "\n\n" + table(rows) + "\n\n## Beside the usual way, in the same run\n\n" + beside + "\n"
    (ROOT / "bench" / "RESULTS.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
