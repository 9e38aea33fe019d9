"""Section 07: fine-tuning on the card one has."""

from .quantities import rank as rank_quantity

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
