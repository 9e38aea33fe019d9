"""The parameters of a shape: what a model's config fixes before any training.

A quantity here bears the name of a field of ``catalog.Transformer``. What a shape does not have is 0.
"""

import sympy as sp

from .formula import Case, Formula, Rule, Section
from .quantities import *

_section = Section(1)


def _formula(name, symbol, expr, cases, uses=()):
    return _section.formula(name, symbol, "", expr, uses=uses, cases=cases, numbered=False)


#: What a shape must satisfy, in Python and in the page.
RULES = (
    Rule("kv_heads_divide", sp.Eq(sp.Mod(n_heads, n_kv_heads), 0)),
    Rule("experts_visited", n_active_experts <= n_experts),
    Rule("dense_layers", n_dense_layers <= n_layers),
)

_query = n_heads * (d_nope + d_rope)
_query_weights = sp.Piecewise((q_lora_rank * (d_model + _query), q_lora_rank > 0), (d_model * _query, True))
_latent = _query_weights + d_model * (kv_lora_rank + d_rope) + kv_lora_rank * n_heads * (d_nope + d_v) + n_heads * d_v * d_model
_HEADS = dict(d_model=10, n_heads=4, n_kv_heads=2, d_head=3)
_MLA = _HEADS | dict(kv_lora_rank=7, d_nope=5, d_rope=2, d_v=6)

attention_weights = _formula(
    "attention_weights", r"N_\text{attn}", sp.Piecewise((_latent, kv_lora_rank > 0), (2 * d_model * d_head * (n_heads + n_kv_heads), True)),
    [Case(_HEADS, 10 * 12 + 2 * 10 * 6 + 12 * 10, "counted: queries, keys and values, output"),
     Case(_MLA, 10 * 28 + 10 * 9 + 7 * 44 + 24 * 10, "counted: latent keys and values"),
     Case(_MLA | {"q_lora_rank": 1}, 10 + 28 + 10 * 9 + 7 * 44 + 24 * 10, "counted: latent queries too"),
     Case(_MLA | {"q_lora_rank": 8, "kv_lora_rank": 1}, 8 * 38 + 10 * 3 + 44 + 24 * 10, "counted"),
     Case(dict(d_model=7168, n_heads=128, n_kv_heads=128, d_head=192, q_lora_rank=1536, kv_lora_rank=512, d_nope=128, d_rope=64, d_v=128), 187105280, "DeepSeek-V3's config: a layer's attention")])

feed_forward_weights = _formula("feed_forward_weights", r"N_\text{ff}", n_ff_matrices * d_model * d_ff, [Case(dict(n_ff_matrices=3, d_model=5, d_ff=7), 105, "counted")])

expert_weights = _formula("expert_weights", r"N_\text{expert}", n_ff_matrices * d_model * d_ff_expert, [Case(dict(n_ff_matrices=3, d_model=5, d_ff_expert=7), 105, "counted")])

expert_layers = _formula(
    "expert_layers", r"L_\text{moe}", sp.Piecewise((n_layers - n_dense_layers, n_experts > 0), (0, True)),
    [Case(dict(n_layers=61, n_dense_layers=3, n_experts=256), 58, "DeepSeek-V3's config"), Case(dict(n_layers=5, n_experts=1), 5, "counted"), Case(dict(n_layers=32), 0, "counted: a dense model")])

layer_weights = _formula(
    "layer_weights", r"N_\text{layers}",
    n_layers * attention_weights.result + (n_layers - expert_layers.result) * feed_forward_weights.result
    + expert_layers.result * (expert_weights.result * (n_active_experts + n_shared_experts) + d_model * n_experts),
    [Case(dict(n_layers=7, attention_weights=100, expert_layers=3, feed_forward_weights=50, expert_weights=20, n_active_experts=2, n_shared_experts=5, d_model=11, n_experts=13),
          700 + 4 * 50 + 3 * (20 * 7 + 143), "counted")], [attention_weights, feed_forward_weights, expert_weights, expert_layers])

expert_params = _section.add(Formula(
    expert_params, expert_layers.result * expert_weights.result * n_experts, uses=[expert_layers, expert_weights],
    cases=[Case(dict(expert_layers=3, expert_weights=20, n_experts=13), 780, "counted")]), numbered=False)

