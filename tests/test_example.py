"""The example book: a formula of another field, in a book of one page, built as anyone builds a Jupyter Book."""

import os
import re
import subprocess
import sys
from math import pi, sqrt
from pathlib import Path

import pytest

from store_outputs import EXAMPLE
from test_page import browser, loaded, noise, visit  # noqa: F401

FOLDER = EXAMPLE.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The example, built."""
    folder, programs = tmp_path_factory.mktemp("example"), Path(sys.executable).parent
    done = subprocess.run([programs / "jupyter-book", "build", "-W", "--keep-going", "--path-output", folder, FOLDER], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout
    return folder / "_build" / "html"


def test_another_field(visit, noise):  # noqa: F811
    """The slider of the page on the disk recomputes the formula, which the library does not know."""
    page = visit("pendulum.html")
    slider, result = page.locator(".onegpu [data-name=pendulum_length]").first, page.locator(".onegpu output")
    assert result.text_content() == "2.006 seconds"
    slider.focus()
    for _ in range(30):
        slider.press("ArrowRight")
    length = float(page.locator(".onegpu [type=text][data-name=pendulum_length]").input_value())
    shown = float(re.match(r"[\d.]+", result.text_content())[0])
    assert length > 1 and shown == pytest.approx(2 * pi * sqrt(length / 9.81), rel=5e-4)
    assert page.locator(".onegpu-equation math msqrt").count()
    assert noise == []
