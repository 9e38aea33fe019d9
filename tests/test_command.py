"""The command line says what the formulas say."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from onegpu import GPUS, MODELS, NETWORKS, planner, units
from onegpu.__main__ import COMMANDS, inputs, main
from onegpu.compute import training_flops
from onegpu.memory import fits, headroom, training_memory
from onegpu.scaling import cluster_time, training_cost
from store_outputs import ROOT

ONE = ["--model", "Llama 2 7B", "--gpu", "H100 SXM"]


def ran(capsys, *arguments):
    """What a command prints as JSON."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_fit(capsys):
    """The peak, what is left, and the verdict; sequence and micro-batch start as in the book, and it says so."""
    found = ran(capsys, "fit", *ONE)
    case = dict(model=MODELS["Llama 2 7B"], seq_len=4096, micro_batch=1)
    assert found["assumed"] == ["micro_batch", "seq_len"]
    assert found["results"] == {"training_memory": training_memory(**case), "headroom": headroom(gpu=GPUS["H100 SXM"], **case), "fits": "no"} and not fits(gpu=GPUS["H100 SXM"], **case)
    assert main(["fit", *ONE]) == 0
    assert "sequence length: 4096 (assumed)" in capsys.readouterr().out


def test_time(capsys):
    """Numbers are typed as on the pages."""
    found = ran(capsys, "time", *ONE, "--gpus", "1k", "--tokens", "2T", "--mfu", "40 %", "--gpu-price", "$2/h")["results"]
    case = dict(model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], tokens=2e12, mfu=0.4, gpus=1000)
    assert found["cluster_time"] == cluster_time(**case) and found["training_cost"] == pytest.approx(training_cost(**case, gpu_price=2 / 3600), rel=1e-12)
    assert found["training_flops"] == training_flops(model=case["model"], tokens=2e12)


def test_plan(capsys):
    """The planner's own plans; an axis that is given is not searched."""
    found = ran(capsys, "plan", *ONE, "--gpus", "8", "--network", "400 Gb/s a card", "--global-batch", "1048576", "--zero-stage", "1")["results"]
    case = dict(model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], network=NETWORKS["400 Gb/s a card"], gpus=8, seq_len=4096, global_batch=1048576, kernel_efficiency=0.6, tokens=1e12)
    plans = planner.search(axes=planner.AXES | {"zero_stage": (1,)}, **case)
    assert found["plans"] == plans.ranked[:5] and found["fitting"] == plans.fitting and {p["zero_stage"] for p in found["plans"]} == {1}


def test_config(tmp_path, capsys):
    """A model's config.json stands in for a row."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}))
    found = ran(capsys, "fit", "--config", str(file), "--gpu", "H100 SXM", "--seq-len", "1024")["results"]
    assert found["training_memory"] == training_memory(model=MODELS["GPT-2 small"], seq_len=1024, micro_batch=1) and found["fits"] == "yes"


@pytest.mark.parametrize("arguments, message", [
    (["fit", "--model", "Llama 2 7", "--gpu", "H100 SXM"], "model = Llama 2 7: must be one of Llama 2 7B"), (["fit", *ONE, "--seq-len", "abc"], "seq_len = abc: must be a number"),
    (["fit", "--config", "/nowhere.json", "--gpu", "H100 SXM"], "nowhere.json"), (["time", *ONE, "--mfu", "150 %"], "mfu = 1.5: must be above 0 and at most 1"),
    (["fit", "--gpu", "H100 SXM"], "params is missing")])
def test_refusing(arguments, message, capsys):
    """What is wrong is said in the words of the library, and the status is not zero."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert message in told.err and not told.out


def test_other_language(capsys):
    """Labels and messages in the language that is asked for."""
    from onegpu import labels
    try:
        assert main(["time", *ONE, "--language", "zh"]) == 0 and "训练时间" in capsys.readouterr().out
    finally:
        labels.set_language("en")


def test_as_a_program():
    """Started as people start it, from anywhere."""
    done = subprocess.run([sys.executable, "-m", "onegpu", "fit", *ONE], capture_output=True, text=True, cwd=ROOT / "lib")
    assert done.returncode == 0 and "does it fit? no" in done.stdout and not done.stderr
    assert subprocess.run([sys.executable, "-m", "onegpu", "plan", "--help"], capture_output=True, cwd=ROOT / "lib").returncode == 0


@pytest.mark.parametrize("page", ["api.md", "zh/api.md"])
def test_what_the_page_of_the_library_shows(page):
    """Its Python runs, its command lines too."""
    text = (ROOT / page).read_text("utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S), re.findall(r"^python -m onegpu (.*)$", text, re.M)
    assert list(map(len, shown)) == [2, 3]
    done = subprocess.run([sys.executable, "-c", "\n".join(shown[0])], capture_output=True, text=True, cwd=ROOT / "lib")  # its quantities are none of this process
    assert re.fullmatch(r"[\d.]+ days\n", done.stdout), done.stderr
    assert [main(shlex.split(line)) for line in shown[1]] == [0, 0, 0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_input_is_an_option(command, capsys):
    """Each input of the formulas can be given, and its help says what it takes."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert not [n for n in inputs(command) if f"--{n.replace('_', '-')}" not in text]


@pytest.mark.parametrize("text, unit", [("7B", ""), ("1.5T", "tokens"), ("80 GiB", "B"), ("50 %", "share"), ("900 GB/s", "B/s"), ("1 year", "s"), ("3 天", "s"), ("70亿", ""), ("12", "B"), ("$3.99/h", "$/s"), ("abc", "B"), ("1 wombat", "s")])
def test_reading_as_the_page_does(text, unit):
    """One parser in two languages."""
    from javascript import run
    assert units.parse(text, unit) == run("return onegpu.parse(data[0], data[1], ONEGPU.suffixes)", [text, unit])
