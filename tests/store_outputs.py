"""Run notebooks and store their outputs, without what changes by itself: ``python tests/store_outputs.py [notebook …]``."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
WIDGET = "application/vnd.jupyter.widget-view+json"


def notebooks():
    """Every notebook of the book."""
    found = [*ROOT.glob("*.ipynb"), *ROOT.glob("chapters/*.ipynb"), *ROOT.glob("zh/**/*.ipynb")]
    return sorted(p for p in found if "_build" not in p.parts and ".ipynb_checkpoints" not in p.parts)


#: A notebook that is no page of the book, stored like those.
EXAMPLE = ROOT / "examples" / "pendulum" / "pendulum.ipynb"


def store(path):
    """Execute one notebook in its folder and write it back."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", store_widget_state=False, record_timing=False,
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in [Path(p).resolve() for p in sys.argv[1:]] or [*notebooks(), EXAMPLE]:
        print(path.relative_to(ROOT))
        store(path)
