"""Models and cards: exact counts, sources, capacities."""

import dataclasses
import re

import pytest

from onegpu import GPUS, MODELS, NETWORKS, RECIPES, Transformer

GIB = 2**30


@pytest.mark.parametrize("model", MODELS.values(), ids=str)
def test_published_counts(model):
    """The shape gives an exact count to the last digit, a rounded one to its rounding."""
    if model.count_kind == "exact":
        assert model.n_params == model.published_params
    elif model.count_kind == "rounded":
        assert model.n_params == pytest.approx(model.published_params, rel=6e-3)
    else:
        assert model.count_kind in ("nominal", "computed")


def test_the_counts_of_the_interface():
    """Numbers that the book quotes."""
    assert MODELS["Llama 2 7B"].n_params == 6738415616 and MODELS["GPT-2 small"].n_params == 124439808
    assert MODELS["DeepSeek-V3"].n_params == 671026419200 and MODELS["DeepSeek-V3"].matmul_params == 36624596992
    assert MODELS["Mixtral 8x7B"].n_active_params == 12879925248


@pytest.mark.parametrize("row", [*MODELS.values(), *GPUS.values(), *NETWORKS.values(), *RECIPES.values()], ids=str)
def test_every_row_has_a_source(row):
    """A title and an address that a reader can follow."""
    assert row.source and re.fullmatch(r"https?://\S+", row.url)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_capacities_and_peaks(gpu):
    """Usable is below the label; an estimate is the vendor's lowest share; FP8 is the dense peak."""
    assert 0.8 * gpu.memory_bytes < gpu.usable_bytes <= gpu.memory_bytes * 1.001
    assert gpu.usable_kind in ("read", "estimated") and (gpu.usable_kind == "estimated" or gpu.usable_url)
    assert gpu.peak_flops_fp8 is None or 1 <= gpu.peak_flops_fp8 / gpu.peak_flops <= 2.1


def test_estimates_are_the_lowest_share_of_the_vendor():
    """A card without a reading gets no more than any card of its vendor with one."""
    for gpu in GPUS.values():
        shares = [g.usable_bytes / g.memory_bytes for g in GPUS.values() if g.vendor == gpu.vendor and g.usable_kind == "read"]
        if gpu.usable_kind == "estimated" and shares:
            assert gpu.usable_bytes / gpu.memory_bytes == pytest.approx(min(shares))


def test_readings():
    """H100: 79.1 GiB; RTX 4090: 23.64; link speeds one way, peaks dense."""
    assert GPUS["H100 SXM"].usable_bytes / GIB == pytest.approx(79.1, abs=0.1) and GPUS["RTX 4090"].usable_bytes / GIB == pytest.approx(23.64, abs=0.01)
    assert (GPUS["H100 SXM"].peak_flops, GPUS["H100 SXM"].link_bandwidth) == (989.4e12, 450e9)


def test_shapes_are_checked():
    """Heads that do not divide are refused; a changed shape is a new model; a wrong name names its neighbours."""
    llama = MODELS["Llama 2 7B"]
    with pytest.raises(ValueError, match="n_kv_heads = 5: must divide n_heads = 32"):
        dataclasses.replace(llama, n_kv_heads=5)
    assert dataclasses.replace(llama, n_layers=40).n_params > llama.n_params
    with pytest.raises(ValueError, match="must be one of"):
        GPUS["H1000"]
    assert Transformer(n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_head=4, d_ff=16, vocab_size=10).matmul_params == 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16 + 80
