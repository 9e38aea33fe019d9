"""Build the book: every edition, side by side, as one site.

``python tools/book.py [folder [earlier]]`` writes ``folder/_build/html``; by default the folder is the project's own. What
was executed under an earlier build's folder is taken from there. A folder whose build had the same inputs is left as it is.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "lib"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "lib"), os.environ.get("PYTHONPATH", "")]))  # for the notebooks' kernels

from onegpu.book import cache_path  # noqa: E402
from onegpu.pages import EDITIONS, build_date  # noqa: E402

JOBS = 2


def inputs():
    """What a build depends on, as one number: the project's files, the date of its last change, the packages, what the environment asks for."""
    asked = sorted((k, v) for k, v in os.environ.items() if k.startswith("ONEGPU_"))
    told = hashlib.sha256(repr((sys.version, build_date(ROOT), asked, sorted((d.name, d.version) for d in distributions()))).encode())
    kept = (p for p in sorted(ROOT.iterdir()) if not p.name.startswith(".") and p.name != "_build")
    for path in (f for p in kept for f in ([p] if p.is_file() else sorted(p.rglob("*")))):
        if path.is_file() and "__pycache__" not in path.parts:
            told.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return told.hexdigest()


def notebooks(edition):
    """The notebooks of an edition; the one whose compiler takes as long as several others comes first."""
    source = ROOT / EDITIONS[edition]
    return sorted([*source.glob("*.ipynb"), *source.glob("chapters/*.ipynb")], key=lambda p: ("evidence" not in p.stem, p))


def output(folder, edition):
    """Where `jupyter-book build --path-output` writes an edition: the English one into the site, another one beside it first."""
    return folder / "_build" / edition if EDITIONS[edition] else folder


def execute(path):
    """The notebook at ``path``, run in its folder."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(path.parent)}}).execute()
    return notebook


def take_over(folder, earlier):
    """Copy the caches of an earlier build, if it is there: what it executed need not run again."""
    for edition in EDITIONS:
        theirs, ours = (cache_path(output(f, edition) / "_build") for f in (earlier, folder))
        if theirs.is_dir():
            shutil.copytree(theirs, ours, dirs_exist_ok=True)


def fill_caches(folder):
    """Execute what the caches of the editions do not hold, several at a time; `jupyter-book build` runs one after another."""
    wanted = []
    for edition in EDITIONS:
        cache = get_cache(cache_path(output(folder, edition) / "_build"))
        cache.change_cache_limit(1000)
        for path in notebooks(edition):
            try:
                cache.match_cache_notebook(nbformat.read(path, 4))
            except KeyError:
                wanted.append((cache, path))
    with ThreadPoolExecutor(JOBS) as pool:
        for (cache, path), notebook in zip(wanted, pool.map(execute, (path for _, path in wanted)), strict=True):
            cache.cache_notebook_bundle(CacheBundleIn(nb=notebook, uri=str(path)), check_validity=False, overwrite=True)


def build(folder, edition):
    """Build one edition; what the builder printed, if it failed."""
    programs = Path(sys.executable).parent
    command = [programs / "jupyter-book", "build", "-W", "-n", "--keep-going", "--path-output", output(folder, edition), ROOT / EDITIONS[edition]]
    environment = os.environ | {"ONEGPU_EDITIONS": " ".join(EDITIONS), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode else ""


def library():
    """A code cell that holds the library, to read and to change, and writes it beside its notebook."""
    files = sorted(p for p in (ROOT / "lib" / "onegpu").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    text = "".join(f"\n%% {p.relative_to(ROOT / 'lib').as_posix()}\n{p.read_text('utf-8')}".replace("\n", "\n|") for p in files).replace("\n|%% ", "\n%% ")
    # Without the bars, IPython would take the examples of docstrings for something typed at its prompt.
    source = f"""# The book's library: one file after another, written beside this notebook, so that it runs without a repository.
import pathlib

LIBRARY = r'''{text}'''
for part in LIBRARY.split("\\n%% ")[1:]:
    name, _, content = part.replace("\\n|", "\\n").partition("\\n")
    file = pathlib.Path("onegpu-book", "lib", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, "utf-8")"""
    return nbformat.v4.new_code_cell(source, id="library", metadata={"jupyter": {"source_hidden": True}, "cellView": "form"})


def complete(source):
    """The notebooks that readers download and Colab opens: with the library inside, and the repository's address if there is one."""
    cell, repository = library(), os.environ.get("ONEGPU_REPOSITORY", "")
    for path in source.rglob("*.ipynb"):
        notebook = nbformat.read(path, 4)
        notebook.cells = [c for c in notebook.cells if c.id != cell.id]  # of a build before this one
        at = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "code")
        notebook.cells[at].source = notebook.cells[at].source.replace('REPOSITORY = ""', f"REPOSITORY = {repository!r}")
        notebook.cells.insert(at, cell)
        nbformat.write(notebook, path)


def main(folder, earlier=None):
    """Build the site under a folder, unless what is there was built from the same; its path."""
    site, stamp, made_of = folder / "_build" / "html", folder / "_build" / "inputs.txt", inputs()
    if site.is_dir() and stamp.is_file() and stamp.read_text() == made_of:
        return site
    stamp.unlink(missing_ok=True)
    if earlier:
        take_over(folder, earlier)
    fill_caches(folder)
    with ThreadPoolExecutor(JOBS) as pool:
        failed = "".join(pool.map(lambda edition: build(folder, edition), EDITIONS))
    if failed:
        raise SystemExit(failed)
    for edition, place in EDITIONS.items():
        if place:
            shutil.rmtree(site / place, ignore_errors=True)
            shutil.copytree(output(folder, edition) / "_build" / "html", site / place)
    for place in EDITIONS.values():
        complete(site / place / "_sources")
    stamp.write_text(made_of)
    return site


if __name__ == "__main__":
    print(f"Open {(main(*(Path(a).resolve() for a in sys.argv[1:3] or [ROOT])) / 'index.html').as_uri()}")
