"""Section 07: fine-tuning on the card one has."""

from .formula import Case, Section
from .quantities import *
from .quantities import rank as rank_quantity

_section = Section(7)

#: Only the matrices of the layers are quantised; embeddings, norms and the head stay as they are.
quantized_weights = _section.formula(
    "quantized_weights", r"M_q", "B", quantized_bytes * (matmul_params - head_params) + weight_bytes * (params - matmul_params + head_params),
    source="Dettmers et al. 2023, QLoRA, section 3, arXiv 2305.14314",
    cases=[Case(dict(params=10e9, matmul_params=9e9, head_params=1e9, quantized_bytes=0.5), 8e9, "counted: 8e9 at half a byte, 2e9 at 2 bytes"),
           Case(dict(params=1e9, matmul_params=1e9, head_params=1e8), 0.9e9 * (0.5 + 0.015625 + 4 / 16384) + 2e8, "QLoRA, section 3: double quantisation")])

_ATTENTION = ("q", "k", "v", "o")
TARGETS = {"qv": ("q", "v"), "attention": _ATTENTION, "all": (*_ATTENTION, "gate", "up", "down"),
           "all+head": (*_ATTENTION, "gate", "up", "down", "head")}


def lora_params(*, model, rank, targets):
    """Trainable parameters of LoRA: r·(d_in + d_out) for each adapted matrix.

    Parameters
    ----------
    model : Transformer
        The frozen model [-]
    rank : int
        Rank r of the adapters, at least 1 [-]
    targets : {'qv', 'attention', 'all', 'all+head'}
        Which matrices of a layer are adapted; ``"all+head"`` adapts the output head too [-]

    Returns
    -------
    int
        Trainable parameters [-]

    Raises
    ------
    ValueError
        If an input is outside its domain.

    Notes
    -----
    Biases and embeddings stay frozen.

    References
    ----------
    Hu et al. 2021, LoRA, section 4.1, arXiv 2106.09685.

    Examples
    --------
    >>> from onegpu import MODELS
    >>> lora_params(model=MODELS["Llama 2 7B"], rank=16, targets="all")
    39976960
    """
    rank = int(rank_quantity.check(rank))
    if targets not in TARGETS:
        raise ValueError(f"targets = {targets}: must be one of {', '.join(TARGETS)}")
    layer = sum(sum(shape) for name, shape in model.matrices.items() if name in TARGETS[targets])
    head = model.d_model + model.vocab_size if "head" in TARGETS[targets] else 0
    return rank * (model.n_layers * layer + head)
