"""Sections 06 and 07: measured training memory against the formulas.

Each row of ``data/measured.csv`` is a published reading with the whole configuration behind it, read
from the trainer's own code. The prediction is a peak over time, made of the formulas of sections 1 and
4 and of what this trainer does differently; nothing is fitted to a row. What the prediction misses is
the overhead.
"""

import statistics
from dataclasses import dataclass, field
from functools import cached_property

from . import compute, coupling, finetune, memory
from .catalog import GPUS, MODELS, Catalog, Transformer, typed
from .facts import rows
from .formula import taken

#: Models that trainers test with; nobody trains them in earnest, so they stand apart from the catalogue.
TEST_MODELS = Catalog("model", (Transformer(**typed(Transformer, row)) for row in rows("test_models.csv")))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One published reading of training memory.

    ``weight_bytes`` to ``step_bytes`` are for each parameter. ``recompute``: ``none``, ``full``, ``op``
    (every second product is kept), ``gelu`` (the activation function is computed again) or ``offload``.
    ``unfused_norm``, ``unfused_gate``, ``repeated_kv``: what eager code keeps more. ``gathered``: the
    units that stay whole at the peak. ``pools``: side streams in a reserved reading. ``stage``: the
    pipeline stage that was read. ``static``: all memory is taken once, so the peak is the sum.
    ``kind``: ``allocated``, ``active``, ``reserved`` (with the allocator's cache) or ``device``.
    """

    name: str
    trainer: str
    model: str
    seq_len: int
    micro_batch: int
    gpus: int
    weight_bytes: float
    grad_bytes: float
    master_bytes: float
    optimizer_bytes: float
    recompute: str
    bytes_per_logit: float
    measured_bytes: float
    kind: str
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    virtual_stages: int = 1
    accumulation_steps: int = 1
    zero_stage: int = 0
    step_bytes: float = 0
    attention: str = "flash"
    dropout: bool = False
    unfused_norm: float = 0
    unfused_gate: bool = False
    repeated_kv: bool = False
    accumulate: bool = False
    optimizer_in_backward: bool = False
    sequence_parallel: bool = True
    static: bool = False
    stage: str = ""
    gathered: str = "none"
    pools: str = "none"
    kernels: str = ""
    source: str = ""
    url: str = ""
    note: str = ""

    @cached_property
    def shape(self):
        """Its model."""
        return TEST_MODELS.get(self.model) or MODELS[self.model]

    @property
    def tokens(self):
        """Tokens of a micro-batch on one card."""
        return self.seq_len * self.micro_batch / self.context_parallel

    @property
    def norm_ways(self):
        """Cards that share the norms' activations."""
        return self.tensor_parallel if self.sequence_parallel else 1

    # -- parameters

    @cached_property
    def units(self):
        """Parameters of what is gathered as a whole."""
        m = self.shape
        tables = (1 if m.tied_embeddings else 2) * m.head_params + m.n_positions * m.d_model
        return {"root": tables, "output": m.head_params, "block": (m.n_params - tables) / m.n_layers, "all": m.n_params, "none": 0}

    @property
    def stage_layers(self):
        """Layers of its pipeline stage."""
        return coupling.layers_per_stage(model=self.shape, pipeline_parallel=self.pipeline_parallel, virtual_stages=self.virtual_stages)

    @property
    def params(self):
        """Parameters on the card before sharding over data; learned positions are not cut."""
        m, t = self.shape, self.tensor_parallel
        positions = m.n_positions * m.d_model
        if self.pipeline_parallel == 1:
            return (m.n_params - positions) / t + positions
        return (self.stage_layers * self.units["block"] + m.head_params) / t + positions * (self.stage == "first")

    def whole(self, names):
        """Bytes of whole units in 16 bits."""
        return 2 * sum(self.units[name] for name in names.split("+")) / self.tensor_parallel

    # -- activations: bytes a token and layer

    @property
    def everything(self):
        """All that a layer keeps when nothing is computed again: what tensor parallelism always cuts, and the norms and inputs."""
        m = self.shape
        q, kv = m.n_heads * m.d_head, m.n_kv_heads * m.d_head
        norms = (8 + 2 * self.dropout + 2 * self.unfused_norm) * m.d_model
        fused = memory.linear_activations(model=m, dropout=self.dropout) * m.d_model + 2 * self.unfused_norm * m.d_model
        eager = 2 * m.d_ff * (self.unfused_gate and m.n_ff_matrices == 3) + 4 * (q - kv) * self.repeated_kv
        gelu = 2 * m.d_ff * (self.recompute == "gelu")
        return (fused - norms + eager - gelu + self.scores) / self.tensor_parallel + norms / self.norm_ways

    @property
    def scores(self):
        """What attention keeps."""
        return memory.score_activations(model=self.shape, seq_len=self.seq_len, attention=self.attention, dropout=self.dropout) * self.shape.d_model

    @property
    def kept(self):
        """What forward keeps of a layer."""
        m, t = self.shape, self.tensor_parallel
        h, q, kv = m.d_model, m.n_heads * m.d_head, m.n_kv_heads * m.d_head
        every_second = (2 * h + 4 * q + 2 * kv + 2 * m.d_ff + self.scores) / t + 2 * h + (4 * h / t if t > 1 else 0)
        return {"none": self.everything, "gelu": self.everything, "full": 2 * h / self.norm_ways, "offload": 0, "op": every_second}[self.recompute]

    @property
    def live(self):
        """What lives while one layer is computed again."""
        m = self.shape
        return {"none": 0, "gelu": 2 * m.d_ff + 10 * m.d_model}.get(self.recompute, self.everything)

    @property
    def in_flight(self):
        """Micro-batches whose activations the stage holds."""
        if self.pipeline_parallel == 1:
            return 1
        plan = dict(accumulation_steps=self.accumulation_steps, pipeline_parallel=self.pipeline_parallel, virtual_stages=self.virtual_stages)
        return (coupling.in_flight if self.stage == "first" else coupling.in_flight_last)(**plan)

    # -- the peak

    def over(self, stage):
        """Cards that share what a ZeRO stage shards."""
        return self.data_parallel * self.context_parallel if self.zero_stage >= stage else 1

    @property
    def always(self):
        """Weights, master copy and moments on the card [B]."""
        return self.params * (self.weight_bytes / self.over(3) + (self.master_bytes + self.optimizer_bytes) / self.over(1))

    @property
    def gradients(self):
        """All gradients on the card [B]."""
        return self.params * self.grad_bytes / self.over(2)

    @cached_property
    def phases(self):
        """Bytes at the moments that can be the peak: the loss, backward, the optimizer's step."""
        m, always, gradients = self.shape, self.always, self.gradients
        held = m.head_params * self.grad_bytes / self.tensor_parallel if self.optimizer_in_backward else gradients
        activations = self.tokens * self.kept * self.stage_layers * self.in_flight
        live, gathered = self.tokens * self.live, self.whole(self.gathered)
        loss = 0
        if self.pipeline_parallel == 1 or self.stage == "last":  # the last norm's input, the head's, and the logits
            loss = self.tokens * (m.d_model * (2 / self.norm_ways + 2) + m.vocab_size * self.bytes_per_logit / self.tensor_parallel)
        forward = always + gathered + held * self.accumulate + activations + loss + live * self.static
        backward = always + gathered + live + (held + activations if self.accumulate else max(held, activations))
        step = always + held + self.params * self.step_bytes / self.over(1)
        side = self._side_pools() if self.kind == "reserved" else 0
        return {"loss": forward + side, "backward": 0 if self.static else backward + side, "step": step + side}

    def _side_pools(self):
        """What FSDP2's streams keep for themselves: sharded gradients, the gather's flat buffer, and early in 2024 the reduce-scatter's input."""
        if self.pools == "none":
            return 0
        largest = self.whole("output" if "output" in self.gathered else "root")
        return self.gradients + max(largest, 2 * self.whole("block")) + (2 * largest if self.pools == "fsdp2+input" else 0)

    @property
    def predicted(self):
        """The peak [B]."""
        return max(self.phases.values())

    @property
    def plain_sum(self):
        """What adding everything gives: state, all gradients, activations of one micro-batch, 12 bytes a logit [B]."""
        return self.always + self.gradients + self.tokens * (self.kept * self.stage_layers + 12 * self.shape.vocab_size / self.tensor_parallel)

    @property
    def residual(self):
        """Measured less predicted [B]."""
        return self.measured_bytes - self.predicted


MEASURED = Catalog("measurement", (Measurement(**typed(Measurement, row)) for row in rows("measured.csv")))


def readings(*kinds):
    """The measurements of the given kinds."""
    return [m for m in MEASURED.values() if m.kind in kinds]


def overhead(measurements):
    """The one number that the formulas miss: the median residual [B]."""
    return statistics.median(m.residual for m in measurements)


def leave_one_out(measurements):
    """Fit the overhead on all trainers but one, and try it on that one: ``{trainer: (overhead, errors)}``."""
    found = {}
    for trainer in dict.fromkeys(m.trainer for m in measurements):
        fitted = overhead([m for m in measurements if m.trainer != trainer])
        found[trainer] = fitted, [(m.predicted + fitted) / m.measured_bytes - 1 for m in measurements if m.trainer == trainer]
    return found


# -- fine-tuning -------------------------------------------------------------------------------------

@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """One published peak of fine-tuning on one card, with the inputs of ``finetune_memory`` that its trainer's code fixes.

    ``measured_bytes`` is the allocator's peak, ``device_bytes`` what the card showed beside it. ``contradicts``: the
    printed peak is below what the stated recipe keeps for its parameters alone.
    """

    name: str
    trainer: str
    model: str
    gpu: str
    measured_bytes: float
    tokens_per_second: float | None = None
    device_bytes: float | None = None
    contradicts: bool = False
    source: str = ""
    url: str = ""
    note: str = ""
    inputs: dict = field(default_factory=dict)

    @cached_property
    def moments(self):
        """Bytes at the four moments that can be the peak."""
        values = finetune.finetune_memory.evaluate(**self.inputs)
        return {f.name: values[f.name] for f in finetune.finetune_memory.uses}

    @property
    def predicted(self):
        """The peak [B]."""
        return max(self.moments.values())

    @property
    def error(self):
        """Predicted over measured, less one [-]."""
        return self.predicted / self.measured_bytes - 1

    @property
    def flops_per_token(self):
        """What the card computes for each token [FLOP/token]."""
        return finetune.finetune_flops_per_token(**taken(finetune.finetune_flops_per_token, self.inputs))

    @property
    def utilisation(self):
        """Share of the card's peak; None without a measured speed [share]."""
        return self.tokens_per_second and compute.mfu(flops_per_token=self.flops_per_token, tokens_per_second=self.tokens_per_second, gpu=GPUS[self.gpu])


def _finetuned(row):
    """A row; its columns that name an input or a part of ``finetune_memory`` are its inputs."""
    formulas = {f.name: f.result for f in finetune.finetune_memory.graph()} | finetune.finetune_memory.inputs()
    inputs = {n: _value(formulas[n], text) for n, text in row.items() if n in formulas and text}
    return Finetuned(**typed(Finetuned, row), inputs=inputs | {"model": MODELS[row["model"]]})


def _value(q, text):
    """What a cell says of an input."""
    return float(text) if not q.choices else next(c for c in q.choices if text == (str(int(c)) if isinstance(c, bool) else str(c)))


FINETUNED = Catalog("measurement", (_finetuned(row) for row in rows("finetuned.csv")))


def _twins(old, new, names):
    """(a row, the row whose name says ``new`` where its own says ``old``), where there are both."""
    return [(n, n.replace(old, new)) for n in names if old in n and n.replace(old, new) in FINETUNED]


_NAMES = [m.name for m in FINETUNED.values() if not m.contradicts]
#: Pairs of rows of one table that differ in one thing, so that a term stands alone: what -> pairs of names.
DIFFERENCES = {
    "batch": [pair for old, new in (("b1", "b2"), ("b2", "b4"), ("b4", "b8")) for pair in _twins(f" {old}", f" {new}", _NAMES) if "s512" not in pair[0]],
    "nf4": _twins(" lora ", " qlora ", _NAMES) + _twins(" lora ", " qlora-dq ", [n for n in _NAMES if "ckpt" in n]),
    "double": _twins(" qlora ", " qlora-dq ", _NAMES),
    "targets": _twins(" qv ", " all+head ", _NAMES),
}
