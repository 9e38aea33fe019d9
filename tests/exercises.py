"""The exercises of the notebooks, as the notebooks make them."""

import functools

import nbformat

from onegpu import exercise, labels
from onegpu.formula import REGISTRY
from store_outputs import ROOT, notebooks


@functools.cache
def of_page(path):
    """The exercises of one notebook in their order: its imports and its exercises' cells are run, and nothing else."""
    made, scope, known = [], {}, set()

    def make(*formulas, **inputs):
        made.append(exercise.Exercise(*formulas, **inputs))

    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and cell.id == "imports":
            exec(cell.source, scope)
            scope["Exercise"], known = make, set(REGISTRY)
        elif cell.cell_type == "code" and cell.id.startswith("exercise-"):
            exec(cell.source, scope)
    for name in set(REGISTRY) - known if known else ():  # a notebook's own quantities are not the library's
        del REGISTRY[name]
    return made


def pages(language="en"):
    """Every notebook with exercises of an edition: its page, such as ``chapters/01-memory-wall`` or ``zh/chapters/01-memory-wall``, and the exercises in its language."""
    labels.set_language(language)
    try:
        paths = {p.relative_to(ROOT).with_suffix("").as_posix(): p for p in notebooks()}
        found = {page: of_page(path) for page, path in paths.items() if page.startswith("zh/") == (language == "zh")}
    finally:
        labels.set_language("en")
    return {page: made for page, made in found.items() if made}
