"""Section 02: the arithmetic of training, and the time it takes.

The 6 in 6·N·D is not typed here: :func:`matmul_flops` counts a product, :func:`backward_products`
differentiates one, and :func:`flops_per_weight` adds up forward and backward.
"""

import sympy as sp

from .formula import Case, Formula, Quantity, Section
from .quantities import *
from .units import DAY

_section = Section(2)
formula = _section.formula

KAPLAN = "Kaplan et al. 2020, Scaling Laws, section 2.1, arXiv 2001.08361"
PALM = "Chowdhery et al. 2022, PaLM, appendix B, arXiv 2204.02311"


# -- the derivation --------------------------------------------------------------------------------

def matmul_flops(rows, inner, columns):
    """FLOPs of a matrix product by counting: a multiplication and an addition for each term.

    Parameters
    ----------
    rows, inner, columns : int or sympy.Expr
        Shapes of the factors, (rows × inner) · (inner × columns) [-]

    Returns
    -------
    int or sympy.Expr
        ``2·rows·inner·columns`` [FLOP]

    >>> matmul_flops(3, 5, 7)
    210
    """
    return 2 * rows * inner * columns


def backward_products(tokens, d_in, d_out):
    """The two products of backward, obtained by differentiating ``tr(Gᵀ·X·W)``.

    Parameters
    ----------
    tokens, d_in, d_out : sympy.Symbol
        X is (tokens × d_in), W is (d_in × d_out), G = dLoss/dY is (tokens × d_out) [-]

    Returns
    -------
    dict
        Name of the gradient to the SymPy product that computes it
    """
    x, w, g = sp.MatrixSymbol("X", tokens, d_in), sp.MatrixSymbol("W", d_in, d_out), sp.MatrixSymbol("G", tokens, d_out)
    loss = sp.Trace(g.T * x * w)
    return {"dX": sp.diff(loss, x).doit(), "dW": sp.diff(loss, w).doit()}


def product_flops(product):
    """FLOPs of a SymPy product of two matrices, from its shapes [FLOP]."""
    left, right = product.args
    return matmul_flops(left.shape[0], left.shape[1], right.shape[1])


def flops_per_weight():
    """Training FLOPs for each weight and token: forward and the two backward products.

    Returns
    -------
    tuple of int
        (forward, backward) [FLOP]

    >>> flops_per_weight()
    (2, 4)
    """
    t, m, n = sp.symbols("T m n", positive=True, integer=True)
    forward = matmul_flops(t, m, n)
    backward = sum(product_flops(p) for p in backward_products(t, m, n).values())
    return tuple(sp.cancel(flops / (t * m * n)) for flops in (forward, backward))


FORWARD, BACKWARD = flops_per_weight()
#: Work with every layer computed again over the work without: 8/6.
RECOMPUTED = (FORWARD + BACKWARD + FORWARD) / (FORWARD + BACKWARD)

# -- FLOPs -----------------------------------------------------------------------------------------

training_flops = formula(
    "training_flops", "C", "FLOP", (FORWARD + BACKWARD) * params * tokens, fill={"params": "model.n_active_params"}, source=KAPLAN,
    cases=[Case({"params": 174.6e9, "tokens": 300e9}, 3.14e23, "Brown et al. 2020, table D.1: GPT-3", rel=2e-3),
           Case({"params": 405.85e9, "tokens": 15.6e12}, 3.8e25, "Grattafiori et al. 2024, section 3.2: Llama 3.1 405B", rel=2e-3)])

_scores = n_layers * seq_len * n_heads * d_head

#: Scores and values, each a product of size s·d for each head: 2·2 forward, twice that backward; half of it below the diagonal.
attention_flops_per_token = formula(
    "attention_flops_per_token", r"C_\text{attn}", "FLOP/token",
    causal.pick({True: (FORWARD + BACKWARD) * _scores}, 2 * (FORWARD + BACKWARD) * _scores), source=PALM,
    cases=[Case(dict(n_layers=118, n_heads=48, d_head=256, seq_len=2048), 12 * 118 * 48 * 256 * 2048, "PaLM, appendix B: 12·L·H·Q·T"),
           Case(dict(n_layers=118, n_heads=48, d_head=256, seq_len=2048, causal=True), 6 * 118 * 48 * 256 * 2048, "half of PaLM, appendix B")])

training_flops_per_token = formula(
    "training_flops_per_token", r"C_\text{tok}", "FLOP/token", (FORWARD + BACKWARD) * matmul_params + attention_flops_per_token.result,
    uses=[attention_flops_per_token], source=PALM,
    cases=[Case(dict(matmul_params=124e6, attention_flops_per_token=113e6), 857e6, "counted: 6·124e6 + 113e6"),
           Case(dict(matmul_params=6607077376, n_layers=32, n_heads=32, d_head=128, seq_len=4096), 1.8908e14 / 4096,
                "XLA's count of Llama 2 7B's step, matrix products and the rest", rel=3e-3)])

_scores_again = attention_flops_per_token.result * FORWARD / (FORWARD + BACKWARD)

_ONE = dict(n_layers=1, n_heads=1)

