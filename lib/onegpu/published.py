"""Section 06: what others printed, beside the formulas.

Published runs (``data/comparisons.csv`` says which numbers of a run are set side by side, in whose
convention, and why they part), one trainer's benchmark table, and other calculators' answers.
"""

from dataclasses import dataclass

from . import compute, memory
from .catalog import MODELS, RUNS, Catalog, typed
from .facts import rows
from .units import DAY, HOUR

#: What a convention counts for each token of a run [FLOP].
CONVENTIONS = {
    "6N": lambda run: compute.training_flops(params=run.active_params, tokens=1),
    "8N": lambda run: compute.training_flops(params=run.active_params, tokens=1) * compute.RECOMPUTED,
    "6N + attention": lambda run: compute.training_flops_per_token(**_shape(run)),
    "6N + causal attention": lambda run: compute.training_flops_per_token(**_shape(run), causal=True),
    "8N + attention": lambda run: compute.hardware_flops_per_token(**_shape(run, head=True), recompute="full"),
    "6N + attention twice forward": lambda run: compute.hardware_flops_per_token(**_shape(run, head=True), recompute="attention", attention="eager"),
}

#: What is compared: how FLOPs a token and a run give it, and the column in which it is printed.
QUANTITIES = {
    "FLOPs": (lambda run, flops: flops * run.tokens, "flops_printed"),
    "MFU of the run, from GPU-hours": (lambda run, flops: flops * run.tokens / (run.gpu_hours * HOUR * run.peak), "mfu_printed"),
    "MFU of steps, from tokens/s": (lambda run, flops: flops * run.tokens_per_second / ((run.gpus or 1) * run.peak), "mfu_printed"),
    "HFU of steps, from tokens/s": (lambda run, flops: flops * run.tokens_per_second / ((run.gpus or 1) * run.peak), "hfu_printed"),
    "FLOP/s of a GPU, from tokens/s": (lambda run, flops: flops * run.tokens_per_second / (run.gpus or 1), "tflops_printed"),
    "FLOP/s of a GPU, from GPU-hours": (lambda run, flops: flops * run.tokens / (run.gpu_hours * HOUR), "tflops_printed"),
    "GPU-hours, from tokens/s": (lambda run, flops: run.tokens / run.tokens_per_second * run.gpus / HOUR, "gpu_hours"),
    "days": (lambda run, flops: flops * run.tokens / (run.gpus * run.tflops_printed * 1e12 * DAY), "days"),
    "HFU over MFU": (lambda run, flops: flops / CONVENTIONS["6N + attention" if run.n_layers else "6N"](run), None),
    "MFU, from FLOP/s": (lambda run, flops: run.tflops_printed * 1e12 / run.peak, "mfu_printed"),
    "HFU, from FLOP/s": (lambda run, flops: run.tflops_printed * 1e12 / run.peak, "hfu_printed"),
}


def _shape(run, head=False):
    """What the attention of a run's model needs; a run without a row in the catalogue brings its layers and width."""
    if run.model:
        return dict(model=MODELS[run.model], seq_len=run.seq_len)
    found = dict(n_layers=run.n_layers, n_heads=1, d_head=run.d_model, matmul_params=run.active_params, seq_len=run.seq_len)
    return found | ({"head_params": run.vocab_size * run.d_model} if head else {})


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One printed number of a run beside the formula's, plain (6·N) and as its makers count."""

    run: str
    quantity: str
    convention: str = "6N"
    printed: float | None = None
    why: str = "agrees"
    note: str = ""

    @property
    def plain(self):
        """By 6·N [as printed]."""
        return self._value("6N")

    @property
    def counted(self):
        """In the makers' own convention [as printed]."""
        return self._value(self.convention)

    @property
    def ratio(self):
        """The formula in the makers' convention over what they printed [-]."""
        return self.counted / self.printed if self.printed else None

    def _value(self, convention):
        run = RUNS[self.run]
        return float(QUANTITIES[self.quantity][0](run, CONVENTIONS[convention](run)))


def _comparison(row):
    run, column = RUNS[row["run"]], QUANTITIES[row["quantity"]][1]
    found = typed(Comparison, row)
    if found.get("printed") is None and column:
        printed = getattr(run, column)
        found["printed"] = printed * 1e12 if column == "tflops_printed" and printed else printed
    return Comparison(**found)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A row of one trainer's table: what it measured, and the MFU and HFU that it printed."""

    name: str
    n_layers: int
    d_model: int
    params: float
    seq_len: int
    gpus: int
    tokens_per_second: float
    peak_flops: float
    mfu_printed: float
    hfu_printed: float
    url: str = ""

    @property
    def mfu(self):
        """By its own convention: all of N, attention not causal."""
        attention = compute.attention_flops_per_token(n_layers=self.n_layers, n_heads=1, d_head=self.d_model, seq_len=self.seq_len)
        flops = compute.training_flops(params=self.params, tokens=1) + attention
        return compute.mfu(flops_per_token=flops, tokens_per_second=self.tokens_per_second, gpus=self.gpus, peak_flops=self.peak_flops)

    @property
    def hfu(self):
        """A third more where it recomputed, which the printed HFU shows."""
        return self.mfu * float(compute.RECOMPUTED if self.hfu_printed > self.mfu_printed else 1)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What another calculator prints for Llama 2 7B, 4096 tokens, one sequence, and the assumptions it makes."""

    name: str
    what: str
    params: float
    weight_bytes: float
    grad_bytes: float
    master_bytes: float
    optimizer_bytes: float
    printed_state: float
    kept_per_layer: float | None = None
    bytes_per_logit: float = 0
    other_bytes: float = 0
    printed_activations: float | None = None
    source: str = ""
    url: str = ""

    @property
    def bytes_per_param(self):
        """What it counts for each parameter [B/param]."""
        return self._state(memory.bytes_per_param)

    @property
    def state(self):
        """Our formula with its assumptions [B]."""
        return self._state(memory.training_state, params=self.params)

    @property
    def activations(self):
        """Our formula with its constant for a layer, its logits and its extras; None if it counts none [B]."""
        if self.kept_per_layer is None:
            return None
        case = dict(model=MODELS["Llama 2 7B"], seq_len=4096, micro_batch=1)
        return memory.activations(**case, kept_per_layer=self.kept_per_layer) + memory.logits(**case, bytes_per_logit=self.bytes_per_logit) + self.other_bytes

    def _state(self, formula, **given):
        parts = ("weight_bytes", "grad_bytes", "master_bytes", "optimizer_bytes")
        return formula(**{part: getattr(self, part) for part in parts}, **given)


COMPARISONS = [_comparison(row) for row in rows("comparisons.csv")]
BENCHMARK = Catalog("benchmark", (Benchmark(**typed(Benchmark, row)) for row in rows("benchmark.csv")))
ANSWERS = Catalog("calculator", (Answer(**typed(Answer, row)) for row in rows("calculators.csv")))


def published_mfus():
    """The MFU by 6·N of every published run that prints enough for it, and the parameters of its model: ``{run: (params, mfu)}``."""
    return {c.run: (float(RUNS[c.run].active_params), c.plain) for c in COMPARISONS if c.quantity.startswith("MFU of")}
