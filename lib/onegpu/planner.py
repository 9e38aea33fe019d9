"""Section 05: the planner. Which plan fits, how long it takes, what it costs, which wall binds.

The search is a specification: axes, rules and an order, all made of the formulas of the other
sections. Two small evaluators run it, NumPy here and ``calculator.js`` in the page.
"""

from dataclasses import dataclass

import sympy as sp

from .coupling import binding_wall, plan_memory, step_mfu, step_time
from .formula import REGISTRY, Case, Formula, Rule, Section
from .quantities import *

_section = Section(5)
formula = _section.formula

# -- what a plan fixes -------------------------------------------------------------------------------

#: The replicas that the cards leave room for.
replicas = _section.add(Formula(
    data_parallel, sp.floor(gpus / (tensor_parallel * pipeline_parallel)),
    cases=[Case(dict(gpus=1024, tensor_parallel=8, pipeline_parallel=4), 32, "counted")]))

#: The micro-batches that each replica runs in a step.
micro_batches = _section.add(Formula(
    accumulation_steps, sp.floor(global_batch / (data_parallel * micro_batch * seq_len)), uses=[replicas],
    cases=[Case(dict(global_batch=2**22, data_parallel=128, micro_batch=2, seq_len=4096), 4, "counted")]))

PLAN_RULES = (
    Rule("gpus_divide", sp.Eq(sp.Mod(gpus, tensor_parallel * pipeline_parallel), 0)),
    Rule("batch_divides", sp.Eq(sp.Mod(global_batch, data_parallel * micro_batch * seq_len), 0)),
)

_links = (replicas, micro_batches)
plan_gpu_memory = plan_memory.connect(*_links)
plan_step_time = step_time.connect(*_links)
plan_step_mfu = step_mfu.connect(*_links)

plan_headroom = formula(
    "plan_headroom", r"M_\text{spare,gpu}", "B", usable_bytes - overhead_bytes - plan_gpu_memory.result, uses=[plan_gpu_memory], valid=sp.Interval(-sp.oo, sp.oo),
    rules=PLAN_RULES, cases=[Case(dict(usable_bytes=80e9, overhead_bytes=1e9, plan_memory=60e9, gpus=1, tensor_parallel=1, pipeline_parallel=1, global_batch=1, data_parallel=1, micro_batch=1, seq_len=1), 19e9, "counted")])

plan_fits = formula(
    "plan_fits", r"\text{plan fits}", "", sp.Piecewise((1, plan_headroom.result >= 0), (0, True)), uses=[plan_headroom], choices=("no", "yes"), numbered=False,
    cases=[Case(dict(plan_headroom=0), 1, "counted: just fits"), Case(dict(plan_headroom=-1), 0, "counted: just does not")])

plan_time = formula(
    "plan_time", r"T_\text{plan}", "s", tokens / global_batch * plan_step_time.result / goodput, uses=[plan_step_time],
    cases=[Case(dict(tokens=1e12, global_batch=4e6, step_time=2, goodput=0.5), 1e6, "counted: 250,000 steps of 2 s at half goodput")])

plan_cost = formula(
    "plan_cost", r"\text{cost}_\text{plan}", "$", gpus * plan_time.result * gpu_price, uses=[plan_time],
    cases=[Case(dict(gpus=1000, plan_time=1e6, gpu_price=0.001), 1e6, "counted")])

time_to_spare = formula(
    "time_to_spare", r"T_\text{spare}", "s", deadline - plan_time.result, uses=[plan_time], valid=sp.Interval(-sp.oo, sp.oo), numbered=False,
    cases=[Case(dict(plan_time=10, deadline=15), 5, "counted"), Case(dict(plan_time=15, deadline=10), -5, "counted: too late")])

plan_wall = binding_wall.connect(*_links)

# -- the search --------------------------------------------------------------------------------------

#: Another axis is one more line here.
AXES = {
    "tensor_parallel": (1, 2, 4, 8),
    "pipeline_parallel": (1, 2, 4, 8, 16, 32, 64),
    "virtual_stages": (1, 2, 4, 8),
    "zero_stage": (0, 1, 2, 3),
    "recompute": ("none", "full"),
    "micro_batch": (1, 2, 4, 8, 16, 32),
}


#: The decision tree as a ladder, simplest first: each rung allows the axes below it too.
LADDER = {
    "data_parallel": {"tensor_parallel": (1,), "pipeline_parallel": (1,), "virtual_stages": (1,), "zero_stage": (0, 1)},
    "zero": {"tensor_parallel": (1,), "pipeline_parallel": (1,), "virtual_stages": (1,)},
    "tensor_parallel": {"pipeline_parallel": (1,), "virtual_stages": (1,)},
    "pipeline": {},
}
#: A rung is good enough if its best plan spends no more than this share of a step on anything but arithmetic.
GOOD_ENOUGH = 0.2


@dataclass(frozen=True)
class Plans:
    """What a search found: the fastest plans that fit, how many fit, how many each rule refused."""

    ranked: list
    fitting: int
    refused: dict
    fastest: dict | None
    count: int

    @property
    def best(self):
        """The fastest plan that fits, or None."""
        return self.ranked[0] if self.ranked else None


#: What a search computes for each plan.
_GOALS = (plan_headroom, plan_time, plan_step_mfu)


