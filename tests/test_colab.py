"""Every notebook as Colab opens it: alone in an empty directory, on Colab's versions, and with the numbers that are stored.

``ONEGPU_COLAB`` names the Pythons of such environments (``make colab`` sets them up from ``colab.txt``); without it the
book's own environment is tried, with a few notebooks.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from store_outputs import ROOT, WIDGET, notebooks

sys.path.insert(0, str(ROOT / "tools"))
import book  # noqa: E402

PYTHONS = [p for p in os.environ.get("ONEGPU_COLAB", "").split(os.pathsep) if p]
FEW = [ROOT / "index.ipynb", ROOT / "zh" / "symbols.ipynb"]
#: The address that notebooks are published with; git is told to find it on this machine.
ADDRESS = "https://example.org/someone/book"
#: Colab has a module of its own, which some libraries ask for.
STAND_IN = "class output:\n    enable_custom_widget_manager = staticmethod(lambda: None)\n"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A kernel for each Python, the stand-in module, and a git that finds the repository here."""
    folder = tmp_path_factory.mktemp("colab")
    (folder / "modules" / "google" / "colab").mkdir(parents=True)
    (folder / "modules" / "google" / "colab" / "__init__.py").write_text(STAND_IN)
    for i, python in enumerate(PYTHONS or [sys.executable]):
        kernel = folder / "kernels" / f"colab{i}"
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(json.dumps({"argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Colab", "language": "python"}))
    (folder / "gitconfig").write_text(f'[url "{ROOT.as_uri()}"]\n\tinsteadOf = {ADDRESS}\n[safe]\n\tdirectory = *\n')
    return folder


def client(notebook, folder, place, kernel, monkeypatch, library=""):
    """What executes a notebook in a folder of its own, where only Colab's packages are, and the library if it is given."""
    for name, value in {"JUPYTER_PATH": str(place), "PYTHONPATH": os.pathsep.join(filter(None, [str(place / "modules"), str(library)])), "GIT_CONFIG_GLOBAL": str(place / "gitconfig"), "PYTHONNOUSERSITE": "1"}.items():
        monkeypatch.setenv(name, value)
    return NotebookClient(notebook, timeout=600, kernel_name=kernel, record_timing=False, resources={"metadata": {"path": str(folder)}})


def run(notebook, *place):
    """A notebook after its execution."""
    client(notebook, *place).execute()
    return notebook


def told(cell):
    """What a cell's outputs say, but for drawings, whose paths change between releases of Matplotlib, and for the widget's model."""
    texts = [o.get("text", "") for o in cell.get("outputs", ())]
    kept = [{k: v for k, v in o.get("data", {}).items() if k not in (WIDGET, "image/svg+xml")} for o in cell.get("outputs", ())]
    return texts, json.loads(re.sub(r"\.0+(?=\D)", "", json.dumps(kept)))


def compare(ran, stored):
    """Each cell says what is stored."""
    stored = {c.id: c for c in stored.cells}
    for cell in ran.cells:
        if cell.cell_type == "code" and cell.id != "library":
            assert told(cell) == told(stored[cell.id]), cell.id


@pytest.mark.parametrize("path", notebooks() if PYTHONS else FEW, ids=lambda p: p.relative_to(ROOT).with_suffix("").as_posix())
@pytest.mark.parametrize("kernel", [f"colab{i}" for i in range(len(PYTHONS) or 1)])
def test_fetched(path, kernel, place, tmp_path, monkeypatch):
    """A published notebook alone in an empty directory fetches the library from the repository."""
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('REPOSITORY = ""', f'REPOSITORY = "{ADDRESS}"')
    compare(run(notebook, tmp_path, place, kernel, monkeypatch), nbformat.read(path, 4))
    assert (tmp_path / "onegpu-book" / "lib").is_dir()


@pytest.mark.parametrize("path", FEW, ids=lambda p: p.stem)
def test_self_contained(path, place, tmp_path, monkeypatch):
    """The copy that the site offers has the library inside, and asks no repository."""
    monkeypatch.delenv("ONEGPU_REPOSITORY", raising=False)
    nbformat.write(nbformat.read(path, 4), tmp_path / path.name)
    book.complete(tmp_path)
    book.complete(tmp_path)  # a second build does not add a second one
    notebook = nbformat.read(tmp_path / path.name, 4)
    assert [c.id for c in notebook.cells].count("library") == 1
    compare(run(notebook, tmp_path, place, "colab0", monkeypatch), nbformat.read(path, 4))
    for file in (ROOT / "lib" / "onegpu").rglob("*.py"):
        assert (tmp_path / "onegpu-book" / "lib" / file.relative_to(ROOT / "lib")).read_text("utf-8").rstrip() == file.read_text("utf-8").rstrip()


#: What a browser sends when a slider moves, and what Python sets.
SYNC = """from onegpu import Calculator
from onegpu.memory import training_state

c = Calculator(training_state, start={"params": 7e9})
c._handle_msg({"content": {"data": {"method": "update", "state": {"params": {"params": 2e9}}, "buffer_paths": []}}, "buffers": []})
print(c.params["params"], c.result["training_state"], c.model_id)
c.params = {"params": 3e9}"""


@pytest.mark.parametrize("kernel", [f"colab{i}" for i in range(len(PYTHONS) or 1)])
def test_traits_go_both_ways(kernel, place, tmp_path, monkeypatch):
    """A slider's new value is in Python with its result, and what Python sets reaches the browser's model."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SYNC)])
    ran = client(notebook, tmp_path, place, kernel, monkeypatch, ROOT / "lib")
    ran.execute()
    params, state, model = notebook.cells[0].outputs[0].text.split()
    assert (float(params), float(state)) == (2e9, 3.2e10) and ran.widget_state[model]["params"] == {"params": 3e9}


def test_what_cannot_be_fetched_is_told(tmp_path):
    """Without a repository the first cell says what is missing."""
    setup = next(c.source for c in nbformat.read(ROOT / "index.ipynb", 4).cells if c.id == "setup")
    done = subprocess.run([sys.executable, "-c", setup], cwd=tmp_path, capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONNOUSERSITE": "1"})
    assert done.returncode and "onegpu is neither installed nor beside this notebook, and '' could not be fetched" in done.stderr


def test_one_address():
    """No notebook holds an address: it is written in when the book is published."""
    for path in notebooks():
        assert [c.source.count('REPOSITORY = ""') for c in nbformat.read(path, 4).cells if c.id == "setup"] == [1], path


def test_pythons():
    """The environments are those that they should be."""
    for python in PYTHONS:
        done = subprocess.run([python, "-c", "import ipywidgets, IPython, sys; print(ipywidgets.__version__, IPython.__version__)"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["7.7.1", "7.34.0"]
    assert not PYTHONS or len({Path(p).resolve() for p in PYTHONS}) == len(PYTHONS)
