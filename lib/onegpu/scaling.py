"""Section 03: many cards. Time, deadline, money, energy, failures.

Each efficiency is applied once: ``mfu`` holds what it was measured on, ``scaling_efficiency`` and
``goodput`` only multiply an MFU that does not hold them yet.
"""

import sympy as sp

from .compute import training_flops
from .formula import Case, Section
from .quantities import *
from .units import DAY, HOUR

_section = Section(3)
formula = _section.formula

LLAMA3 = "Grattafiori et al. 2024, The Llama 3 Herd of Models, section 3.3.4, arXiv 2407.21783"
DALY = "Daly 2006, A higher order estimate of the optimum checkpoint interval, equation 1"
MCCANDLISH = "McCandlish et al. 2018, An Empirical Model of Large-Batch Training, section 2.2, arXiv 1812.06162"

_rate = peak_flops * mfu * scaling_efficiency * goodput
_source_run = dict(params=175e9, tokens=1e12, peak_flops=1e15)

cluster_time = formula(
    "cluster_time", r"T_\text{cluster}", "s", training_flops.result / (gpus * _rate), uses=[training_flops],
    cases=[Case(_source_run | dict(gpus=1024, mfu=0.5), 1.05e24 / 5.12e17, "counted: the chapter's 24 days"),
           Case(_source_run | dict(gpus=1024, mfu=0.4, scaling_efficiency=0.5), 1.05e24 / 2.048e17, "counted: the chapter's 60 days, one of three ways"),
           Case(_source_run | dict(gpus=1024, mfu=0.4, goodput=0.5), 1.05e24 / 2.048e17, "counted: another"),
           Case(dict(params=175e9 * 8 / 6, tokens=300e9, gpus=1024, peak_flops=140e12, mfu=1), 34 * DAY, "Narayanan et al. 2021, section 5.1: 34 days for GPT-3 (8·N·D)", rel=4e-3),
           Case(dict(params=1008e9 * 8 / 6, tokens=450e9, gpus=3072, peak_flops=163e12, mfu=1), 84 * DAY, "Narayanan et al. 2021, section 5.1: 84 days for 1T", rel=4e-3)])

implied_mfu = formula(
    "implied_mfu", r"\text{MFU}_\text{run}", "share", training_flops.result / (gpu_seconds * peak_flops), uses=[training_flops], valid=SHARE,
    cases=[Case(dict(params=405.85e9, tokens=15.6e12, gpu_seconds=30.84e6 * HOUR, peak_flops=989.4e12), 0.346, "counted: Llama 3.1 405B's published GPU-hours", rel=1e-3)])

gpus_for_deadline = formula(
    "gpus_for_deadline", r"G_\text{min}", "GPUs", sp.ceiling(training_flops.result / (deadline * _rate)), uses=[training_flops], integer=True,
    cases=[Case(dict(training_flops=1e24, deadline=1e6, peak_flops=1e15, mfu=0.5), 2000, "counted: exactly 2000"),
           Case(dict(training_flops=1.0001e24, deadline=1e6, peak_flops=1e15, mfu=0.5, scaling_efficiency=0.5, goodput=0.5), 8001, "counted: one more than 8000")])

training_cost = formula(
    "training_cost", r"\text{cost}", "$", gpus * cluster_time.result * gpu_price, uses=[cluster_time],
    cases=[Case(dict(cluster_time=1e6, gpus=1000, gpu_price=2 / HOUR), 1e9 * 2 / 3600, "counted: 1e9 GPU-seconds at $2 an hour")])

training_energy = formula(
    "training_energy", r"\text{energy}", "J", gpus * cluster_time.result * gpu_power * pue, uses=[cluster_time],
    cases=[Case(dict(cluster_time=1720320 * 1800, gpus=2, gpu_power=400, pue=1.1), 1720320 * 0.4 * 1.1 * 3.6e6, "counted: Llama 2 70B's GPU-hours at 400 W and a PUE of 1.1")])

# -- failures ----------------------------------------------------------------------------------------

cluster_mtbf = formula(
    "cluster_mtbf", r"\text{MTBF}", "s", gpu_mtbf / gpus, source=LLAMA3,
    cases=[Case(dict(gpu_mtbf=1.8243721e8, gpus=16384), 54 * DAY / 419, "Llama 3, section 3.3.4: 419 unexpected interruptions in 54 days", rel=1e-6)])

checkpoint_interval = formula(
    "checkpoint_interval", r"T_\text{ckpt}", "s", sp.Pow(2 * checkpoint_time * cluster_mtbf.result, sp.Rational(1, 2), evaluate=False), uses=[cluster_mtbf], source=DALY,
    cases=[Case(dict(checkpoint_time=50, cluster_mtbf=10000), 1000, "counted: (2 · 50 · 10000)^½")])

expected_goodput = formula(
    "expected_goodput", r"\eta_\text{Daly}", "share",
    1 - checkpoint_time / checkpoint_interval.result - checkpoint_interval.result / (2 * cluster_mtbf.result) - restart_time / cluster_mtbf.result,
    uses=[checkpoint_interval, cluster_mtbf], source=DALY, valid=SHARE,
    cases=[Case(dict(checkpoint_time=50, checkpoint_interval=1000, cluster_mtbf=10000, restart_time=500), 0.85, "counted: 1 − 0.05 − 0.05 − 0.05")])

# -- the critical batch size ---------------------------------------------------------------------------

extra_tokens = formula(
    "extra_tokens", r"D/D_\text{min}", "", 1 + global_batch / critical_batch, source=MCCANDLISH, basis="rule of thumb",
    cases=[Case(dict(global_batch=8e6, critical_batch=8e6), 2, "McCandlish et al. 2018: at the critical batch size, twice the tokens of the least"),
           Case(dict(global_batch=1e6, critical_batch=4e6), 1.25, "counted")])

extra_steps = formula(
    "extra_steps", r"S/S_\text{min}", "", 1 + critical_batch / global_batch, source=MCCANDLISH, basis="rule of thumb",
    cases=[Case(dict(global_batch=8e6, critical_batch=8e6), 2, "McCandlish et al. 2018: at the critical batch size, twice the steps of the least"),
           Case(dict(global_batch=4e6, critical_batch=1e6), 1.25, "counted")])

largest_data_parallel = formula(
    "largest_data_parallel", r"n_{d,\text{max}}", "", sp.floor(critical_batch / (seq_len * micro_batch)), integer=True, source=MCCANDLISH, basis="rule of thumb",
    cases=[Case(dict(critical_batch=16777216, seq_len=8192, micro_batch=2), 1024, "counted: exactly 1024 sequences of two"),
           Case(dict(critical_batch=16777215, seq_len=8192, micro_batch=1), 2047, "counted: one token too few")])
