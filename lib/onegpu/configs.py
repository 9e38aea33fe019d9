"""A model's shape from its ``config.json``, as Hugging Face's library writes it.

``FAMILIES`` says for each ``model_type`` where the fields of a ``Transformer`` stand: a key of the
config, a constant, or an expression of the fields before it. Names with an underscore serve the fields
after them. A key that a config leaves out has the default of the library's configuration class.
The page reads the same table: :func:`javascript`.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import sympy as sp

from . import formula, labels, units
from .quantities import d_model, d_nope, d_rope, d_v, n_experts, n_heads, n_kv_heads, n_layers, qkv_bias

_MISSING = object()


class _Key(NamedTuple):
    """A key of a config: its names, and what its value may be.

    ``least`` is the least whole number, ``None`` for true or false; ``absent`` and ``null`` stand in
    for the value; only ``wanted`` can be counted; ``most`` is the largest.
    """

    names: tuple
    least: int | None
    absent: object
    null: object
    wanted: object
    most: object


def _count(*names, least=1, absent=_MISSING, null=_MISSING, wanted=_MISSING, most=_MISSING):
    return _Key(names, least, absent, absent if null is _MISSING else null, wanted, most)


def _flag(name, absent, wanted=_MISSING):
    return _Key((name,), None, absent, absent, wanted, _MISSING)


_HEAD_SIZE = d_model / n_heads
#: Norms over whole projections, as so many norms of size d_head on queries and on keys.
_HEADS_PER_NORM = (n_heads + n_kv_heads) / 2
_POSITIONS, _NEW, _ONE_KV_HEAD, _KV_HEADS, _PARALLEL, _NORMS = sp.symbols("_positions _new _one_kv_head _kv_heads _parallel _norms")


# What families share

_NAMES = {"n_layers": _count("num_hidden_layers"), "d_model": _count("hidden_size"), "n_heads": _count("num_attention_heads"),
          "vocab_size": _count("vocab_size")}

_SHORT_NAMES = {"n_layers": _count("n_layer", "num_hidden_layers"), "d_model": _count("n_embd", "n_embed", "hidden_size"),
                "n_heads": _count("n_head", "num_attention_heads"), "vocab_size": _count("vocab_size")}

_GATED = {"n_kv_heads": _count("num_key_value_heads", absent=n_heads), "d_head": _count("head_dim", absent=_HEAD_SIZE),
          "d_ff": _count("intermediate_size"), "n_ff_matrices": 3, "tied_embeddings": _flag("tie_word_embeddings", False),
          "norm": "rmsnorm", "n_norms": 2}

_PLAIN = {"n_kv_heads": n_heads, "d_head": _HEAD_SIZE, "d_ff": 4 * d_model, "n_ff_matrices": 2,
          "tied_embeddings": _flag("tie_word_embeddings", True), "norm": "layernorm", "n_norms": 2,
          "qkv_bias": True, "linear_bias": True}

_NO_BIAS = {"_attention_bias": _flag("attention_bias", False, wanted=False), "_mlp_bias": _flag("mlp_bias", False, wanted=False)}

_LATENT = {"d_nope": _count("qk_nope_head_dim", absent=128), "d_rope": _count("qk_rope_head_dim", absent=64), "d_v": _count("v_head_dim", absent=128)}
_LATENT |= _NAMES | _NO_BIAS | _GATED | {
    "_step": _count("moe_layer_freq", absent=1, wanted=1), "n_kv_heads": _count("num_key_value_heads", absent=n_heads), "d_head": (d_nope + d_rope + d_v) / 2,
    "n_experts": _count("n_routed_experts"), "n_active_experts": _count("num_experts_per_tok", most=n_experts),
    "d_ff_expert": _count("moe_intermediate_size"), "kv_lora_rank": _count("kv_lora_rank")}

FAMILIES = {
    "gpt2": _SHORT_NAMES | _PLAIN | {
        "d_ff": _count("n_inner", absent=4 * d_model), "n_positions": _count("n_positions", "max_position_embeddings")},
    "llama": _NAMES | _GATED | {
        "qkv_bias": _flag("attention_bias", False), "linear_bias": _flag("mlp_bias", False, wanted=qkv_bias)},
    "mistral": _NAMES | _GATED | {"n_kv_heads": _count("num_key_value_heads", absent=8, null=n_heads)},
    "qwen2": _NAMES | _GATED | {"n_kv_heads": _count("num_key_value_heads", absent=32, null=n_heads), "qkv_bias": True},
    "qwen3": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=32, null=n_heads), "d_head": _count("head_dim", absent=128, null=_HEAD_SIZE), "qk_norm": 1},
    "gpt_neox": _NAMES | {"_attention_bias": _flag("attention_bias", True, wanted=True)} | _PLAIN | {
        "d_ff": _count("intermediate_size"), "tied_embeddings": _flag("tie_word_embeddings", False)},
    "gemma": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=16, null=n_heads), "d_head": _count("head_dim", absent=256, null=_HEAD_SIZE),
        "tied_embeddings": _flag("tie_word_embeddings", True)},
    "gemma2": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=4, null=n_heads), "d_head": _count("head_dim", absent=256, null=_HEAD_SIZE),
        "tied_embeddings": _flag("tie_word_embeddings", True), "n_norms": 4},
    "olmo2": _NAMES | _NO_BIAS | _GATED | {"qk_norm": _HEADS_PER_NORM},
    "mixtral": _NAMES | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=8, null=n_heads), "d_ff": 0, "d_ff_expert": _count("intermediate_size"),
        "n_experts": _count("num_local_experts", absent=8), "n_active_experts": _count("num_experts_per_tok", absent=2, most=n_experts)},
    "deepseek_v2": _LATENT | {
        "n_shared_experts": _count("n_shared_experts", least=0, absent=2, null=0), "router_bias": False,
        "n_dense_layers": _count("first_k_dense_replace", least=0, absent=0, most=n_layers),
        "q_lora_rank": _count("q_lora_rank", absent=1536, null=0)},
    "deepseek_v3": _LATENT | {
        "n_shared_experts": _count("n_shared_experts", least=0, absent=1, null=0), "router_bias": True,
        "n_dense_layers": _count("first_k_dense_replace", least=0, absent=3, most=n_layers),
        "q_lora_rank": _count("q_lora_rank", absent=1536, null=0)},
    "bloom": _SHORT_NAMES | _PLAIN | {"embedding_norm": True},
    "opt": _NAMES | {
        "_embedding": _count("word_embed_proj_dim", absent=d_model, wanted=d_model), "_norm_first": _flag("do_layer_norm_before", True, wanted=True),
        "_no_final_norm": _flag("_remove_final_layer_norm", False, wanted=False), "_norm_weights": _flag("layer_norm_elementwise_affine", True, wanted=True),
        "_positions": _count("max_position_embeddings")} | _PLAIN | {
        "d_ff": _count("ffn_dim"), "n_positions": _POSITIONS + 2,
        "qkv_bias": _flag("enable_bias", True), "linear_bias": _flag("enable_bias", True)},
    "phi3": _NAMES | _GATED,
    "falcon": _NAMES | {
        "_new": _flag("new_decoder_architecture", False), "_one_kv_head": _flag("multi_query", True), "_kv_heads": _count("num_kv_heads", absent=n_heads),
        "_parallel": _flag("parallel_attn", True), "_norms": _count("num_ln_in_parallel_attn", absent=1 + _NEW)} | _PLAIN | {
        "n_kv_heads": sp.Piecewise((_KV_HEADS, sp.Eq(_NEW, 1)), (1, sp.Eq(_ONE_KV_HEAD, 1)), (n_heads, True)),
        "d_ff": _count("ffn_hidden_size", absent=4 * d_model), "n_norms": sp.Piecewise((2, sp.Eq(_NORMS, 2) | sp.Eq(_PARALLEL, 0)), (1, True)),
        "qkv_bias": _flag("bias", False), "linear_bias": _flag("bias", False)},
}


def _shown(value):
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _refuse(message, **fields):
    raise ValueError(labels.text(f"config.{message}", **fields))


def _given(value, found):
    """A constant as it is, or the number that an expression of the fields before gives."""
    return value.subs({q: int(found[q.name]) for q in value.free_symbols}) if isinstance(value, sp.Expr) else value


def _read(field, value, config, found):
    """The value of a field, checked."""
    if not isinstance(value, _Key):
        return _whole(field, value, found)
    name = next((n for n in value.names if config.get(n) is not None), value.names[0])
    flag, read = value.least is None, config.get(name)
    allowed = labels.text("config.flag") if flag else labels.text("config.at_least", least=value.least)
    if read is None:
        default = value.null if any(n in config for n in value.names) else value.absent
        if default is _MISSING:
            _refuse("missing", name=name, allowed=allowed)
        read = _whole(field, default, found)
    elif not isinstance(read, bool) if flag else isinstance(read, bool) or not isinstance(read, (int, float)) or read % 1 != 0 or read < value.least:
        _refuse("must_be", name=name, value=_shown(read), allowed=allowed)
    read = read if flag else int(read)
    wanted, most = _given(value.wanted, found), _given(value.most, found)
    if wanted is not _MISSING and read != int(wanted):
        _refuse("only", name=name, value=_shown(read), wanted=_shown(bool(wanted) if flag else int(wanted)))
    if most is not _MISSING and read > most:
        _refuse("must_be", name=name, value=_shown(read), allowed=labels.text("config.at_most", most=most))
    return read


def _whole(field, value, found):
    """A constant, or the whole number that an expression of the fields before gives."""
    if not isinstance(value, sp.Expr):
        return value
    result = _given(value, found)
    if not result.is_integer:
        _refuse("derived", name=field, value=units.significant(float(result)), rule=value)
    return int(result)


def _load(source):
    """The object in a file, or the dictionary that was given."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, (str, PathLike)):
        _refuse("object", name=type(source).__name__)
    try:
        config = json.loads(Path(source).read_bytes(), parse_constant=int)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        _refuse("object", name=Path(source).name)
    return config


