"""Section 04 against published numbers and second derivations."""

import pytest

from onegpu import GPUS, MODELS
from onegpu.coupling import *

PLAN = dict(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], seq_len=8192, micro_batch=1, accumulation_steps=16, data_parallel=128, tensor_parallel=8,
            pipeline_parallel=16, virtual_stages=8, zero_stage=2, network_bandwidth=50e9, kernel_efficiency=0.6)


def without(*names):
    """The plan without some of its inputs."""
    return {n: v for n, v in PLAN.items() if n not in names}


@pytest.mark.parametrize("billions, gpus, printed", [
    (7.5, 4, (None, 41.3, 30)), (7.5, 16, (35.6, 21.6, 7.5)), (7.5, 64, (31.4, 16.6, 1.88)), (7.5, 256, (30.4, 15.4, 0.47)), (7.5, 1024, (30.1, None, 0.12)),
    (128, 4, (896, None, 512)), (128, 16, (608, 368, 128)), (128, 64, (536, 284, None)), (128, 256, (518, None, 8)),
    (1000, 4, (7000, 5500, 4000)), (1000, 16, (4750, None, None)), (1000, 64, (None, 2218, 250)), (1000, 256, (4046, None, None)), (1000, 1024, (None, 2013, 15.6))])
def test_zero_table_1(billions, gpus, printed):
    """Every row of the paper's table, decimal GB."""
    for stage, value in zip((1, 2, 3), printed, strict=True):
        if value is not None:
            assert sharded_state(params=billions * 1e9, data_parallel=gpus, zero_stage=stage) / 1e9 == pytest.approx(value, rel=6e-3, abs=0.005)
    assert sharded_state(params=7.5e9, data_parallel=64, zero_stage=0) == 120e9


def test_the_interface():
    """The exact values of the interface."""
    assert sharded_state(params=7.5e9, data_parallel=64, zero_stage=3, tensor_parallel=1, pipeline_parallel=1) == 1.875e9
    assert pipeline_bubble(pipeline_parallel=8, accumulation_steps=32, virtual_stages=1) == pytest.approx(0.1795, abs=5e-5)
    assert all_reduce_time(message_bytes=14e9, group_size=8, link_bandwidth=450e9) == pytest.approx(0.0544, abs=5e-5)
    with pytest.raises(ValueError, match="mfu = 0.4: must be left out"):
        step_time(**PLAN, mfu=0.4)


def test_ring_by_walking():
    """Pass n parts around a ring: n − 1 passes gather, twice that reduce."""
    n, size, speed = 8, 14e9, 450e9
    gathered = sum(size / n / speed for _ in range(n - 1))
    assert all_gather_time(message_bytes=size, group_size=n, link_bandwidth=speed) == pytest.approx(gathered)
    assert all_reduce_time(message_bytes=size, group_size=n, link_bandwidth=speed) == pytest.approx(2 * gathered)


@pytest.mark.parametrize("stages, batches", [(1, 4), (2, 1), (4, 8), (8, 32)])
def test_bubble_by_walking(stages, batches):
    """The last stage waits until the first micro-batch arrives, then works without a gap."""
    slots = batches + stages - 1
    assert pipeline_bubble(pipeline_parallel=stages, accumulation_steps=batches) == pytest.approx((slots - batches) / slots)


def test_ridge():
    """At the ridge the roofs meet; H100 about 330 tokens, A100 160, H20 38."""
    for name, tokens in (("H100 SXM", 328), ("A100 80GB", 161), ("H20", 37)):
        found = ridge_tokens(gpu=GPUS[name], d_in=4096, d_out=11008)
        assert found == pytest.approx(tokens, abs=1)
        assert arithmetic_intensity(matmul_tokens=round(found), d_in=4096, d_out=11008) == pytest.approx(ridge_intensity(gpu=GPUS[name]), rel=0.02)


def test_the_makers_plan_of_405b():
    """0.496 GiB a layer, 63.5 GiB in flight, state 6.3, 12.2 and 18.1 GiB, 41 % MFU."""
    memory = plan_memory.evaluate(**without("gpu", "kernel_efficiency", "network_bandwidth"))
    assert memory["in_flight"] == 16 and memory["layers_per_stage"] == 8
    assert memory["sharded_activations"] / 2**30 == pytest.approx(63.5, abs=0.1)
    states = [sharded_state(params=405853388800, data_parallel=128, tensor_parallel=8, pipeline_parallel=16, **c) / 2**30
              for c in (dict(zero_stage=2), dict(zero_stage=1), dict(zero_stage=1, grad_bytes=4))]
    assert states == pytest.approx([6.23, 12.1, 18.0], abs=0.05)
    assert step_mfu(**PLAN, causal=True) == pytest.approx(0.41, abs=0.01)


@pytest.mark.parametrize("change, message", [
    (dict(tensor_parallel=7), "tensor_parallel = 7: must divide n_heads = 128"),
    (dict(tensor_parallel=16), "tensor_parallel = 16: must be at most gpus_per_node = 8"),
    (dict(pipeline_parallel=64, virtual_stages=4, accumulation_steps=64), r"pipeline_parallel = 64: times virtual_stages = 4 must be at most n_layers \+ 2"),
    (dict(zero_stage=3), "zero_stage = 3: must be below 3 in a pipeline"),
    (dict(accumulation_steps=10), "virtual_stages = 8: must be 1, or")])
def test_impossible_plans_are_explained(change, message):
    """Nothing is computed; the message names the input, its value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        step_time(**PLAN | change)


def test_sharding_never_adds_state():
    """ZeRO's stages are monotone, and so are more cards."""
    for gpus in (1, 2, 8, 64):
        states = [sharded_state(params=7e9, data_parallel=gpus, zero_stage=z) for z in (0, 1, 2, 3)]
        assert states == sorted(states, reverse=True)
        assert sharded_state(params=7e9, data_parallel=2 * gpus, zero_stage=1) <= states[1]
