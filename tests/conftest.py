"""What the page tests of all browsers share: one built site."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store_outputs import ROOT

SITE = os.environ.get("ONEGPU_SITE")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site."""
    if SITE:
        return Path(SITE).resolve()
    folder, programs = tmp_path_factory.mktemp("site"), Path(sys.executable).parent
    done = subprocess.run([programs / "jupyter-book", "build", "-W", "--keep-going", "--path-output", folder, "."], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    if done.returncode:
        pytest.fail(f"the book does not build:\n{done.stdout}", pytrace=False)
    return folder / "_build" / "html"
