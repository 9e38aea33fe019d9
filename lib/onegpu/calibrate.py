"""Section 07: what the reader measured, put into the formulas.

A measured speed gives the MFU, and the efficiency with which the formula of a step gives the measured time; a
measured peak gives the memory that the formulas do not explain. :func:`calibrate` returns them as a mapping
that every formula takes as ``calibration=``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import sympy as sp

from . import labels
from .catalog import NETWORKS
from .compute import hardware_flops_per_token, training_flops, training_flops_per_token
from .compute import mfu as mfu_of
from .finetune import finetune_flops_per_token, finetune_memory
from .formula import SHARE, Case, Largest, Quantity, Rule, Section, taken, takes
from .planner import plan_gpu_memory, plan_step_time
from .published import published_mfus
from .quantities import *

_section = Section(7)
formula = _section.formula
_REAL = sp.Interval(-sp.oo, sp.oo)

# -- speed -------------------------------------------------------------------------------------------

#: Both readings as one: a step has the tokens of the global batch.
gpu_rate = formula(
    "gpu_rate", r"\tau_\text{gpu}", "tokens/s", reading.pick({"step": global_batch / (gpus * measured_step_time)}, gpu_tokens_per_second), numbered=False,
    cases=[Case(dict(gpu_tokens_per_second=3000, global_batch=4e6, measured_step_time=8), 3000, "counted: as read"),
           Case(dict(reading="step", gpu_tokens_per_second=3000, global_batch=4e6, gpus=100, measured_step_time=8), 5000, "counted")])

run_step_time = formula(
    "run_step_time", r"t_\text{run}", "s", global_batch / (gpus * gpu_rate.result), uses=[gpu_rate], numbered=False,
    cases=[Case(dict(global_batch=4e6, gpus=100, gpu_rate=5000), 8, "counted")])

#: The work of a token by 6·N.
plain_flops_per_token = formula(
    "plain_flops_per_token", r"C_{6N}", "FLOP/token", (training_flops.expr / tokens).subs(params, active_params), numbered=False, cases=[Case(dict(active_params=7e9), 42e9, "counted: 6 · 7e9")])


def _fastest(name, symbol, flops):
    """The tokens a second at which a card reaches its peak: it cannot do more."""
    return formula(name, symbol, "tokens/s", peak_flops / flops.result, uses=[flops], numbered=False, cases=[Case({flops.name: 4e10, "peak_flops": 1e15}, 25000, "counted")])


def _utilisation(name, symbol, flops, rate, fastest, rule):
    """The MFU of one GPU, by one count of a token's FLOPs."""
    result, read = Quantity(name, symbol, "share", valid=SHARE), getattr(rate, "result", rate)
    return _section.add(mfu_of.bind(result, flops_per_token=flops, tokens_per_second=rate, gpus=sp.Integer(1)).replace(
        uses=[flops, fastest, *([rate] if read is not rate else [])], rules=[Rule(rule, read <= fastest.result)], source="",
        cases=[Case({flops.name: 4e10, fastest.name: 25000, read.name: 1e4, "peak_flops": 1e15}, 0.4, "counted: 4e14 of 1e15")]), numbered=False)


fastest_rate = _fastest("fastest_rate", r"\tau_\text{peak}", training_flops_per_token)
_of_peak = dict(rate=gpu_rate, fastest=fastest_rate, rule="rate_above_peak")
run_mfu = _utilisation("run_mfu", r"\text{MFU}_{6N}", plain_flops_per_token, **_of_peak)
run_mfu_attention = _utilisation("run_mfu_attention", r"\text{MFU}_\text{attn}", training_flops_per_token, **_of_peak)
run_hfu = _utilisation("run_hfu", r"\text{HFU}", hardware_flops_per_token, **_of_peak)

step_gap = formula(
    "step_gap", r"\Delta t", "s", plan_step_time.result - run_step_time.result, uses=[plan_step_time, run_step_time], valid=_REAL, numbered=False,
    cases=[Case(dict(card_step_time=3, run_step_time=5), -2, "counted")])

#: The efficiency of the work on a card with which a step takes the measured time.
measured_efficiency = Largest(Quantity("measured_efficiency", r"\eta_\text{run}", "share", valid=SHARE), kernel_efficiency, step_gap)

# -- memory ------------------------------------------------------------------------------------------


