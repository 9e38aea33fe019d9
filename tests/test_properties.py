"""Properties that hold for every formula, on inputs that Hypothesis draws from each quantity's own domain and slider.

Nothing here knows a single number of the book. The tables say which laws are meant; a new formula is tested as soon as
it stands in its module, and has to be put into the tables where a law applies to it.
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from onegpu import compute, coupling, memory, planner, scaling
from onegpu.calculator import modules
from onegpu.formula import REGISTRY
from test_dimensions import BASES, exponents, hidden_in, of_quantity

FORMULAS = {f.name: f for m in modules() for f in m._section.formulas}
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")  # not into the checkout
every_formula = pytest.mark.parametrize("formula", FORMULAS.values(), ids=lambda f: f.name)


def examples(count):
    """So many examples, the same in every run, and nothing written to disk."""
    return settings(max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink])


# -- drawing ---------------------------------------------------------------------------------------

def value(q):
    """A strategy for legal values of a quantity: over its slider, evenly on a logarithmic scale where that is long."""
    if q.choices:
        return st.sampled_from(q.choices)
    low, high = map(float, q.slider)
    least = max(low, float(q.valid.inf))

    def at(t):
        x = low * (high / low) ** (t / 1000) if low > 0 and high / low > 100 else low + (high - low) * t / 1000
        return max(round(x), math.ceil(least)) if q.integer else x

    return st.integers(0, 1000).map(at)


def mended(values):
    """The values changed so that a plan's numbers divide, and a part is no more than its whole: what is drawn at random hardly ever does."""
    v = dict(values)
    for part, whole in (("routed_params", "expert_params"), ("routed_params", "matmul_params"), ("head_params", "matmul_params"), ("matmul_params", "params"), ("expert_params", "params"),
                        ("n_dense_layers", "n_layers"), ("n_active_experts", "n_experts")):
        if part in v and whole in v:
            v[whole] = max(v[part], v[whole])
    tp, pp, cp, dp = (v.get(n, 1) for n in ("tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel"))

    def up(name, *of):
        """Raise a value to a multiple of others, if it is there."""
        if name in v:
            unit = math.lcm(*(int(x) for x in of))
            v[name] = unit * max(math.ceil(v[name] / unit), 1 if v[name] else 0)

    if pp > 1 and "zero_stage" in v:
        v["zero_stage"] = min(v["zero_stage"], 2)
    if "expert_parallel" in v and not v.get("n_experts"):
        v["expert_parallel"] = 1
    if "schedule" in v and (pp % 2 or not v.get("n_experts")):
        v["schedule"] = "1f1b"
    dual = v.get("schedule") == "dualpipe"
    if "virtual_stages" in v and (pp == 1 or dual):
        v["virtual_stages"] = 1
    stages, ep = v.get("virtual_stages", 1), v.get("expert_parallel", 1)
    round_of = pp if stages > 1 else 2 if dual else 1
    up("n_experts", ep)
    up("n_heads", tp, v.get("n_kv_heads", 1))
    up("accumulation_steps", round_of)
    for name, least in (("gpus_per_node", tp), ("n_layers", pp * stages - 2), ("seq_len", planner.LEAST_CONTEXT * cp if cp > 1 else 1)):
        if name in v:
            v[name] = max(v[name], least)
    up("seq_len", 2 * cp if cp > 1 else 1)
    if "gpus" in v and "tensor_parallel" in v:
        up("gpus", tp * cp * pp * ep)
        dp = v["gpus"] // (tp * cp * pp)
    up("data_parallel", ep)
    if "micro_batch" in v:
        up("global_batch", dp * v["micro_batch"] * v["seq_len"] * round_of)
    return v


