"""Execute the book's notebooks into its cache, several at a time; `jupyter-book build` runs one after another."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient

from onegpu.book import cache_path

ROOT = Path(__file__).parents[1]


def execute(path):
    """The notebook at ``path``, run in its folder."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(path.parent)}}).execute()
    return path, notebook


def main(paths, jobs=2):
    """Fill the cache with those of ``paths`` that it does not hold."""
    cache = get_cache(cache_path(ROOT / "_build"))
    cache.change_cache_limit(1000)
    wanted = []
    for path in paths:
        try:
            cache.match_cache_notebook(nbformat.read(path, 4))
        except KeyError:
            wanted.append(path)
    wanted.sort(key=lambda path: "evidence" not in path.stem)  # the longest first: its compiler takes as long as several others
    with ThreadPoolExecutor(jobs) as pool:
        for path, notebook in pool.map(execute, wanted):
            cache.cache_notebook_bundle(CacheBundleIn(nb=notebook, uri=str(path)), check_validity=False, overwrite=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    from store_outputs import notebooks
    main([p for p in notebooks() if "zh" not in p.relative_to(ROOT).parts])