def _memory(names, symbols, predicted):
    """What a peak has beyond the formulas, as bytes and as a share of it, and the overhead to plan with: nothing, if the formulas already count too much."""
    beyond = formula(names[0], symbols[0], "B", measured_peak - predicted.result, uses=[predicted], rules=[Rule("peak_above_card", measured_peak <= memory_bytes)], valid=_REAL, numbered=False,
                     cases=[Case({"measured_peak": 30e9, "memory_bytes": 80e9, predicted.name: 28e9}, 2e9, "counted")])
    part = formula(names[1], symbols[1], "share", beyond.result / measured_peak, uses=[beyond], valid=_REAL, numbered=False, cases=[Case({"measured_peak": 30e9, beyond.name: 3e9}, 0.1, "counted")])
    over = formula(names[2], symbols[2], "B", sp.Max(0, beyond.result), uses=[beyond], numbered=False, cases=[Case({beyond.name: 2e9}, 2e9, "counted"), Case({beyond.name: -2e9}, 0, "counted: nothing is missing")])
    return beyond, part, over


unexplained_bytes, unexplained_share, measured_overhead = _memory(("unexplained_bytes", "unexplained_share", "measured_overhead"), (r"\Delta M", r"\Delta M / M", r"M_\text{over,run}"), plan_gpu_memory)

# -- the same for fine-tuning on one card --------------------------------------------------------------

fastest_finetune = _fastest("fastest_finetune", r"\tau_\text{peak,ft}", finetune_flops_per_token)
finetune_efficiency = _utilisation("finetune_efficiency", r"\eta_\text{ft}", finetune_flops_per_token, gpu_tokens_per_second, fastest_finetune, "finetune_above_peak")
finetune_unexplained, finetune_share, finetune_overhead = _memory(("finetune_unexplained", "finetune_share", "finetune_overhead"), (r"\Delta M_\text{ft}", r"\Delta M_\text{ft} / M", r"M_\text{over,ft}"), finetune_memory)

# -- what is done with them --------------------------------------------------------------------------

#: What a measured speed, a measured peak and a fine-tuning run replace: input -> what gives it.
SPEED = {"kernel_efficiency": measured_efficiency, "mfu": run_mfu}
MEMORY = {"overhead_bytes": measured_overhead}
TUNING = {"kernel_efficiency": finetune_efficiency, "overhead_bytes": finetune_overhead}
#: Inputs whose value at the measurement counts; beyond this factor either way a calibration is extrapolated.
RANGE, FACTOR = ("params", "seq_len", "micro_batch", "gpus"), 2
#: How many published runs, nearest in size, an MFU is judged against.
PEERS = 24
#: What :func:`calibrate` computes of a training run and of a fine-tuning run.
_TRAINED = [run_mfu_attention, run_mfu, run_hfu, gpu_rate, run_step_time, measured_efficiency, unexplained_bytes, unexplained_share, measured_overhead]
_TUNED = [finetune_efficiency, finetune_unexplained, finetune_share, finetune_overhead]
_READ = (gpu_tokens_per_second, measured_step_time, measured_peak)


def peers(params):
    """The MFUs by 6·N of the published runs nearest in size, in order.

    Parameters
    ----------
    params : float
        Parameters that a token meets [-]

    Returns
    -------
    list of float
        :data:`PEERS` values [share]
    """
    nearest = sorted(published_mfus().values(), key=lambda run: abs(log(run[0] / params)))
    return sorted(mfu for _, mfu in nearest[:PEERS])


def judged(mfu, params):
    """Where an MFU stands among published runs of like size, in words."""
    others = peers(params)
    below = sum(other < mfu for other in others)
    third = labels.text(f"calculator.third.{min(2, 3 * below // len(others))}")
    return labels.text("calculator.judged", mfu=run_mfu.result.human(mfu), third=third, below=below, count=len(others))