def inputs(*formulas):
    """A strategy for legal inputs of some formulas together, for which all their rules hold."""
    quantities = {n: q for f in formulas for n, q in f.inputs().items()}
    ruled = [f for f in formulas if f.all_rules()]
    dense = any("finetune_dense" in f.all_rules() for f in ruled)  # drawn at random, a model hardly ever is

    def legal(values):
        for f in ruled:
            known = f.compute({n: REGISTRY[n].check(values[n]) for n in f.inputs()})
            if not all(rule.holds(*(known[q.name] for q in rule.arguments)) for rule in f.all_rules().values()):
                return False
        return True

    drawn = st.fixed_dictionaries({n: st.just(0) if dense and n in ("n_experts", "kv_lora_rank") else value(q) for n, q in quantities.items()})
    return drawn.map(mended).filter(legal) if ruled else drawn.map(mended)


def is_legal(q, x):
    """Whether a value is finite and in the quantity's domain."""
    try:
        return x in range(len(q.choices)) if q.choices else q.check(x) == x
    except ValueError:
        return False


def call(formula, values):
    """The formula's value, or None where it is refused."""
    try:
        return formula(**{n: v for n, v in values.items() if n in formula.inputs()})
    except ValueError:
        return None


# -- finite and in the domain ------------------------------------------------------------------------

#: Results that can leave their domain although every input is in its own: then they are refused.
MAY_REFUSE = {"mfu": "more FLOPs than the peak", "run_mfu": "the same", "run_hfu": "the same",  "implied_mfu": "the same", "expected_goodput": "all the time is lost", "memory_load": "the overhead is more than the card",
              "binding_wall": "the same", "plan_memory_load": "the same", "plan_wall": "the same", "largest_model": "a parameter has no bytes", "arithmetic_intensity": "the same"}


@every_formula
def test_values_are_finite_and_legal(formula):
    """Legal inputs give a finite value inside the result's domain, also on the way; only the listed ones may refuse, naming themselves."""
    @examples(8)
    @given(inputs(formula))
    def check(values):
        found = formula.evaluate(**values)
        for name in (f.name for f in formula.graph()):
            q = REGISTRY[name]
            assert is_legal(q, found[name]) or name in MAY_REFUSE, f"{name} = {found[name]}, with {values}"
        if formula.name not in MAY_REFUSE:
            assert formula(**values) == found[formula.name]

    check()


@every_formula
def test_arrays_are_their_elements(formula):
    """A call with arrays gives what calls with their elements give."""
    @examples(4)
    @given(st.lists(inputs(formula), min_size=2, max_size=4))
    def check(rows):
        values = [call(formula, row) for row in rows]
        assume(None not in values)
        array = formula(**{n: np.array([row[n] for row in rows], dtype=object if REGISTRY[n].choices else float) for n in rows[0]})
        assert np.broadcast_to(array, len(rows)).tolist() == values

    check()


# -- scaling ---------------------------------------------------------------------------------------

def power(name, base):
    """The power of a base dimension in a quantity."""
    return int(exponents(of_quantity(REGISTRY[name]))[BASES.index(base)])


SCALED = [(f, b) for f in FORMULAS.values() for b in BASES if any(power(n, b) for n in f.inputs())
          and not any(exponents(h)[BASES.index(b)] for u in f.graph() for h in hidden_in(u))]


@pytest.mark.parametrize("formula, base", SCALED, ids=lambda x: str(x.name))
def test_units_do_not_matter(formula, base):
    """With every byte (second, joule, dollar, length) counted as two, the result is what its dimension says, exactly."""
    powers = {n: power(n, base) for n in formula.inputs()}
    result = 0 if formula.result.choices else power(formula.name, base)

    @examples(4)
    @given(inputs(formula))
    def check(values):
        before = call(formula, values)
        assume(before is not None)
        after = formula(**{n: v * 2.0 ** powers[n] if powers[n] else v for n, v in values.items()})
        assert after == before * 2.0**result

    check()


