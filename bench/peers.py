"""The usual way, measured beside the book: a stock Jupyter Book page with ``interact``, and ``interact`` in JupyterLab."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import nbformat
import pages
from playwright.sync_api import Error

#: The memory of one training step, by hand, as a notebook usually has it.
INTERACT = """from ipywidgets import interact
@interact(params=(1, 100), per_param=(2, 20))
def memory(params=7, per_param=16):
    print(f"{params * per_param} GB")"""
CONFIG = "title: The usual way\nexecute: {execute_notebooks: force}\nlatex: {latex_documents: {targetname: book.tex}}\n"
TEXT = "# Memory\n\nThe training state of $N$ parameters takes\n\n$$M = 16 N$$\n"


def notebook(folder):
    """The peer's notebook and its book."""
    folder.mkdir(parents=True)
    found = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(TEXT), nbformat.v4.new_code_cell(INTERACT)],
                                     metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}})
    nbformat.write(found, folder / "index.ipynb")
    (folder / "_config.yml").write_text(CONFIG, "utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: index\n", "utf-8")


def stock(folder):
    """A stock page: its weight, what it asks from outside, and whether moving its slider changes what is printed."""
    tools = Path(sys.executable).parent
    done = subprocess.run([tools / "jupyter-book", "build", "."], cwd=folder, capture_output=True, text=True, env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    with pages.served(folder / "_build" / "html") as base, pages.browser() as chromium:
        found = pages.weigh(chromium, base, "index.html")
        page = chromium.new_page()
        page.goto(base + "index.html")
        page.wait_for_timeout(1500)
        sliders = page.locator("input[type=range], [role=slider]")
        before = page.locator("main").inner_text()
        if sliders.count():
            sliders.first.press("ArrowRight")
        page.wait_for_timeout(500)
        live = sliders.count() > 0 and page.locator("main").inner_text() != before
    return found, live


@contextmanager
def jupyterlab(folder):
    """JupyterLab on a folder; its address."""
    programs, port = Path(sys.executable).parent, "18888"
    server = subprocess.Popen([programs / "jupyter-lab", "--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"],
                              cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    base = f"http://localhost:{port}/lab"
    try:
        for _ in range(120):
            try:
                urlopen(base, timeout=1)
                break
            except OSError:
                time.sleep(0.5)
        yield base
    finally:
        server.terminate()
        server.wait()


#: From a key press on the slider to the changed print.
PRESS = """() => { window.press = null; window.times = [];
  const output = document.querySelector(".widget-output");
  document.addEventListener("keydown", () => { window.press = performance.now(); }, true);
  new MutationObserver(() => { if (window.press && /GB/.test(output.textContent)) { window.times.push(performance.now() - window.press); window.press = null; } })
    .observe(output, { childList: true, subtree: true, characterData: true }); }"""


def interact(folder):
    """The milliseconds from a key on a slider of ``interact`` to its print, in JupyterLab."""
    with jupyterlab(folder) as base, pages.browser() as chromium:
        page = chromium.new_page(viewport={"width": 1200, "height": 900})
        page.goto(base + "/tree/index.ipynb?reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        page.wait_for_selector("text=Python 3 (ipykernel) | Idle", timeout=60_000)
        page.locator(".jp-CodeCell .jp-InputArea-editor").first.click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".widget-output :text('GB')", timeout=60_000)
        handle = page.locator(".noUi-handle").first
        page.evaluate(PRESS)
        handle.focus()
        for _ in range(40):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(120)
        return page.evaluate("window.times")


def measure(folder, ours):
    """The table of the peers; ``ours`` is the book's median over all calculators, in milliseconds."""
    notebook(folder)
    found, live = stock(folder)
    lines = ["| what | measured |", "|---|---|",
             f"| stock Jupyter Book page with `interact` and one equation: transferred from its own server | {found['bytes'] / 1000:.1f} KB, {found['requests']} requests, {len(found['outside'])} of them outside (MathJax, require.js, widgets) |",
             f"| its slider computes without a kernel | {'yes' if live else 'no'} |"]
    try:
        times = interact(folder)
        middle, high = pages.middle(times)
        lines.append(f"| `interact` in JupyterLab: key → print, median / p95 | {middle:.1f} / {high:.1f} ms ({len(times)} keys) |")
        lines.append(f"| the same, over the book's median of all calculators ({ours:.1f} ms) | {middle / ours:.0f} × |")
    except (Error, subprocess.CalledProcessError, OSError) as error:
        lines.append(f"| `interact` in JupyterLab | not measured: {str(error).splitlines()[0]} |")
    return "\n".join(lines)
