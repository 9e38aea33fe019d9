"""The project holds together: one list of dependencies, clean notebooks, cited sources."""

import doctest
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

from onegpu.calculator import modules
from onegpu.catalog import RECIPES
from store_outputs import EXAMPLE, ROOT, WIDGET, notebooks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = [*PROJECT["dependencies"], *(d for extra in PROJECT["optional-dependencies"].values() for d in extra)]


def test_environment_yml_says_the_same():
    """conda's list is pyproject's list."""
    found = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    assert found[-1]["pip"] == NEEDED
    assert found[0] == "python>=3.11,<3.14" and PROJECT["requires-python"] == ">=3.11"


def test_the_lock_pins_every_dependency():
    """Each package once or by marker, each with hashes, and no registry's address."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))
    for need in NEEDED:
        assert re.match(r"[\w.-]+", need)[0].lower() in pinned
    assert "://" not in text and len(re.findall(r"^[\w.-]+==", text, re.M)) <= text.count("--hash=")


def test_the_contents_list_every_notebook():
    """A notebook that no page shows would be dead."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    pages = {toc["root"], *(c["file"] for c in toc["chapters"])}
    english = [p for p in notebooks() if "zh" not in p.relative_to(ROOT).parts]
    assert {p.relative_to(ROOT).with_suffix("").as_posix() for p in english} <= pages


@pytest.mark.parametrize("path", [*notebooks(), EXAMPLE], ids=lambda p: p.stem)
def test_notebooks_are_stored_clean(path):
    """Executed, without widget state, and short: a code cell is at most fifteen lines."""
    notebook = nbformat.read(path, 4)
    assert "widgets" not in notebook.metadata and notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.execution_count and cell.source.count("\n") < 15, cell.id
            assert not any(o.output_type == "error" or WIDGET in o.get("data", {}) for o in cell.outputs), cell.id
            assert not re.search(r"0x[0-9a-f]{6,}|/(home|work|tmp|root)/", str(cell.outputs)), cell.id


def test_every_arxiv_paper_is_in_the_bibliography():
    """Sources of formulas and recipes, and links in the prose."""
    known = (ROOT / "references.bib").read_text("utf-8")
    texts = [f.source for m in modules() for f in m._section.formulas] + [r.url for r in RECIPES.values()]
    texts += [c.source for p in notebooks() for c in nbformat.read(p, 4).cells if c.cell_type == "markdown"]
    cited = {i for t in texts for i in re.findall(r"arXiv (\d{4}\.\d{5})|arxiv\.org/abs/(\d{4}\.\d{5})", t) for i in i if i}
    assert cited and not [i for i in cited if i not in known]


def test_equations_are_cited_by_their_number():
    """A link to an equation says the number that the equation bears."""
    numbers = {f.name: f.number for m in modules() for f in m._section.formulas}
    for path in notebooks():
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "markdown":
                for text, name in re.findall(r"\[([^\]]*)\]\([^)]*#eq-(\w+)\)", cell.source):
                    assert text == f"({numbers[name]})", f"{path.stem}, {cell.id}: {name} is ({numbers[name]})"


def test_equations_are_numbered_as_they_are_shown():
    """A reader who looks for an equation finds it between its neighbours."""
    for path in notebooks():
        shown = [line for c in nbformat.read(path, 4).cells for o in c.get("outputs", ()) for line in o.get("data", {}).get("text/latex", "").splitlines()]
        numbers = [tuple(map(int, n.split("."))) for n in re.findall(r"\\tag\{([\d.]+)\}", "\n".join(shown))]
        assert numbers == sorted(set(numbers)), path.stem


def test_installed(tmp_path):
    """`pip install .` takes every file of the library along, and its command line runs from there."""
    copy = tmp_path / "book"  # setuptools leaves its own files where it builds
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: [n for n in names if n.startswith((".", "_build")) or n in ("chapters", "zh")])
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", tmp_path / "there", copy], check=True)
    files = {p.relative_to(ROOT / "lib") for p in (ROOT / "lib" / "onegpu").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {f for f in files if not (tmp_path / "there" / f).is_file()} == set()
    done = subprocess.run([sys.executable, "-m", "onegpu", "fit", "--model", "Llama 2 7B", "--gpu", "H100 SXM", "--json"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "there")}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["results"]


def test_importing_loads_neither_widgets_nor_figures():
    """`import onegpu` stays light; the rest loads when it is asked for."""
    code = "import sys, onegpu, onegpu.memory, onegpu.compute; print([m for m in ('numpy', 'ipywidgets', 'anywidget', 'matplotlib', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "lib", check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "lib" / "onegpu").glob("*.py") if not p.stem.startswith("_")))
def test_examples(name):
    """The examples of a module's docstrings give what they show."""
    assert doctest.testmod(importlib.import_module(f"onegpu.{name}")).failed == 0


def test_the_workflow():
    """GitHub's schema takes it, and the steps that it runs are the project's own targets, which the README names."""
    path = ROOT / ".github" / "workflows" / "publish.yml"
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    steps = [s["run"] for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values() for s in job["steps"] if "run" in s]
    made = re.findall(r"make ([\w-]+)", "\n".join(steps))
    assert made == ["test", "publish", "push-site"] and all(re.search(rf"^{name}:", (ROOT / "Makefile").read_text("utf-8"), re.M) for name in made)


def test_layers():
    """Nothing imports upward."""
    order = ["labels", "facts", "units", "formula", "quantities", "shape", "configs", "catalog", "memory", "compute", "scaling", "coupling", "planner", "finetune", "evidence", "published", "measured", "calibrate", "calculator", "exercise", "figures", "lean", "pages", "book", "__main__"]
    for path in (ROOT / "lib" / "onegpu").glob("*.py"):
        if path.stem == "__init__":
            continue
        text = path.read_text("utf-8")
        used = re.findall(r"^from \.(\w+) import", text, re.M) + [n.strip() for line in re.findall(r"^from \. import (.+)$", text, re.M) for n in line.split(",")]
        assert all(order.index(u) < order.index(path.stem) for u in used), (path.stem, used)
