"""The widget in JupyterLab and in Notebook 7, in a browser, with a kernel: a slider moved by keyboard is read in Python,
Python moves a slider, two calculators are linked, and an edited formula changes the equation and the calculator.
"""

import json
import os
import socket
import subprocess
import sys
import time
from math import pi, sqrt
from pathlib import Path
from urllib.request import urlopen

import nbformat
import pytest

from store_outputs import EXAMPLE, ROOT
from test_page import browser  # noqa: F401

#: Where each program shows a notebook.
PROGRAMS = {"JupyterLab": "lab/tree", "Notebook": "notebooks"}
#: The example's notebook is followed by these cells.
LINKED = """import ipywidgets

calculator = Calculator(period, title="One", start={"pendulum_length": 1, "gravity": 9.81})
other = Calculator(period, title="Other", start={"pendulum_length": 2, "gravity": 9.81})
link = ipywidgets.link((calculator, "params"), (other, "params"))
seen = []
calculator.observe(lambda change: seen.append(change["new"]["pendulum_length"]), "params")
display(calculator, other)"""
READ = """print("read", calculator.params["pendulum_length"], calculator.result["pendulum_period"], seen[-1:] == [calculator.params["pendulum_length"]], other.result == calculator.result)"""
SET = """calculator.params = {**calculator.params, "pendulum_length": 4}
print("set", other.params["pendulum_length"])"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Notebook 7, which also serves JupyterLab, on a folder with the notebook; its address."""
    folder = tmp_path_factory.mktemp("lab")
    example, section = (nbformat.read(path, 4) for path in (EXAMPLE, ROOT / "chapters" / "01-memory-wall.ipynb"))
    example.cells += [nbformat.v4.new_code_cell(source) for source in (LINKED, READ, SET)]
    for cell in (c for c in [*example.cells, *section.cells] if c.cell_type == "code"):
        cell.outputs, cell.execution_count = [], None  # what is seen later comes from this run
    for program in PROGRAMS:
        nbformat.write(example, folder / f"{program}-example.ipynb")
        nbformat.write(section, folder / f"{program}-section.ipynb")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    base, programs = f"http://localhost:{port}/", Path(sys.executable).parent
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")} | {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "spaces")}
    started = subprocess.Popen([programs / "jupyter-notebook", "--no-browser", "--allow-root", f"--ServerApp.port={port}", "--IdentityProvider.token=", "--LabApp.news_url=", f"--ServerApp.root_dir={folder}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | own | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "lib")})
    try:
        for _ in range(240):
            try:
                urlopen(base + "api", timeout=1)
                break
            except OSError:
                time.sleep(0.5)
        yield base
    finally:
        started.terminate()
        started.wait()


#: Every code cell has its number: none waits.
RAN = """() => [...document.querySelectorAll(".jp-Notebook .jp-CodeCell .jp-InputPrompt")].every(e => /\\d/.test(e.textContent))"""


class Opened:
    """A notebook in a program; its code cells by number."""

    def __init__(self, browser, server, program, kind):  # noqa: F811
        self.page = browser.new_page(viewport={"width": 1300, "height": 1800})
        self.page.set_default_timeout(60_000)
        name = f"{program}-{kind}.ipynb"
        self.page.goto(f"{server}{PROGRAMS[program]}/{name}?reset")  # JupyterLab would open again what was open
        for _ in range(240):  # the page says idle before it has a kernel
            with urlopen(server + "api/sessions") as answer:
                kernels = [s["kernel"] for s in json.load(answer) if s["path"] == name]
            if any(k["connections"] and k["execution_state"] == "idle" for k in kernels):
                break
            self.page.wait_for_timeout(250)
        self.settle()

    def cell(self, number):
        """A code cell."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def settle(self):
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", state="attached")
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")

    def run(self, number):
        """Run a cell, wait for its outputs."""
        self.cell(number).locator(".jp-InputArea-editor").click(position={"x": 200, "y": 8})
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_timeout(300)
        self.page.wait_for_function(RAN)
        self.settle()

    def run_all(self):
        """Restart and run all, from the menu."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Restart Kernel and Run All Cells").click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.wait_for_function(RAN)
        self.settle()

    def edit(self, number, source):
        """Replace a cell's text by keyboard."""
        self.cell(number).locator(".jp-InputArea-editor").click(position={"x": 200, "y": 8})
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def told(self, number):
        """What a cell printed."""
        return self.cell(number).locator(".jp-OutputArea-output").last.inner_text().split()


SETUP, FORMULA, VALUES, CALCULATOR, TWO, ASK, MOVE = range(7)


@pytest.mark.parametrize("program", PROGRAMS)
def test_notebook(server, browser, program):  # noqa: F811
    """All that a widget does with its kernel."""
    opened = Opened(browser, server, program, "example")
    opened.run_all()
    roots = opened.cell(TWO).locator(".onegpu")
    one, other = roots.nth(0), roots.nth(1)
    length = 'input[type="range"][data-name="pendulum_length"]'
    for box in (one, other):  # Python set both: one directly, one by the link
        box.locator("output").get_by_text("4.012 seconds").wait_for()
    one.locator(length).focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowRight")
    opened.page.wait_for_timeout(500)
    opened.run(ASK)
    word, moved, result, observed, linked = opened.told(ASK)
    assert word == "read" and float(moved) > 4 and float(result) == pytest.approx(2 * pi * sqrt(float(moved) / 9.81)) and observed == linked == "True"
    assert other.locator("output").text_content() == one.locator("output").text_content() != "4.012 seconds"
    before = opened.cell(FORMULA).locator(".jp-OutputArea-output").inner_text()
    source = next(c.source for c in nbformat.read(EXAMPLE, 4).cells if c.id == "formula")
    assert "2 * sp.pi" in source
    opened.edit(FORMULA, source.replace("2 * sp.pi", "6 * sp.pi"))
    opened.run(FORMULA)
    opened.run(CALCULATOR)
    assert "6" in (after := opened.cell(FORMULA).locator(".jp-OutputArea-output").inner_text()) and after != before
    opened.cell(CALCULATOR).locator("output").get_by_text("6.018 seconds").first.wait_for()


@pytest.mark.parametrize("program", PROGRAMS)
def test_section(server, browser, program):  # noqa: F811
    """A section of the book runs to its end; every calculator is live."""
    opened = Opened(browser, server, program, "section")
    opened.run_all()
    stored = nbformat.read(ROOT / "chapters" / "01-memory-wall.ipynb", 4)
    wanted = sum("onegpu-calculator" in str(c.get("outputs", "")) for c in stored.cells)
    assert wanted
    opened.page.wait_for_function("wanted => document.querySelectorAll('.jp-OutputArea-output .onegpu input[type=range]').length && document.querySelectorAll('.jp-OutputArea-output .onegpu').length >= wanted", arg=wanted)
    assert opened.page.locator('[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