#: Double one input alone: the formulas that then change by this power of two. The table is complete for each input in it.
LAWS = """
tokens 1: training_flops training_time cluster_time training_cost training_energy implied_mfu plan_time plan_cost
params 1: training_state inference_weights gradients master_weights optimizer_moments forward_gradients step_memory offload_time training_flops training_time cluster_time
params 1: training_cost training_energy implied_mfu optimizer_time sharded_state data_parallel_bytes sharded_optimizer_time
params -1: tokens_in_deadline
gpus 1: tokens_in_deadline
gpus -1: mfu training_time cluster_time cluster_mtbf
gpus 1/2: optimal_params
gpus -1/2: checkpoint_interval
peak_flops 1: tokens_in_deadline ridge_intensity fastest_rate fastest_finetune
peak_flops -1: mfu training_time cluster_time training_cost training_energy implied_mfu compute_time card_compute imbalance_time run_mfu run_mfu_attention run_hfu finetune_efficiency
peak_flops 1/2: optimal_params
mfu 1: tokens_in_deadline
mfu -1: training_time cluster_time training_cost training_energy
mfu 1/2: optimal_params
deadline 1: tokens_in_deadline
deadline 1/2: optimal_params
goodput -1: cluster_time training_cost training_energy plan_time plan_cost
scaling_efficiency -1: cluster_time training_cost training_energy
gpu_price 1: training_cost plan_cost
micro_batch 1: activations logits layer_working_set sharded_activations tensor_parallel_time pipeline_time tokens_per_step compute_time bubble_time batch_load
seq_len 1: attention_flops_per_token logits tensor_parallel_time pipeline_time tokens_per_step batch_load
n_layers 1: attention_flops_per_token up_projection_flops
data_parallel 1: tokens_per_step batch_load
micro_batch 1: card_activations plan_activations card_compute card_tensor_time plan_bubble_time card_pipeline_time context_time expert_time exposed_expert_time imbalance_time
seq_len 1: card_tensor_time card_pipeline_time context_time expert_time imbalance_time
link_bandwidth -1: all_gather_time all_reduce_time tensor_parallel_time card_tensor_time
memory_bandwidth -1: ridge_intensity optimizer_time sharded_optimizer_time plan_optimizer_time
tensor_parallel -1: gathered_unit sharded_activations sharded_state data_parallel_bytes compute_time sharded_optimizer_time plan_memory memory_load
tensor_parallel -1: dense_state dense_bytes card_activations plan_activations card_compute expert_time exposed_expert_time imbalance_time
micro_batch 1: finetune_activations held_activations held_logits finetune_working_set
seq_len 1: held_activations held_logits
n_layers 1: held_activations
peak_flops -1: finetune_time finetune_cost
gpus -1: finetune_time
gpu_price 1: finetune_cost
pipeline_parallel -1: sharded_state data_parallel_bytes sharded_optimizer_time dense_state expert_state second_copy plan_state dense_bytes expert_bytes plan_bytes plan_optimizer_time
"""
LAWS = [(words[0], sp.Rational(words[1]), name) for line in LAWS.strip().splitlines() for words, names in [(line.partition(":")[0].split(), line.partition(":")[2])] for name in names.split()]


class NoLaw(Exception):
    """Not a power of the input."""


def degree(expr, q, formulas):
    """The power of ``q`` that an expression is, from its form; None for a zero, which is every power.

    Raises
    ------
    NoLaw
        If it is no power of ``q``, or only in part of its domain.
    """
    def one(parts):
        known = {d for p in parts if (d := degree(p, q, formulas)) is not None}
        if len(known) > 1:
            raise NoLaw
        return known.pop() if known else None

    if expr.is_Number:
        return None if expr == 0 else 0
    if expr.is_Symbol:
        return 1 if expr == q else degree(formulas[expr.name].expr, q, {u.name: u for u in formulas[expr.name].uses}) if expr.name in formulas else 0
    if expr.is_Mul:
        factors = [degree(a, q, formulas) for a in expr.args]
        return None if None in factors else sum(factors)
    if expr.is_Pow:
        return degree(expr.base, q, formulas) * expr.exp
    if isinstance(expr, sp.Piecewise):
        for relation in set().union(*(c.atoms(sp.core.relational.Relational) for _, c in expr.args)):
            one(relation.args)
        return one([v for v, _ in expr.args])
    found = one(expr.args)
    if isinstance(expr, (sp.ceiling, sp.floor, sp.Mod)) and found:
        raise NoLaw
    return found


