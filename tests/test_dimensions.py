"""Each formula has the dimension of its declared unit.

The scheme is strict and small. The base dimensions are the byte, the second, the joule, the dollar and the **length** of
an array: how many tokens it has, or how wide it is. A matrix is a length squared, so parameters and logits are; a
product of two matrices is a length cubed, so FLOPs are, and the 6 of 6·N·D needs no unit. Layers, heads, experts, GPUs,
shares and choices are plain counts. What belongs to one card or one sequence does not say so: a peak is FLOP/s, not
FLOP/s a card.
"""

import functools

import pytest
import sympy as sp
from sympy.core.relational import Relational
from sympy.physics.units import Dimension
from sympy.physics.units.dimensions import DimensionSystem

from onegpu import FACTS
from onegpu.calculator import modules
from onegpu.formula import REGISTRY

FORMULAS = [f for m in modules() for f in m._section.formulas]
BASES = BYTE, SECOND, JOULE, DOLLAR, LENGTH = [Dimension(name) for name in ("byte", "second", "joule", "dollar", "length")]
SYSTEM, ONE = DimensionSystem(BASES), Dimension(1)

UNITS = {"B": BYTE, "s": SECOND, "J": JOULE, "W": JOULE / SECOND, "$": DOLLAR, "token": LENGTH, "tokens": LENGTH, "param": LENGTH**2, "logit": LENGTH**2, "element": LENGTH**2, "(s·b·h)": LENGTH**2, "FLOP": LENGTH**3,
         "share": ONE, "GPU": ONE, "GPUs": ONE, "cards": ONE, "": ONE, "1": ONE}

#: What the quantities count whose unit is a bare number; all others count something without a dimension.
COUNTS = {
    LENGTH: "tokens tokens_in_deadline seq_len matmul_tokens d_model d_head d_ff d_ff_expert d_in d_out d_nope d_rope d_v vocab_size n_positions rank q_lora_rank kv_lora_rank",
    LENGTH**2: """params active_params matmul_params head_params expert_params routed_params idle_experts attention_weights feed_forward_weights expert_weights layer_weights norms_and_biases
        largest_model optimal_params lora_params trainable_params""",
    1 / LENGTH: "tokens_per_param",
}
COUNTED = {name: dimension for dimension, names in COUNTS.items() for name in names.split()}

#: Formulas whose plain numbers bear a unit, by whose powers their terms may differ: the units, and why.
_ELEMENT = BYTE / LENGTH**2
HIDDEN = {
    "linear_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "sparse_activations": ([_ELEMENT, LENGTH], "the same, and a router has a logit for each expert"),
    "cached_activations": ([_ELEMENT, LENGTH], "the same, and FlashAttention keeps a vector"),
    "score_activations": ([_ELEMENT, LENGTH], "the same"),
    "kept_per_layer": ([_ELEMENT], "the 2 is the bytes of a bf16 element"),
    "layer_weights": ([LENGTH], "a router has a column for each expert"),
    "norms_and_biases": ([LENGTH], "a vector is a matrix of one row"),
    "params": ([LENGTH], "the same"),
    "norm_bytes": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "attention_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "feed_forward_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "input_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "quantized_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "finetune_kept": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "finetune_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "finetune_working_set": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "held_activations": ([_ELEMENT], "its numbers are the bytes of a tensor's elements"),
    "forward_head": ([_ELEMENT], "the bytes of a logit's copies"),
    "loss_head": ([_ELEMENT], "the same"),
    "quantized_bytes": ([_ELEMENT], "a format's bytes for a weight"),
    "context_long": ([LENGTH], "a rule: its number is one of tokens"), "context_divides": ([LENGTH], "a rule: slices of one token"),
}


class Mismatch(Exception):
    """Two dimensions that should be one."""


def of_unit(unit):
    """The dimension of a unit such as ``"FLOP/s"`` or ``"GPU·s"``."""
    over, _, under = unit.partition("/")
    return sp.prod(UNITS[u] for u in over.split("·")) / UNITS[under]


def of_quantity(q):
    """The dimension of a quantity: that of its unit, or of what it counts."""
    return ONE if q.choices else COUNTED.get(q.name) or of_unit(q.unit)


def hidden_in(formula):
    """The units that the plain numbers of a formula or a rule bear."""
    return tuple(HIDDEN.get(formula.name, ((), ""))[0])