def read_config(source):
    """Read the fields of a ``Transformer`` from a ``config.json``.

    Parameters
    ----------
    source : path-like or dict
        A file in Hugging Face's format, or its content [-]

    Returns
    -------
    dict
        Name of a field -> value: sizes [elements], numbers of layers, heads, norms and experts [-].
        ``name`` is ``_name_or_path`` of the config, else its ``model_type``.

    Raises
    ------
    ValueError
        If the file is not a JSON object, the ``model_type`` is not in ``FAMILIES``, a key is missing
        or of the wrong kind, or the fields cannot express the shape.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> fields = read_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})
    >>> fields["d_ff"], fields["tied_embeddings"]
    (3072, True)
    """
    config = _load(source)
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        known = labels.text("allowed.one_of", choices=", ".join(sorted(FAMILIES)))
        _refuse("missing", name="model_type", allowed=known) if family is None else _refuse("must_be", name="model_type", value=_shown(family), allowed=known)
    found = {}
    for field, value in FAMILIES[family].items():
        found[field] = _read(field, value, config, found)
    name = config.get("_name_or_path")
    return {field: value for field, value in found.items() if field[0] != "_"} | {"name": name if name and isinstance(name, str) else family}


def javascript():
    """The table of families as JavaScript: an object in which an expression is a function of the fields before it."""
    def source(value):
        if isinstance(value, _Key):
            return "{" + ",".join(f"{k}:{source(v)}" for k, v in value._asdict().items() if v is not _MISSING) + "}"
        if isinstance(value, sp.Expr):
            return f"Object.assign(v => {formula.javascript(value)}, {{rule: {json.dumps(str(value))}}})"
        return json.dumps(value)

    rows = (f"{name}: {{{', '.join(f'{field}: {source(v)}' for field, v in fields.items())}}}" for name, fields in FAMILIES.items())
    return "{\n" + ",\n".join(rows) + "\n}"