def law(formula, q):
    """The power of ``q`` that a formula is, or 0 if it is none."""
    try:
        return degree(formula.expr, q, {u.name: u for u in formula.uses}) or 0
    except NoLaw:
        return 0


def test_the_laws_are_complete():
    """Every formula that is a power of one of these inputs, by its form, stands in the table, and no other."""
    meant = {(n, f): d for n, d, f in LAWS}
    found = {(n, f.name): d for n in dict.fromkeys(n for n, _, _ in LAWS) for f in FORMULAS.values() if n in f.inputs() and n != f.name and (d := law(f, REGISTRY[n]))}
    assert found == meant, {k: (meant.get(k), found.get(k)) for k in found.keys() ^ meant.keys() | {k for k in found.keys() & meant.keys() if found[k] != meant[k]}}


@pytest.mark.parametrize("name, power, formula", LAWS, ids=lambda x: str(x))
def test_doubling(name, power, formula):
    """Doubling the input multiplies the formula by two to that power."""
    formula = FORMULAS[formula]

    @examples(4)
    @given(inputs(formula))
    def check(values):
        values[name] = values[name] if values[name] * 2 in REGISTRY[name].valid else values[name] / 2
        doubled = values | {name: values[name] * 2}
        before, after = call(formula, values), call(formula, doubled)
        assume(before is not None and after is not None)
        assert after == pytest.approx(before * 2.0 ** float(power), rel=1e-12)

    check()


# -- never the wrong way -----------------------------------------------------------------------------

COSTS = [f for f in FORMULAS.values() if f.result.unit in ("B", "s", "J", "$", "FLOP", "FLOP/token") and f.result.valid.inf == 0]
MORE = """params matmul_params tokens n_layers seq_len micro_batch n_heads n_kv_heads d_head d_ff d_model vocab_size n_ff_matrices weight_bytes grad_bytes master_bytes optimizer_bytes
    bytes_per_logit quantized_bytes dispatch_bytes message_bytes group_size gpu_price gpu_power pue accumulate dropout expert_imbalance routed_params n_active_experts n_shared_experts d_ff_expert""".split()
LESS = "peak_flops mfu kernel_efficiency scaling_efficiency goodput memory_bandwidth host_bandwidth link_bandwidth network_bandwidth link_fraction network_fraction overlap causal".split()
#: Costs that more of something can lower, and why; None stands for anything.
OTHERWISE = {
    ("backward_gradients", None): "left out where the peak is at the start of backward", ("backward_activations", None): "left out where it is at its end",
    ("exposed_time", None): "longer compute hides more", ("plan_exposed_time", None): "the same", ("exposed_expert_time", None): "the same",
    ("finetune_backward_gradients", None): "left out where the peak is at the start of backward", ("finetune_backward_activations", None): "left out where it is at its end",
    ("measured_overhead", None): "what a measured peak leaves", ("finetune_overhead", None): "the same",
    ("plan_time", "micro_batch"): "fewer micro-batches make the same batch, and each hides more", ("plan_cost", "micro_batch"): "the same",
} | {(f.name, n): "a quantised weight is more than one in fewer bytes, and a head is part of the matrices" for f in COSTS for n in ("matmul_params", "head_params") if "quantized_weights" in {u.name for u in f.graph()}
} | {(f.name, "grad_bytes"): "of the bytes of a trained parameter, its gradient's are counted apart" for f in COSTS if "trainable_state" in {u.name for u in f.graph()}
} | {(f.name, "n_layers"): "with the same parameters, more layers are smaller and divide better into stages" for f in COSTS if {"layers_per_stage", "gathered_unit"} & {u.name for u in f.graph()}}