def _filled(axes, given):
    """The checked inputs of a search by name; each axis at its first value."""
    values = {}
    for goal in _GOALS:
        wanted = {*goal.inputs(), *(s.partition(".")[0] for s in goal.sources.values())}
        first = {n: v[0] for n, v in axes.items() if n in wanted}
        values |= goal.filled(**{n: v for n, v in given.items() if n in wanted}, **first)
    return values


def search(*, axes=None, **given):
    """Try every plan and rank those that fit by the time of a step.

    Parameters
    ----------
    axes : dict
        Name of an input to the values to try; :data:`AXES` if left out [-]
    **given
        The inputs of ``plan_headroom``, ``plan_time`` and ``plan_cost`` that are not axes: ``model``,
        ``gpu``, ``gpus``, ``tokens``, ``seq_len``, ``global_batch`` [tokens], ``kernel_efficiency`` …

    Returns
    -------
    Plans
        ``ranked``: the twenty fastest, as dictionaries of axes and results; ``fitting``: how many fit; ``refused``: rule -> number of
        plans, ``"memory"`` among them; ``fastest``: the fastest plan if memory were no limit

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.

    Examples
    --------
    >>> from onegpu import GPUS, MODELS
    >>> plans = search(model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], gpus=8, tokens=1e12, seq_len=4096,
    ...                global_batch=1048576, kernel_efficiency=0.6, network_bandwidth=50e9)
    >>> plans.best["tensor_parallel"], plans.best["pipeline_parallel"]
    (1, 1)
    """
    import numpy as np

    axes = axes or AXES
    values, refused = _filled(axes, given), {}
    rules = {n: r for goal in _GOALS for n, r in goal.all_rules().items()}
    results = {f.name: f for goal in _GOALS for f in goal.graph()}
    unknown = [n for n in given if n not in values and n not in Formula.OWNERS]
    if unknown:
        raise ValueError(plan_time._unknown(unknown[0], given[unknown[0]]))
    codes = np.meshgrid(*(REGISTRY[n].check(list(v)) for n, v in axes.items()), indexing="ij")
    columns = {n: c.ravel() for n, c in zip(axes, codes, strict=True)}
    values |= columns
    count = len(next(iter(columns.values())))
    with np.errstate(all="ignore"):
        for name, f in results.items():
            values[name] = f._numeric(*(values[q.name] for q in f._arguments))
        legal = np.ones(count, bool)
        for name, rule in rules.items():
            holds = np.broadcast_to(rule.holds(*(values[q.name] for q in rule.arguments)), count)
            refused[name] = int((legal & ~holds).sum())
            legal = legal & holds
    fits = legal & np.broadcast_to(values["plan_headroom"] >= 0, count)
    refused["memory"] = int((legal & ~fits).sum())
    order = np.argsort(np.where(fits, values["step_time"], np.inf), kind="stable")[:int(fits.sum())]

    whole = [*columns, "data_parallel", "accumulation_steps"]
    table = {n: np.broadcast_to(values[n], count) for n in [*whole, "plan_memory", "plan_headroom", "compute_time", "step_time", "step_mfu", "plan_time"]}

    def row(i):
        found = {n: column[i] for n, column in table.items()}
        return {n: REGISTRY[n].choices[int(v)] if REGISTRY[n].choices else int(v) if n in whole else float(v) for n, v in found.items()}

    quickest = int(np.argmin(np.where(legal, values["step_time"], np.inf))) if legal.any() else None
    return Plans([row(i) for i in order[:20]], int(fits.sum()), refused, row(quickest) if quickest is not None else None, count)


#: What a reader could change first: each is doubled alone.
CHANGES = ("gpus", "usable_bytes", "link_bandwidth", "network_bandwidth", "global_batch")


def what_first(*, axes=None, **given):
    """What to change first: the time of the best plan with each of :data:`CHANGES` doubled alone.

    Parameters
    ----------
    axes, **given
        As for :func:`search` [-]

    Returns
    -------
    dict
        Name of the input -> time of all tokens over the time without the change [-], the greatest
        help first; infinite if no plan fits, zero if only the change makes one fit

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.
    """
    values = _filled(axes or AXES, given)

    def time(**changed):
        best = search(axes=axes, **given | changed).best
        return best["plan_time"] if best else float("inf")

    now = time()
    ratios = {n: time(**{n: 2 * values[n]}) for n in CHANGES}
    ratios = {n: t / now if now < float("inf") else 0.0 if t < now else float("inf") for n, t in ratios.items()}
    return dict(sorted(ratios.items(), key=lambda item: item[1]))


def kind(plan):
    """The rung of the ladder on which a plan stands."""
    if plan["pipeline_parallel"] > 1:
        return "pipeline"
    if plan["tensor_parallel"] > 1:
        return "tensor_parallel"
    return "zero" if plan["zero_stage"] > 1 else "data_parallel"


def decide(**given):
    """Walk down the decision tree: the simplest kind of plan that fits and wastes little.

    Parameters
    ----------
    **given
        As for :func:`search` [-]

    Returns
    -------
    list of (str, Plans, bool)
        The rungs that were asked, what fits there, and whether the answer was yes; the last is the answer

    Raises
    ------
    ValueError
        If an input is missing, unknown or outside its domain.
    """
    asked = []
    for rung, narrower in LADDER.items():
        plans = search(axes=AXES | narrower, **given)
        enough = bool(plans.ranked) and 1 - plans.best["compute_time"] / plans.best["step_time"] <= GOOD_ENOUGH and plans.best["recompute"] != "full"
        asked.append((rung, plans, enough or rung == "pipeline"))
        if asked[-1][2]:
            return asked
