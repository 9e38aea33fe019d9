"""Section 07 so far: LoRA's trainable parameters against published counts."""

import pytest

from onegpu import MODELS
from onegpu.finetune import lora_params

LLAMA = MODELS["Llama 2 7B"]


@pytest.mark.parametrize("rank, targets, count", [(16, "all", 39_976_960), (8, "qv", 4_194_304), (8, "all+head", 20_277_248), (64, "all+head", 162_217_984)])
def test_lora_params(rank, targets, count):
    """peft and torchtune print these counts."""
    assert lora_params(model=LLAMA, rank=rank, targets=targets) == count


def test_lora_params_refuses():
    """A rank below 1 and an unknown target."""
    with pytest.raises(ValueError, match="rank = 0: must be a whole number, at least 1"):
        lora_params(model=LLAMA, rank=0, targets="all")
    with pytest.raises(ValueError, match="targets = some: must be one of"):
        lora_params(model=LLAMA, rank=8, targets="some")