routed_params = _section.add(Formula(
    routed_params, expert_layers.result * expert_weights.result * n_active_experts, uses=[expert_layers, expert_weights],
    cases=[Case(dict(expert_layers=3, expert_weights=20, n_active_experts=2), 120, "counted")]), numbered=False)

idle_experts = _formula(
    "idle_experts", r"N_\text{idle}", expert_params.result - routed_params.result, [Case(dict(expert_params=780, routed_params=120), 660, "counted")], [expert_params, routed_params])

_norm = norm.pick({"rmsnorm": 1, "layernorm": 2})
_SMALL = dict(n_layers=7, d_model=11, n_heads=4, n_kv_heads=2, d_head=3, n_ff_matrices=3, d_ff=13, expert_layers=5)

norms_and_biases = _formula(
    "norms_and_biases", r"N_\text{small}",
    n_layers * (n_norms * _norm * d_model + 2 * qk_norm * d_head + q_lora_rank + kv_lora_rank
                + qkv_bias * d_head * (n_heads + 2 * n_kv_heads) + linear_bias * (2 * d_model + (n_ff_matrices - 1) * d_ff))
    + _norm * d_model + expert_layers.result * n_experts * router_bias,
    [Case(_SMALL, 7 * 22 + 11, "counted: two norms a layer and the last"),
     Case(_SMALL | dict(norm="layernorm", n_norms=4), 7 * 88 + 22, "counted: weights and biases of norms"),
     Case(_SMALL | dict(norm="none", qk_norm=3, q_lora_rank=17, kv_lora_rank=19), 7 * (18 + 36), "counted: norms of queries, keys and latents"),
     Case(_SMALL | dict(norm="none", qkv_bias=True), 7 * 24, "counted: biases of q, k, v"),
     Case(_SMALL | dict(norm="none", linear_bias=True), 7 * (22 + 26), "counted: biases of the output, gate, up and down"),
     Case(_SMALL | dict(norm="none", n_experts=23, router_bias=True), 115, "counted: a bias for each expert"),
     Case(_SMALL | dict(norm="none", n_experts=23), 0, "counted: none")], [expert_layers])

head_params = _section.add(Formula(head_params, vocab_size * d_model, cases=[Case(dict(vocab_size=32000, d_model=4096), 131072000, "Llama 2 7B's config")]), numbered=False)

matmul_params = _section.add(Formula(
    matmul_params, layer_weights.result + head_params.result, uses=[layer_weights, head_params],
    cases=[Case(dict(layer_weights=1e9, head_params=1e8), 1.1e9, "counted")]), numbered=False)

_REST = dict(n_layers=1, layer_weights=1e6, idle_experts=1e5, norms_and_biases=1e4, head_params=1e3, d_model=10, vocab_size=100)

params = _section.add(Formula(
    params, layer_weights.result + idle_experts.result + norms_and_biases.result + (2 - tied_embeddings) * head_params.result
    + d_model * (n_positions + embedding_norm * _norm) + head_bias * vocab_size, uses=[layer_weights, idle_experts, norms_and_biases, head_params], rules=RULES,
    cases=[Case(_REST | dict(n_heads=4, n_kv_heads=2), 1112000, "counted: two tables"),
           Case(_REST | dict(n_heads=4, n_kv_heads=2, tied_embeddings=True, n_positions=7), 1111070, "counted: one table, and one of positions"),
           Case(_REST | dict(n_heads=4, n_kv_heads=2, embedding_norm=True, head_bias=True), 1112110, "counted: a norm and a bias more"),
           Case(_REST | dict(n_heads=4, n_kv_heads=2, embedding_norm=True, norm="layernorm"), 1112020, "counted: a norm with a bias"),
           Case(_REST | dict(n_heads=4, n_kv_heads=2, embedding_norm=True, norm="none"), 1112000, "counted: no weights in norms")]), numbered=False)

active_params = _section.add(Formula(
    active_params, params.result - idle_experts.result, uses=[params, idle_experts], cases=[Case(dict(params=1e9, idle_experts=1e8, n_heads=1, n_kv_heads=1), 9e8, "counted")]), numbered=False)