@pytest.mark.parametrize("formula", COSTS, ids=lambda f: f.name)
def test_more_work_never_costs_less(formula):
    """More of what makes work, or less of what does it, never lowers bytes, seconds, joules, dollars or FLOPs."""
    names = [n for n in formula.inputs() if n in MORE + LESS and not {(formula.name, n), (formula.name, None)} & OTHERWISE.keys()]
    if not names:
        return

    @examples(8)
    @given(inputs(formula), st.sampled_from(names), st.data())
    def check(values, name, data):
        other = data.draw(value(REGISTRY[name]))
        low, high = sorted((values[name], other), reverse=name in LESS)
        less, more = call(formula, values | {name: low}), call(formula, values | {name: high})
        assume(less is not None and more is not None)
        assert less <= more * (1 + 1e-12), f"{name}: {low} -> {less}, {high} -> {more}, with {values}"

    check()


# -- the whole and its parts ---------------------------------------------------------------------------

def parts(formula):
    """The formulas whose results stand in its sum as they are, or in its maximum."""
    negative = formula.expr.is_Add and any(a.could_extract_minus_sign() for a in formula.expr.args)
    return [u.name for u in formula.uses if u.result in formula.expr.args] if isinstance(formula.expr, (sp.Add, sp.Max)) and not negative else []


@pytest.mark.parametrize("formula", [f for f in FORMULAS.values() if parts(f)], ids=lambda f: f.name)
def test_the_whole_is_no_less_than_a_part(formula):
    """A sum or a maximum is at least each of its parts: the peak, the step, the plan's memory."""
    @examples(8)
    @given(inputs(formula))
    def check(values):
        found = formula.evaluate(**values)
        assert all(found[part] <= found[formula.name] for part in parts(formula))

    check()


def test_the_peak_is_one_of_its_moments():
    """The peak of a step is reached in forward, in backward or in the optimizer's step, and is at least the state that is always there."""
    @examples(40)
    @given(inputs(memory.training_memory))
    def check(values):
        v = memory.training_memory.evaluate(**values)
        assert v["training_memory"] in (v["forward_memory"], v["backward_memory"], v["step_memory"])
        assert v["training_memory"] >= v["inference_weights"] + v["master_weights"] + v["optimizer_moments"] + max(v["activations"], v["gradients"])

    check()


# -- sharding ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("state, axis", [(f, n) for f in (coupling.sharded_state, planner.plan_state) for n in ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel", "zero_stage")
                                         if n in f.inputs()], ids=lambda x: getattr(x, "name", x))