@dataclass(frozen=True)
class Calibration(Mapping):
    """Measured values of inputs by name, for ``calibration=``.

    ``report`` holds what else came out, by name; ``at`` the inputs of the measurement.
    """

    found: dict
    report: dict
    at: dict

    def __getitem__(self, name):
        return self.found[name]

    def __iter__(self):
        return iter(self.found)

    def __len__(self):
        return len(self.found)

    def outside(self, **inputs):
        """The inputs by more than :data:`FACTOR` away from the measurement, in words; none if it was measured there.

        Parameters
        ----------
        **inputs
            ``gpu``, ``model`` and any of :data:`RANGE` [their units]
        """
        if "model" in inputs:
            inputs = {"params": inputs["model"].n_params} | inputs
        far = [n for n in RANGE if n in inputs and n in self.at and not 1 / FACTOR <= inputs[n] / self.at[n] <= FACTOR]
        far += ["gpu"] if "gpu" in inputs and self.at.get("gpu") not in (None, inputs["gpu"].name) else []
        return [labels.text("calculator.measured_at", name=n, value=getattr(inputs[n], "name", inputs[n]), at=self.at[n]) for n in far]

    def __str__(self):
        return self.report.get("judged", "")


def calibrate(*, gpu_tokens_per_second=None, measured_step_time=None, measured_peak=None, **run):
    """What a measured run says about the inputs that nobody can know beforehand.

    Parameters
    ----------
    gpu_tokens_per_second : float
        Tokens a second on each GPU [tokens/s]
    measured_step_time : float
        The time of a step [s]; give one of the two, or none
    measured_peak : float
        The peak of memory on a card, read from the device [B]
    **run
        The inputs of ``plan_step_time`` and ``plan_gpu_memory`` but ``kernel_efficiency``: ``model``, ``gpu``,
        ``seq_len``, ``gpus``, ``global_batch`` [tokens], the plan …; without ``global_batch`` there is no efficiency.
        With ``method`` it is a fine-tuning run: the inputs of ``finetune_memory`` and ``finetune_flops_per_token``

    Returns
    -------
    Calibration
        A mapping with ``kernel_efficiency`` [share], ``mfu`` (by 6·N) [share] and ``overhead_bytes`` [B], as far as measured

    Raises
    ------
    ValueError
        If an input is missing or illegal, the card's peak does not allow the speed, or the card does not have the memory.

    Examples
    --------
    >>> from onegpu import GPUS, MODELS
    >>> from onegpu.compute import training_time
    >>> run = dict(model=MODELS["Llama 2 7B"], gpu=GPUS["A100 80GB"], gpus=8, seq_len=4096, micro_batch=1, global_batch=262144, zero_stage=1)
    >>> found = calibrate(**run, gpu_tokens_per_second=3000)
    >>> round(found["mfu"], 4)
    0.3888
    >>> training_time(model=MODELS["Llama 2 7B"], gpu=GPUS["A100 80GB"], gpus=8, tokens=1e9, calibration=found) // 3600
    11.0
    """
    by_step, tuning = measured_step_time is not None, "method" in run
    reads = {q.name: x for q, x in zip(_READ, (gpu_tokens_per_second, measured_step_time, measured_peak), strict=True) if x is not None}
    known = {n for f in (_TUNED if tuning else _TRAINED) for n in takes(f)}
    for name, value in (run | reads).items():
        if name not in known:
            raise ValueError((finetune_memory if tuning else plan_step_time)._unknown(name, value))
    if not reads:
        raise ValueError(labels.text("error.missing", formula="calibrate", name="gpu_tokens_per_second", allowed=gpu_rate.result.allowed))
    given = {"network": NETWORKS["400 Gb/s a card"], "micro_batch": 1, "gpus": 1} | run | reads | {"reading": "step" if by_step else "rate"}
    given = {q.name: q.start for q in (*_READ, *([] if by_step else [global_batch]))} | given  # what the other reading needs counts for nothing
    wanted = [f for f in (_TUNED if tuning else _TRAINED) if _measured(f, reads, run)]
    report = {f.name: f(**taken(f, given)) for f in wanted}
    values = {n: report[f.name] for n, f in (TUNING if tuning else SPEED | MEMORY).items() if report.get(f.name)}  # no overhead is no measurement of one
    model = given.get("model")
    at = {n: given[n] for n in RANGE if n in given} | ({"params": model.n_params} if model else {}) | ({"gpu": given["gpu"].name} if "gpu" in given else {})
    if "run_mfu" in report:
        report["judged"] = judged(report["run_mfu"], model.n_active_params if model else given["active_params"])
    return Calibration(values, report, at)


def _measured(f, reads, run):
    """Whether what was read and given says anything of a formula: the efficiency of a step needs a batch."""
    if "measured_peak" in f.inputs():
        return "measured_peak" in reads
    return bool({"gpu_tokens_per_second", "measured_step_time"} & reads.keys()) and ("global_batch" in run or f not in (run_step_time, measured_efficiency))
