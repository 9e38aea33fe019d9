"""The exercises of the notebooks, as the notebooks make them."""

import functools

import nbformat

from onegpu import exercise
from store_outputs import ROOT, notebooks


@functools.cache
def of_page(path):
    """The exercises of one notebook in their order: its imports and its exercises' cells are run, and nothing else."""
    made, scope = [], {}

    def make(*formulas, **inputs):
        made.append(exercise.Exercise(*formulas, **inputs))

    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and cell.id == "imports":
            exec(cell.source, scope)
            scope["Exercise"] = make
        elif cell.cell_type == "code" and cell.id.startswith("exercise-"):
            exec(cell.source, scope)
    return made


def pages():
    """Every notebook with exercises: its page, such as ``chapters/01-memory-wall``, and the exercises."""
    found = {p.relative_to(ROOT).with_suffix("").as_posix(): of_page(p) for p in notebooks()}
    return {page: made for page, made in found.items() if made}
