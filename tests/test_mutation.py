"""Break a formula, and one of its own anchored cases must fail: each number, sign, power, input and comparison in turn."""

import pytest
import sympy as sp

from onegpu.calculator import modules

FORMULAS = [f for m in modules() for f in m._section.formulas]
#: Mutants that mean the same: a whole number is 1, or above 0, if and only if its square is.
EQUIVALENT = {("plan_memory", "pipeline_parallel squared"), ("expert_layers", "n_experts squared"),
              ("input_activations", "n_norms squared"), ("quantized_activations", "n_norms squared"), ("held_activations", "n_norms squared"),
              ("input_activations", "lora_dropout squared"), ("quantized_activations", "lora_dropout squared"),
              ("linear_activations", "n_experts squared"), ("linear_activations", "kv_lora_rank squared"), ("card_memory", "pipeline_parallel squared")}


def mutants(expr):
    """(what was broken, the broken expression)."""
    for node in set(sp.preorder_traversal(expr)):
        if node.is_Number:
            yield f"{node} + 1", expr.xreplace({node: node + 1})
        elif isinstance(node, sp.Pow) and node.exp.is_Number:
            yield f"power of {node}", expr.xreplace({node: node.base ** (2 * node.exp)})
        elif node.is_Add:
            for term in node.args:
                yield f"sign of {term}", expr.xreplace({node: node - 2 * term})
        elif isinstance(node, (sp.Max, sp.Min)):
            yield f"{node} swapped", expr.xreplace({node: (sp.Min if isinstance(node, sp.Max) else sp.Max)(*node.args)})
        elif node.is_Symbol and not node.choices:
            yield f"{node} squared", expr.xreplace({node: node**2})


def holds(formula):
    """Whether every anchored case holds."""
    try:
        return all(formula(**c.inputs) == pytest.approx(c.value, rel=c.rel, abs=0) for c in formula.cases)
    except ValueError:
        return False


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_no_mutant_survives(formula):
    """The anchored cases of a formula see every one of its mutants."""
    assert holds(formula), "its own cases do not hold"
    survivors = []
    for broken, expr in mutants(formula.expr):
        if expr != formula.expr and (formula.name, broken) not in EQUIVALENT and holds(formula.replace(expr=expr)):
            survivors.append(broken)
    assert not survivors, f"no case of {formula.name} sees: {survivors}"
