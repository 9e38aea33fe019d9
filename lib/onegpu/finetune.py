"""Section 07: fine-tuning on the card one has."""

from .formula import Case, Quantity, Section
from .quantities import *

_section = Section(7)
formula = _section.formula

targets = Quantity("targets", r"\text{targets}", choices=("qv", "attention", "all", "all+head"), default="all")

#: Only the matrices of the layers are quantised; embeddings, norms and the head stay as they are.
quantized_weights = formula(
    "quantized_weights", r"M_q", "B", quantized_bytes * (matmul_params - head_params) + weight_bytes * (params - matmul_params + head_params),
    source="Dettmers et al. 2023, QLoRA, section 3, arXiv 2305.14314",
    cases=[Case(dict(params=10e9, matmul_params=9e9, head_params=1e9, quantized_bytes=0.5), 8e9, "counted: 8e9 at half a byte, 2e9 at 2 bytes"),
           Case(dict(params=1e9, matmul_params=1e9, head_params=1e8), 0.9e9 * (0.5 + 0.015625 + 4 / 16384) + 2e8, "QLoRA, section 3: double quantisation")])

#: d_in + d_out of the adapted matrices of a layer.
_qv = 2 * d_model + d_head * (n_heads + n_kv_heads)
_all = 2 * _qv + n_ff_matrices * (d_model + d_ff)
_LLAMA = dict(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_head=128, d_ff=11008, n_ff_matrices=3, vocab_size=32000)
_SMALL = dict(n_layers=3, d_model=10, n_heads=4, n_kv_heads=2, d_head=5, d_ff=7, n_ff_matrices=2, vocab_size=11, rank=2)
_TORCHTUNE = "torchtune's LoRA recipe for Llama 2 7B: the printed count"

lora_params = formula(
    "lora_params", r"N_\text{lora}", "",
    rank * (n_layers * targets.pick({"qv": _qv, "attention": 2 * _qv}, _all) + targets.pick({"all+head": d_model + vocab_size})),
    source="Hu et al. 2021, LoRA, section 4.1, arXiv 2106.09685",
    cases=[Case(_LLAMA | dict(rank=8, targets="qv"), 4194304, "Hu et al. 2021, table 6: rank 8 on q and v of a 7B shape"),
           Case(_LLAMA | dict(rank=16, targets="all"), 39976960, "counted"),
           Case(_LLAMA | dict(rank=8, targets="all+head"), 20277248, _TORCHTUNE), Case(_LLAMA | dict(rank=64, targets="all+head"), 162217984, _TORCHTUNE),
           *(Case(_SMALL | dict(targets=t), n, "counted") for t, n in (("qv", 300), ("attention", 600), ("all", 804), ("all+head", 846)))])