@functools.cache
def exponents(dimension):
    """The dimension as a tuple of exponents, one for each base."""
    found = SYSTEM.get_dimensional_dependencies(dimension)
    return tuple(found.get(base, 0) for base in BASES)


def same(one, other, hidden=()):
    """Whether two dimensions are equal, but for powers of the hidden ones."""
    ratio = [a - b for a, b in zip(exponents(one), exponents(other), strict=True)]
    if not any(ratio) or not hidden:
        return not any(ratio)
    rows = [exponents(h) for h in hidden]
    return sp.Matrix([*rows, ratio]).rank() == sp.Matrix(rows).rank()


def agreed(parts, hidden):
    """The one dimension of all parts; None if all are zero."""
    known = [(p, d) for p in parts if (d := of(p, hidden)) is not None]
    for part, dimension in known[1:]:
        if not same(dimension, known[0][1], hidden):
            raise Mismatch(f"{known[0][0]} is {known[0][1].name}, {part} is {dimension.name}")
    return known[0][1] if known else None


def of(expr, hidden=()):
    """The dimension of an expression; None for a zero, which has any.

    Raises
    ------
    Mismatch
        If a sum, a branch or a comparison mixes dimensions.
    """
    if expr.is_Number:
        return None if expr == 0 else ONE
    if expr.is_Symbol:
        return of_quantity(REGISTRY[expr.name])
    if expr.is_Mul:
        factors = [of(a, hidden) for a in expr.args]
        return None if None in factors else sp.prod(factors)
    if expr.is_Pow:
        return of(expr.base, hidden) ** expr.exp
    if isinstance(expr, sp.Piecewise):
        for _, condition in expr.args:
            compare(condition, hidden)
        return agreed([value for value, _ in expr.args], hidden)
    if isinstance(expr, (sp.Add, sp.Max, sp.Min, sp.Mod, sp.ceiling, sp.floor)):
        return agreed(expr.args, hidden)
    raise TypeError(f"{type(expr).__name__} is not known here: {expr}")


def compare(condition, hidden=()):
    """Raise :class:`Mismatch` if a condition compares two dimensions."""
    for relation in condition.atoms(Relational):
        agreed(relation.args, hidden)


def is_consistent(formula, expr):
    """Whether an expression has the dimension of the formula's result."""
    hidden = hidden_in(formula)
    found = of(expr, hidden)
    return found is None or same(found, of_quantity(formula.result), hidden)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_formula(formula):
    """Sums, branches and comparisons are of one dimension, and the result is of its unit's."""
    assert is_consistent(formula, formula.expr), (
        f"{formula.name} is in {formula.result.unit or COUNTED.get(formula.name, 'a plain count (see COUNTS)')}, its expression in {of(formula.expr, hidden_in(formula)).name}")
    for rule in formula.rules:
        compare(rule.condition, hidden_in(rule))


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_a_wrong_formula_is_found(formula):
    """Squaring any input breaks the formula, if it has a dimension that is not hidden here; but not where it is only compared with zero."""
    hidden, unseen = hidden_in(formula), []
    for q in formula.expr.xreplace({r: sp.Dummy() for r in formula.expr.atoms(Relational) if 0 in r.args}).free_symbols & formula.expr.free_symbols:
        if not same(of_quantity(q), ONE, hidden):
            try:
                unseen += [q.name] if is_consistent(formula, formula.expr.xreplace({q: q**2})) else []
            except Mismatch:
                pass
    assert not unseen


def test_the_scheme_is_used():
    """No entry above is idle, and each exception is needed."""
    assert set(COUNTED) <= set(REGISTRY) and not [n for n in COUNTED if REGISTRY[n].unit]
    named = {f.name: f for f in FORMULAS} | {r.name: r for f in FORMULAS for r in f.rules}
    for name in HIDDEN:
        try:
            found = compare(named[name].condition) if hasattr(named[name], "condition") else of(named[name].expr)
            assert found is not None and not same(found, of_quantity(REGISTRY[name])), name
        except Mismatch:
            pass


@pytest.mark.parametrize("fact", FACTS.values(), ids=lambda f: f.name)
def test_facts(fact):
    """A fact is in one of these units."""
    assert exponents(of_unit(fact.unit))
