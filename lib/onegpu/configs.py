"""A model's shape from its ``config.json``, as Hugging Face's library writes it.

``FAMILIES`` says for each ``model_type`` where the fields of a ``Transformer`` stand: a key of the
config, a constant, or a function of the fields before it. Names with an underscore serve the fields
after them. A key that a config leaves out has the default of the library's configuration class.
"""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import NamedTuple

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


# Defaults that follow from the fields before

def _heads(found):
    return found["n_heads"]


def _width(found):
    return found["d_model"]


def _four_widths(found):
    return 4 * found["d_model"]


def _head_size(found):
    size, rest = divmod(found["d_model"], found["n_heads"])
    if rest:
        raise ValueError(f"n_heads = {found['n_heads']}: must divide d_model = {found['d_model']}")
    return size


def _heads_per_norm(found):
    """Norms over whole projections, as so many norms of size d_head on queries and on keys."""
    heads, rest = divmod(found["n_heads"] + found["n_kv_heads"], 2)
    if rest:
        raise ValueError(f"n_kv_heads = {found['n_kv_heads']}: must be even, as n_heads = {found['n_heads']} is")
    return heads


# What families share

_NAMES = {"n_layers": _count("num_hidden_layers"), "d_model": _count("hidden_size"), "n_heads": _count("num_attention_heads"),
          "vocab_size": _count("vocab_size")}

_SHORT_NAMES = {"n_layers": _count("n_layer", "num_hidden_layers"), "d_model": _count("n_embd", "n_embed", "hidden_size"),
                "n_heads": _count("n_head", "num_attention_heads"), "vocab_size": _count("vocab_size")}

_GATED = {"n_kv_heads": _count("num_key_value_heads", absent=_heads), "d_head": _count("head_dim", absent=_head_size),
          "d_ff": _count("intermediate_size"), "n_ff_matrices": 3, "tied_embeddings": _flag("tie_word_embeddings", False),
          "norm": "rmsnorm", "n_norms": 2}

_PLAIN = {"n_kv_heads": _heads, "d_head": _head_size, "d_ff": _four_widths, "n_ff_matrices": 2,
          "tied_embeddings": _flag("tie_word_embeddings", True), "norm": "layernorm", "n_norms": 2,
          "qkv_bias": True, "linear_bias": True}

_NO_BIAS = {"_attention_bias": _flag("attention_bias", False, wanted=False), "_mlp_bias": _flag("mlp_bias", False, wanted=False)}

_LATENT = _NAMES | _NO_BIAS | _GATED | {
    "_step": _count("moe_layer_freq", absent=1, wanted=1), "n_kv_heads": _count("num_key_value_heads", absent=_heads), "d_head": None,
    "n_experts": _count("n_routed_experts"), "n_active_experts": _count("num_experts_per_tok", most=lambda f: f["n_experts"]),
    "d_ff_expert": _count("moe_intermediate_size"), "kv_lora_rank": _count("kv_lora_rank"),
    "d_nope": _count("qk_nope_head_dim", absent=128), "d_rope": _count("qk_rope_head_dim", absent=64), "d_v": _count("v_head_dim", absent=128)}

