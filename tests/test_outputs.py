"""What every notebook of both editions stores is what it prints.

The notebooks need not run again where the site was built from them: the build keeps what they printed.
"""

import importlib.util
import os
from pathlib import Path

import nbformat
import pytest
from jupyter_cache import get_cache

from store_outputs import EXAMPLE, ROOT, WIDGET, notebooks

_spec = importlib.util.spec_from_file_location("book_builder", ROOT / "tools" / "book.py")
builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(builder)


def executed(path):
    """The notebook as the build of the site ran it, else as it runs now."""
    if site := os.environ.get("ONEGPU_SITE"):
        edition = "zh" if path.is_relative_to(ROOT / "zh") else "en"
        kept = builder.cache_path(builder.output(Path(site).resolve().parents[1], edition) / "_build")
        if kept.is_dir():
            cache = get_cache(kept)
            try:
                return cache.get_cache_bundle(cache.match_cache_notebook(nbformat.read(path, 4)).pk).nb
            except KeyError:
                pass
    return builder.execute(path)


def printed(notebook):
    """What each code cell prints, without the widgets' own state."""
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown[cell.id] = [(o.output_type, o.text if o.output_type == "stream" else {k: v for k, v in o.get("data", {}).items() if k != WIDGET}) for o in cell.outputs]
    return shown


@pytest.mark.parametrize("path", [*notebooks(), EXAMPLE], ids=lambda p: p.relative_to(ROOT).with_suffix("").as_posix())
def test_stored_outputs_are_what_is_printed(path):
    """Each output of each cell; `make outputs` stores them again."""
    stored, now = printed(nbformat.read(path, 4)), printed(executed(path))
    assert [cell for cell in stored if stored[cell] != now[cell]] == []


def test_a_changed_output_is_found():
    """A stored text that a cell does not print."""
    path = ROOT / "index.ipynb"
    book, other = nbformat.read(path, 4), nbformat.read(path, 4)
    assert printed(book) == printed(other)
    next(o for c in other.cells if c.cell_type == "code" for o in c.outputs if "data" in o).data["text/plain"] += "0"
    assert printed(book) != printed(other)