def test_more_gpus_never_hold_more_state_each(state, axis):
    """State on a GPU never grows with the cards of any axis, nor with the ZeRO stage; all GPUs together hold it at least once, under ZeRO-3 exactly."""
    @examples(50)
    @given(inputs(state), st.integers(1, 64))
    def check(values, more):
        values |= {"schedule": "1f1b"} if "schedule" in values else {}
        after = min(3, values[axis] + more) if axis == "zero_stage" else values[axis] * more
        assert state(**values | {axis: after}) <= state(**values) * (1 + 1e-12)
        gpus = math.prod(values.get(n, 1) for n in ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel"))
        whole = call(memory.training_state, values)
        assert state(**values) * gpus >= whole * (1 - 1e-12)
        assert state(**values | {"zero_stage": 3}) * gpus == pytest.approx(whole, rel=1e-12)

    check()


def test_tensor_parallel_never_takes_more_memory():
    """Twice the tensor-parallel cards never need more memory each, whatever the rest of the plan."""
    @examples(50)
    @given(inputs(coupling.plan_memory))
    def check(values):
        twice = {"tensor_parallel": 2 * values["tensor_parallel"], "n_heads": 2 * values["n_heads"], "gpus_per_node": 2 * values["gpus_per_node"]}
        after, before = call(coupling.plan_memory, values | twice), call(coupling.plan_memory, values | {n: twice[n] for n in ("n_heads", "gpus_per_node")})
        assume(after is not None and before is not None)
        assert after <= before

    check()


def test_a_later_zero_stage_sends_no_less():
    """What a later stage saves in memory it pays on the wire: from stage 1 on, bytes never fall. A bubble shrinks with more micro-batches and with virtual stages."""
    @examples(40)
    @given(inputs(coupling.data_parallel_bytes, coupling.pipeline_bubble))
    def check(values):
        sent = [call(coupling.data_parallel_bytes, values | {"zero_stage": z}) for z in (1, 2, 3)]
        assert sent == sorted(sent)
        for name in ("accumulation_steps", "virtual_stages"):
            assert call(coupling.pipeline_bubble, values | {name: 2 * values[name]}) <= call(coupling.pipeline_bubble, values)

    check()


def test_recomputing_more_keeps_less():
    """Fewer bytes are kept with each step of recomputation, and never fewer FLOPs done; a FlashAttention keeps no more than the others."""
    @examples(40)
    @given(inputs(memory.kept_per_layer, compute.hardware_flops_per_token))
    def check(values):
        def both(**changed):
            return [call(f, values | changed) for f in (memory.kept_per_layer, compute.hardware_flops_per_token)]
        (a, x), (b, y), (c, z) = (both(recompute=r) for r in ("none", "attention", "full"))
        assert a >= b >= c and x <= y <= z and x >= call(compute.training_flops_per_token, values)
        kept = [both(attention=how, recompute="none")[0] for how in ("flash", "eager-bf16", "eager")]
        assert kept == sorted(kept)

    check()


# -- inverses ------------------------------------------------------------------------------------------

INVERSES = {}


def inverse(*formulas):
    """Register a pair of values that must be equal, for legal inputs of some formulas."""
    def register(pair):
        INVERSES[pair.__name__] = (formulas, pair)
        return pair
    return register


@inverse(memory.training_state)
def largest_model(v):
    """The largest model for the bytes of a model's state is that model."""
    return call(memory.largest_model, v | {"memory_bytes": memory.training_state(**v)}), v["params"]


@inverse(compute.training_time)
def tokens_in_deadline(v):
    """The tokens in the time of some tokens are those tokens."""
    return call(compute.tokens_in_deadline, v | {"deadline": compute.training_time(**v)}), v["tokens"]


@inverse(compute.optimal_params)
def optimal_params(v):
    """The compute-optimal model takes just the time there is for its own tokens."""
    size = compute.optimal_params(**v)
    return call(compute.training_time, v | {"params": size, "tokens": v["tokens_per_param"] * size}), v["deadline"]


@inverse(scaling.cluster_time)
def implied_mfu(v):
    """The MFU implied by a cluster's time is the one put in, with its losses."""
    return call(scaling.implied_mfu, v | {"gpu_seconds": v["gpus"] * scaling.cluster_time(**v)}), v["mfu"] * v["scaling_efficiency"] * v["goodput"]


@inverse(compute.training_time)
def mfu(v):
    """The MFU of the tokens a second that a training time means is the one put in."""
    return call(compute.mfu, v | {"flops_per_token": compute.training_flops(params=v["params"], tokens=1), "tokens_per_second": v["tokens"] / compute.training_time(**v)}), v["mfu"]


@inverse(scaling.training_cost, scaling.training_energy)
def cost_and_energy(v):
    """Cost and energy do not depend on the number of GPUs, and are price and power times the same GPU-hours."""
    cost, energy = (call(f, v) / v[n] for f, n in ((scaling.training_cost, "gpu_price"), (scaling.training_energy, "gpu_power")))
    assert call(scaling.training_cost, v | {"gpus": 1}) == pytest.approx(cost * v["gpu_price"], rel=1e-12)
    return cost * v["pue"], energy


@inverse(coupling.all_reduce_time)
def all_reduce(v):
    """An all-reduce is two all-gathers."""
    return coupling.all_reduce_time(**v), 2 * coupling.all_gather_time(**v)


@inverse(coupling.ridge_tokens)
def ridge_tokens(v):
    """At the ridge's tokens the intensity is the ridge's, and the attainable FLOP/s are the peak."""
    if not v["weight_bytes"]:
        return None, None
    ridge = call(coupling.ridge_intensity, v)
    found = coupling.arithmetic_intensity.compute({n: float(v[n]) for n in ("d_in", "d_out", "weight_bytes")} | {"matmul_tokens": coupling.ridge_tokens(**v)})
    assert coupling.attainable_flops(intensity=ridge, peak_flops=v["peak_flops"], memory_bandwidth=v["memory_bandwidth"]) == pytest.approx(v["peak_flops"], rel=1e-12)
    return found["arithmetic_intensity"], ridge


@inverse(scaling.extra_steps)
def extra_steps_and_tokens(v):
    """McCandlish's hyperbola: (S/Smin − 1)·(D/Dmin − 1) = 1."""
    return (scaling.extra_steps(**v) - 1) * (scaling.extra_tokens(**v) - 1) + 1, 2


@inverse(compute.attention_flops_per_token)
def causal(v):
    """A causal model needs half of the scores."""
    return 2 * compute.attention_flops_per_token(**v | {"causal": True}), compute.attention_flops_per_token(**v | {"causal": False})


@inverse(planner.plan_headroom)
def global_batch(v):
    """The micro-batches of a legal plan make up the global batch, on all of its cards."""
    found = planner.plan_headroom.evaluate(**v)
    assert found["data_parallel"] * v["tensor_parallel"] * v["pipeline_parallel"] * v.get("context_parallel", 1) == v["gpus"]
    return coupling.tokens_per_step(**{n: found[n] for n in ("data_parallel", "accumulation_steps", "micro_batch", "seq_len")}), v["global_batch"]


@pytest.mark.parametrize("name", INVERSES)
def test_inverse(name):
    """What one formula computes, another turns back."""
    formulas, pair = INVERSES[name]

    @examples(40)
    @given(inputs(*formulas))
    def check(values):
        assume(all(call(f, values) is not None for f in formulas))
        one, other = pair(values)
        assume(one is not None)  # nothing has any bytes
        assert one == pytest.approx(other, rel=1e-9)

    check()


def test_whole_numbers_are_the_least():
    """Cards for a state and GPUs for a deadline are just enough: one fewer is too few. Replicas at the critical batch are just not too many."""
    @examples(40)
    @given(inputs(memory.cards_for_state, scaling.gpus_for_deadline, scaling.cluster_time, scaling.largest_data_parallel))
    def check(values):
        state, cards = call(memory.training_state, values), call(memory.cards_for_state, values)
        assert (cards - 1) * values["memory_bytes"] <= state * (1 + 1e-12) and state <= cards * values["memory_bytes"] * (1 + 1e-12)
        gpus = call(scaling.gpus_for_deadline, values)
        assert call(scaling.cluster_time, values | {"gpus": gpus}) <= values["deadline"] * (1 + 1e-12)
        assert gpus == 1 or call(scaling.cluster_time, values | {"gpus": gpus - 1}) >= values["deadline"] * (1 - 1e-12)
        replicas, one = call(scaling.largest_data_parallel, values), values["seq_len"] * values["micro_batch"]
        assert replicas * one <= values["critical_batch"] < (replicas + 1) * one

    check()


def test_the_best_checkpoint_interval_is_the_best():
    """Any other interval wastes more time."""
    @examples(40)
    @given(inputs(scaling.expected_goodput), st.sampled_from([0.5, 0.9, 1.1, 2]))
    def check(values, factor):
        best = scaling.expected_goodput.compute({n: float(v) for n, v in values.items()})
        moved = best | {"checkpoint_interval": best["checkpoint_interval"] * factor}
        other = scaling.expected_goodput.compute(moved, moved)["expected_goodput"]
        assert other < best["expected_goodput"]

    check()