FAMILIES = {
    "gpt2": _SHORT_NAMES | _PLAIN | {
        "d_ff": _count("n_inner", absent=_four_widths), "n_positions": _count("n_positions", "max_position_embeddings")},
    "llama": _NAMES | _GATED | {
        "qkv_bias": _flag("attention_bias", False), "linear_bias": _flag("mlp_bias", False, wanted=lambda f: f["qkv_bias"])},
    "mistral": _NAMES | _GATED | {"n_kv_heads": _count("num_key_value_heads", absent=8, null=_heads)},
    "qwen2": _NAMES | _GATED | {"n_kv_heads": _count("num_key_value_heads", absent=32, null=_heads), "qkv_bias": True},
    "qwen3": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=32, null=_heads), "d_head": _count("head_dim", absent=128, null=_head_size), "qk_norm": True},
    "gpt_neox": _NAMES | {"_attention_bias": _flag("attention_bias", True, wanted=True)} | _PLAIN | {
        "d_ff": _count("intermediate_size"), "tied_embeddings": _flag("tie_word_embeddings", False)},
    "gemma": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=16, null=_heads), "d_head": _count("head_dim", absent=256, null=_head_size),
        "tied_embeddings": _flag("tie_word_embeddings", True)},
    "gemma2": _NAMES | _NO_BIAS | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=4, null=_heads), "d_head": _count("head_dim", absent=256, null=_head_size),
        "tied_embeddings": _flag("tie_word_embeddings", True), "n_norms": 4},
    "olmo2": _NAMES | _NO_BIAS | _GATED | {"qk_norm": _heads_per_norm},
    "mixtral": _NAMES | _GATED | {
        "n_kv_heads": _count("num_key_value_heads", absent=8, null=_heads), "d_ff": None, "d_ff_expert": _count("intermediate_size"),
        "n_experts": _count("num_local_experts", absent=8), "n_active_experts": _count("num_experts_per_tok", absent=2, most=lambda f: f["n_experts"])},
    "deepseek_v2": _LATENT | {
        "n_shared_experts": _count("n_shared_experts", least=0, absent=2, null=0), "router_bias": False,
        "n_dense_layers": _count("first_k_dense_replace", least=0, absent=0, most=lambda f: f["n_layers"]),
        "q_lora_rank": _count("q_lora_rank", absent=1536, null=0)},
    "deepseek_v3": _LATENT | {
        "n_shared_experts": _count("n_shared_experts", least=0, absent=1, null=0), "router_bias": True,
        "n_dense_layers": _count("first_k_dense_replace", least=0, absent=3, most=lambda f: f["n_layers"]),
        "q_lora_rank": _count("q_lora_rank", absent=1536, null=0)},
    "bloom": _SHORT_NAMES | _PLAIN | {"embedding_norm": True},
    "opt": _NAMES | {
        "_embedding": _count("word_embed_proj_dim", absent=_width, wanted=_width), "_norm_first": _flag("do_layer_norm_before", True, wanted=True),
        "_no_final_norm": _flag("_remove_final_layer_norm", False, wanted=False), "_norm_weights": _flag("layer_norm_elementwise_affine", True),
        "_positions": _count("max_position_embeddings")} | _PLAIN | {
        "d_ff": _count("ffn_dim"), "n_positions": lambda f: f["_positions"] + 2, "norm": lambda f: "layernorm" if f["_norm_weights"] else "none",
        "qkv_bias": _flag("enable_bias", True), "linear_bias": _flag("enable_bias", True)},
    "phi3": _NAMES | _GATED,
    "falcon": _NAMES | {
        "_new": _flag("new_decoder_architecture", False), "_one_kv_head": _flag("multi_query", True), "_kv_heads": _count("num_kv_heads", absent=_heads),
        "_parallel": _flag("parallel_attn", True), "_norms": _count("num_ln_in_parallel_attn", absent=lambda f: 2 if f["_new"] else 1)} | _PLAIN | {
        "n_kv_heads": lambda f: f["_kv_heads"] if f["_new"] else 1 if f["_one_kv_head"] else f["n_heads"],
        "d_ff": _count("ffn_hidden_size", absent=_four_widths), "n_norms": lambda f: 2 if f["_norms"] == 2 or not f["_parallel"] else 1,
        "qkv_bias": _flag("bias", False), "linear_bias": _flag("bias", False)},
}


def _shown(value):
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _given(value, found):
    return value(found) if callable(value) else value


def _read_key(key, config, found):
    """The value of a key in a config, checked."""
    name = next((n for n in key.names if config.get(n) is not None), key.names[0])
    kind = "true or false" if key.least is None else f"a whole number, at least {key.least}"
    value = config.get(name)
    if value is None:
        value = _given(key.null if any(n in config for n in key.names) else key.absent, found)
        if value is _MISSING:
            raise ValueError(f"{name} is missing in config: must be {kind}")
    elif key.least is None and not isinstance(value, bool) or key.least is not None and (type(value) is not int or value < key.least):
        raise ValueError(f"{name} = {_shown(value)}: must be {kind}")
    wanted, most = _given(key.wanted, found), _given(key.most, found)
    if wanted is not _MISSING and value != wanted:
        raise ValueError(f"{name} = {_shown(value)}: must be {_shown(wanted)}, other shapes are not counted")
    if most is not _MISSING and value > most:
        raise ValueError(f"{name} = {_shown(value)}: must be a whole number, at most {most}")
    return value


def _load(source):
    """The object in a file, or the dictionary that was given."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, (str, PathLike)):
        raise ValueError(f"config = {type(source).__name__}: must be a JSON object")
    try:
        config = json.loads(Path(source).read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"config = {Path(source).name}: must be a JSON object")
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
        given = "model_type is missing in config" if family is None else f"model_type = {_shown(family)}"
        raise ValueError(f"{given}: must be one of {', '.join(sorted(FAMILIES))}")
    found = {}
    for field, value in FAMILIES[family].items():
        found[field] = _read_key(value, config, found) if isinstance(value, _Key) else _given(value, found)
    name = config.get("_name_or_path")
    return {field: value for field, value in found.items() if field[0] != "_"} | {"name": name if name and isinstance(name, str) else family}