up_projection_flops = formula(
    "up_projection_flops", r"C_\text{up}", "FLOP/token", FORWARD * n_layers * n_heads * (q_lora_rank * (d_nope + d_rope) + kv_lora_rank * (d_nope + d_v)), numbered=False,
    cases=[Case(dict(n_layers=2, n_heads=3, q_lora_rank=5, d_nope=7, d_rope=11, kv_lora_rank=13, d_v=17), 12 * (90 + 312), "counted: two matrices of each of 6 heads, twice an element")])

#: A recomputed block runs its forward products once more; the head is not recomputed.
hardware_flops_per_token = formula(
    "hardware_flops_per_token", r"C_\text{hw}", "FLOP/token",
    training_flops_per_token.result + sp.Piecewise(
        (FORWARD * (matmul_params - head_params) + _scores_again, sp.Eq(recompute, 2)),
        (_scores_again, sp.Eq(recompute, 1) & sp.Ne(attention, 0)),
        (up_projection_flops.result, sp.Eq(recompute, 3)), (0, True)),
    uses=[training_flops_per_token, attention_flops_per_token, up_projection_flops], source="Narayanan et al. 2021, section 5.1, arXiv 2104.04473",
    cases=[Case(_ONE | dict(matmul_params=1e9, head_params=0.1e9, attention_flops_per_token=3e9, recompute="full"), 6e9 + 3e9 + 1.8e9 + 1e9, "counted: a third more, without the head"),
           Case(_ONE | dict(matmul_params=1e9, head_params=0.1e9, attention_flops_per_token=3e9, recompute="attention", attention="eager"), 10e9, "counted: the scores once more"),
           Case(_ONE | dict(matmul_params=1e9, head_params=0.1e9, attention_flops_per_token=3e9, recompute="attention"), 9e9, "counted: FlashAttention has no scores to recompute"),
           Case(dict(matmul_params=1e9, head_params=0.1e9, attention_flops_per_token=0, recompute="projections", n_layers=2, n_heads=3, q_lora_rank=5, d_nope=7, d_rope=11, kv_lora_rank=13, d_v=17),
                6e9 + 12 * (90 + 312), "counted: the up-projections once more", rel=1e-12),
           Case(_ONE | dict(matmul_params=1e9, head_params=0.1e9, attention_flops_per_token=3e9), 9e9, "counted: nothing is recomputed")])

# -- time ------------------------------------------------------------------------------------------

share = mfu  # the quantity; from here on `mfu` is the formula that computes it
mfu = _section.add(Formula(
    share, flops_per_token * tokens_per_second / (gpus * peak_flops), source=PALM,
    cases=[Case(dict(flops_per_token=1e9, tokens_per_second=5e3, gpus=10, peak_flops=1e12), 0.5, "counted: 5e12 of 1e13"),
           Case(dict(flops_per_token=6 * 64862437376 + 12 * 80 * 8192 * 2048, tokens_per_second=515636, gpus=512, peak_flops=989.5e12), 0.4125,
                "llm-foundry's benchmark table: 70B on 512 H100, 41.25 %", rel=2e-4)]))

training_time = formula(
    "training_time", "T", "s", training_flops.result / (gpus * peak_flops * share), uses=[training_flops],
    cases=[Case({"training_flops": 6 * 6.74e9 * 2e12, "gpus": 1, "peak_flops": 312e12, "mfu": 0.4}, 6.481e8, "counted: 20.5 years of one A100 for 7B and 2T tokens", rel=1e-3),
           Case({"params": 3e9, "tokens": 1e9, "gpus": 3, "peak_flops": 1e12, "mfu": 0.5}, 1.2e7, "counted: 18e18 / 1.5e12")])

tokens_in_deadline = _section.add(training_time.solve_for(tokens, Quantity("tokens_in_deadline", r"D_\text{max}")).bind(
    Quantity("tokens_in_deadline", r"D_\text{max}"), training_time=deadline).replace(
    fill=training_flops.fill,
    cases=[Case({"params": 3e9, "gpus": 3, "peak_flops": 1e12, "mfu": 0.5, "deadline": 1.2e7}, 1e9, "counted: the inverse of training_time's case")]))

#: Tokens grow with parameters, so FLOPs grow with their square.
optimal_params = formula(
    "optimal_params", r"N_\text{opt}", "", sp.Pow(gpus * peak_flops * share * deadline / ((FORWARD + BACKWARD) * tokens_per_param), sp.Rational(1, 2), evaluate=False),
    source="Hoffmann et al. 2022, Chinchilla, arXiv 2203.15556",
    cases=[Case({"gpus": 1, "peak_flops": 5.76e23, "mfu": 1, "deadline": 1, "tokens_per_param": 20}, 70e9, "Hoffmann et al. 2022: the published budget", rel=0.02),
           Case({"gpus": 1, "peak_flops": 5.88e23, "mfu": 1, "deadline": 1, "tokens_per_param": 20}, 70e9, "Hoffmann et al. 2022: Chinchilla, 70B on 1.4T tokens"),
           Case({"gpus": 4, "peak_flops": 1e15, "mfu": 0.25, "deadline": 10 * DAY, "tokens_per_param": 100}, 1.2e9, "counted: (1e15 · 864000 / 600)^½")])
