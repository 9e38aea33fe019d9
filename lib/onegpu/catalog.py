"""Models, GPUs, networks, recipes of training and published runs, each row with a public source.

The facts stand in ``data/*.csv`` and nowhere else. Peaks are dense, link speeds one way,
memory labels are read as GiB.
"""

from dataclasses import dataclass, fields
from functools import cached_property

from . import shape
from .configs import read_config
from .facts import rows as _rows
from .formula import REGISTRY


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The shape of a decoder-only transformer, which fixes its parameter count.

    Parameters
    ----------
    n_layers : int
        Layers
    d_model : int
        Hidden size
    n_heads : int
        Query heads
    n_kv_heads : int
        Key-value heads
    vocab_size : int
        Rows of the embedding table
    d_head : int
        Size of a head; with latent attention the mean of its two, (d_nope + d_rope + d_v)/2
    d_ff : int
        Width of the feed-forward block; 0 if every layer has experts
    n_ff_matrices : int
        3 for a gated block (SwiGLU), 2 for a plain one (GELU)
    tied_embeddings : bool
        Whether the output head is the embedding table
    n_positions : int
        Rows of a learned position table; 0 without one
    norm : str
        ``"layernorm"`` (weight and bias), ``"rmsnorm"`` (weight) or ``"none"`` (neither)
    n_norms : int
        Norms in a layer; a final norm is always there once more
    qk_norm : int
        Norms of size d_head on queries, and as many on keys: 1 if all heads share one, the mean of
        n_heads and n_kv_heads for norms over whole projections
    embedding_norm : bool
        A norm after the embedding
    qkv_bias : bool
        Biases on q, k and v
    linear_bias : bool
        Biases on the other matrices of a layer
    head_bias : bool
        A bias on the head
    router_bias : bool
        A bias on the router
    n_experts : int
        Routed experts in a layer; 0 without a mixture of experts
    n_active_experts : int
        How many of them a token visits
    n_shared_experts : int
        Experts that every token visits
    d_ff_expert : int
        Width of an expert
    n_dense_layers : int
        Layers without experts
    q_lora_rank : int
        Rank of the queries in multi-head latent attention; 0 if they are not compressed
    kv_lora_rank : int
        Rank of keys and values in latent attention; 0 without it
    d_nope : int
        Part of a query's and key's head without positions, in latent attention
    d_rope : int
        Part of it that is rotated
    d_v : int
        Size of a value's head, in latent attention

    Raises
    ------
    ValueError
        If key-value heads do not divide query heads, or there are more visited experts or dense layers than there can be.

    Examples
    --------
    >>> Transformer(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_head=128, d_ff=11008,
    ...             n_ff_matrices=3, vocab_size=32000).n_params
    6738415616
    """

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    d_head: int
    d_ff: int
    n_ff_matrices: int = 3
    tied_embeddings: bool = False
    n_positions: int = 0
    norm: str = "rmsnorm"
    n_norms: int = 2
    qk_norm: int = 0
    embedding_norm: bool = False
    qkv_bias: bool = False
    linear_bias: bool = False
    head_bias: bool = False
    n_experts: int = 0
    n_active_experts: int = 0
    n_shared_experts: int = 0
    d_ff_expert: int = 0
    n_dense_layers: int = 0
    router_bias: bool = False
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    d_nope: int = 0
    d_rope: int = 0
    d_v: int = 0
    name: str = "own model"

    catalog_kind = "model"

    def __post_init__(self):
        for rule in shape.RULES:
            values = {q.name: getattr(self, q.name) for q in rule.arguments}
            if not rule.holds_for_one(*values.values()):
                raise ValueError(rule.message.format(**values))

    def __str__(self):
        return self.name

    @classmethod
    def from_config(cls, source):
        """The shape in a ``config.json``.

        Parameters
        ----------
        source : path-like or dict
            A file in Hugging Face's format, or its content [-]

        Returns
        -------
        Transformer
            The shape, which fixes the parameter count [-]

        Raises
        ------
        ValueError
            If the architecture is unknown, or a field is missing or of the wrong kind.

        Examples
        --------
        >>> Transformer.from_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
        ...                          "n_positions": 1024, "vocab_size": 50257}).n_params
        124439808
        """
        return cls(**read_config(source))

    # How many parameters: the formulas of the shape, evaluated here as they are in the page

    @cached_property
    def _counts(self):
        fields = {n: getattr(self, n) for n in shape.params.inputs()}
        values = {n: REGISTRY[n].check(v) if REGISTRY[n].choices else v for n, v in fields.items()}
        return shape.active_params.compute(values) | shape.matmul_params.compute(values)

    @property
    def matmul_params(self):
        """Weights that multiply an activation for each token: the head once (tied or not), no look-ups, norms or biases."""
        return int(self._counts["matmul_params"])

    @property
    def head_params(self):
        """Weights of the output head."""
        return int(self._counts["head_params"])

    @property
    def expert_params(self):
        """Weights of all routed experts."""
        return int(self._counts["expert_params"])

    @property
    def routed_params(self):
        """Weights of the routed experts that a token visits."""
        return int(self._counts["routed_params"])

    @property
    def n_params(self):
        """All parameters, exactly."""
        return int(self._counts["params"])

    @property
    def n_active_params(self):
        """Parameters that a token meets: all but the routed experts it does not visit."""
        return int(self._counts["active_params"])


@dataclass(frozen=True, kw_only=True)
class Model(Transformer):
    """A published model: its shape, what its makers printed, and where.

    ``count_kind`` says what ``published_params`` is: ``"exact"``, ``"rounded"``, ``"nominal"``
    (a name, such as 175B) or ``"computed"`` (not published: from the shape).
    """

    published_params: int | None = None
    count_kind: str = "computed"
    published_active_params: int | None = None
    train_seq_len: int | None = None
    train_tokens: float | None = None
    source: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class GPU:
    """A card: memory, peak and links, in base units.

    ``peak_flops`` is the dense 16-bit peak, ``link_bandwidth`` one way, ``memory_bytes`` the label
    read as GiB. ``usable_bytes`` is what a program can allocate: from a reading, else the lowest
    measured share of that vendor's cards (then ``usable_kind`` is ``"estimated"``).
    """

    name: str
    vendor: str
    year: int
    memory_bytes: float
    usable_bytes: float
    usable_kind: str
    peak_flops: float
    memory_bandwidth: float
    link_bandwidth: float
    link: str
    power_watts: float | None = None
    peak_flops_fp8: float | None = None
    source: str = ""
    url: str = ""
    usable_source: str = ""
    usable_url: str = ""
    note: str = ""

    catalog_kind = "gpu"

    def __str__(self):
        return self.name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a training step keeps for each parameter, in bytes: weights, gradients, master copy, moments.

    ``accumulate`` says that the gradients' buffer is always there.
    """

    name: str
    weight_bytes: float
    grad_bytes: float
    master_bytes: float
    optimizer_bytes: float
    accumulate: bool = False
    source: str = ""
    url: str = ""

    catalog_kind = "recipe"

    def __str__(self):
        return self.name

    @property
    def bytes_per_param(self):
        """All of it."""
        return self.weight_bytes + self.grad_bytes + self.master_bytes + self.optimizer_bytes


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network between nodes: what one card can send, one way, in bytes a second."""

    name: str
    bandwidth: float
    what: str = ""
    source: str = ""
    url: str = ""

    catalog_kind = "network"

    def __str__(self):
        return self.name


@dataclass(frozen=True, kw_only=True)
class Run:
    """A published training run. ``scope`` is ``"run"`` (GPU-hours of all of it), ``"step"`` (throughput) or ``"estimate"``.

    Layers, width and vocabulary are there where the catalogue has no row of its model; ``tokens_per_second`` is
    the whole job's, or one GPU's if ``gpus`` is empty.
    """

    name: str
    scope: str
    model: str = ""
    gpu: str = ""
    gpus: int | None = None
    gpu_hours: float | None = None
    days: float | None = None
    tokens: float | None = None
    params: float | None = None
    seq_len: int | None = None
    mfu_printed: float | None = None
    hfu_printed: float | None = None
    tflops_printed: float | None = None
    tflops_kind: str = ""
    attention_counted: str = ""
    flops_printed: float | None = None
    tokens_per_second: float | None = None
    peak_flops: float | None = None
    n_layers: int | None = None
    d_model: int | None = None
    vocab_size: int | None = None
    precision: str = ""
    recompute: str = ""
    source: str = ""
    url: str = ""
    note: str = ""

    catalog_kind = "run"

    @property
    def peak(self):
        """Dense 16-bit peak of its card: the catalogue's, or the row's own."""
        return self.peak_flops or GPUS[self.gpu].peak_flops

    @property
    def active_params(self):
        """Parameters that a token meets: the model's, or the published number."""
        return MODELS[self.model].n_active_params if self.model else self.params


