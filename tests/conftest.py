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
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, ROOT / "tools" / "book.py", folder], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.fail(f"the book does not build:\n{done.stdout}", pytrace=False)
    return folder / "_build" / "html"