class Catalog(dict):
    """Rows by name; a wrong name says which are near."""

    def __init__(self, kind, rows):
        super().__init__((row.name, row) for row in rows)
        self.kind = kind

    def __missing__(self, name):
        raise ValueError(f"{self.kind} = {name!r}: must be one of {', '.join(self)}")


def typed(kind, row):
    """The fields of a dataclass from a row of text; empty cells keep the default."""
    convert = {int: lambda t: int(float(t)), float: float, bool: lambda t: t == "1", str: str,
               int | None: lambda t: int(float(t)), float | None: float}
    return {f.name: convert[f.type](row[f.name]) for f in fields(kind) if f.type in convert and row.get(f.name)}


def _gpus(rows):
    rows = list(rows)
    measured = {}
    for row in rows:
        if row["usable_bytes"]:
            measured.setdefault(row["vendor"], []).append(float(row["usable_bytes"]) / float(row["memory_bytes"]))
    lowest = min(min(shares) for shares in measured.values())
    for row in rows:
        kind = "read" if row["usable_bytes"] else "estimated"
        share = min(measured.get(row["vendor"], [lowest]))
        usable = row["usable_bytes"] or float(row["memory_bytes"]) * share
        yield GPU(**typed(GPU, row | {"usable_bytes": str(usable), "usable_kind": kind}))


GPUS = Catalog("gpu", _gpus(_rows("gpus.csv")))
MODELS = Catalog("model", (Model(**typed(Model, row)) for row in _rows("models.csv")))
RECIPES = Catalog("recipe", (Recipe(**typed(Recipe, row)) for row in _rows("recipes.csv")))
NETWORKS = Catalog("network", (Network(**typed(Network, row)) for row in _rows("networks.csv")))
RUNS = Catalog("run", (Run(**typed(Run, row)) for row in _rows("runs.csv")))
