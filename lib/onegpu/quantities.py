"""The registry of quantities: the inputs of all formulas, and so the book's table of symbols.

A name is the field's own and is the keyword that formulas take; a symbol is the literature's.
Values are in base units. ``start`` and ``slider`` are what a calculator shows first.
"""

import sympy as sp

from .facts import FACTS
from .formula import AT_LEAST_ONE, NONNEGATIVE, REGISTRY, SHARE, Quantity  # noqa: F401
from .units import DAY, GIB


def _count(name, symbol, **fields):
    return Quantity(name, symbol, valid=AT_LEAST_ONE, integer=True, **fields)


# Parameters, tokens, and the shapes that multiply: in this order a product is printed
params = Quantity("params", "N", source="model.n_params", start=7e9, slider=(1e8, 2e12))
active_params = Quantity("active_params", r"N_\text{active}", source="model.n_active_params", start=7e9, slider=(1e8, 2e12))
matmul_params = Quantity("matmul_params", r"N_\text{mm}", source="model.matmul_params", start=6.6e9, slider=(1e8, 2e12))
head_params = Quantity("head_params", r"N_\text{head}", source="model.head_params", start=131e6, slider=(1e6, 1e10))
tokens = Quantity("tokens", "D", start=1e12, slider=(1e8, 1e14))
n_layers = _count("n_layers", "L", source="model.n_layers", start=32, slider=(1, 160))
seq_len = _count("seq_len", "s", start=4096, slider=(128, 1048576), doubles=True)
micro_batch = _count("micro_batch", "b", start=1, slider=(1, 256), doubles=True)
n_heads = _count("n_heads", "a", source="model.n_heads", start=32, slider=(1, 256))
n_kv_heads = _count("n_kv_heads", r"a_\text{kv}", source="model.n_kv_heads", start=32, slider=(1, 256))
d_head = _count("d_head", "d", source="model.d_head", start=128, slider=(16, 512))
n_ff_matrices = Quantity("n_ff_matrices", r"n_\text{ff}", valid=sp.Interval(2, 3), integer=True, source="model.n_ff_matrices", start=3, slider=(2, 3))
d_ff = Quantity("d_ff", "f", valid=NONNEGATIVE, integer=True, source="model.d_ff", start=11008, slider=(256, 131072))
d_model = _count("d_model", "h", source="model.d_model", start=4096, slider=(256, 32768))
vocab_size = _count("vocab_size", "V", source="model.vocab_size", start=32000, slider=(1000, 300000))

# What some shapes have and others do not
def _none_or(name, symbol, high, default=0):
    return Quantity(name, symbol, valid=NONNEGATIVE, integer=True, default=default, slider=(0, high), source=f"model.{name}")


def _has(name, word):
    return Quantity(name, rf"1_\text{{{word}}}", choices=(False, True), default=False, source=f"model.{name}")


norm = Quantity("norm", r"\text{norm}", choices=("rmsnorm", "layernorm", "none"), default="rmsnorm", source="model.norm")
n_norms = _none_or("n_norms", r"n_\text{norm}", 4, 2)
qk_norm = _none_or("qk_norm", r"n_\text{qk}", 128)
n_positions = _none_or("n_positions", r"n_\text{pos}", 8192)
tied_embeddings, embedding_norm = _has("tied_embeddings", "tied"), _has("embedding_norm", "emb")
qkv_bias, linear_bias, head_bias, router_bias = _has("qkv_bias", "qkv"), _has("linear_bias", "lin"), _has("head_bias", "head"), _has("router_bias", "router")
n_experts, n_active_experts, n_shared_experts = _none_or("n_experts", "E", 512), _none_or("n_active_experts", "k_e", 16), _none_or("n_shared_experts", "n_s", 8)
d_ff_expert, n_dense_layers = _none_or("d_ff_expert", "f_e", 32768), _none_or("n_dense_layers", r"L_\text{dense}", 8)
q_lora_rank, kv_lora_rank = _none_or("q_lora_rank", "r_q", 2048), _none_or("kv_lora_rank", r"r_\text{kv}", 1024)
d_nope, d_rope, d_v = _none_or("d_nope", "d_n", 256), _none_or("d_rope", "d_r", 128), _none_or("d_v", "d_v", 256)

expert_params = Quantity("expert_params", r"N_\text{experts}", valid=NONNEGATIVE, source="model.expert_params", default=0, slider=(0, 2e12))
routed_params = Quantity("routed_params", r"N_\text{routed}", valid=NONNEGATIVE, source="model.routed_params", default=0, slider=(0, 1e11))
tokens_per_param = Quantity("tokens_per_param", r"r_D", default=20, slider=(1, 2000))

# The work
deadline = Quantity("deadline", r"T_\text{max}", "s", start=30 * DAY, slider=(DAY, 3653 * DAY))

# The recipe: what a training step keeps for each parameter
weight_bytes = Quantity("weight_bytes", r"\beta_w", "B/param", valid=NONNEGATIVE, default=2, slider=(0, 4), source="recipe.weight_bytes")
grad_bytes = Quantity("grad_bytes", r"\beta_g", "B/param", valid=NONNEGATIVE, default=2, slider=(0, 6), source="recipe.grad_bytes")
master_bytes = Quantity("master_bytes", r"\beta_m", "B/param", valid=NONNEGATIVE, default=4, slider=(0, 4), source="recipe.master_bytes")
optimizer_bytes = Quantity("optimizer_bytes", r"\beta_o", "B/param", valid=NONNEGATIVE, default=8, slider=(0, 8), source="recipe.optimizer_bytes")
bytes_per_logit = Quantity("bytes_per_logit", r"\beta_z", "B/logit", valid=NONNEGATIVE, default=12, slider=(0, 12))
accumulate = Quantity("accumulate", r"1_\text{acc}", choices=(False, True), default=False, source="recipe.accumulate")

# How activations are kept
attention = Quantity("attention", r"\text{attention}", choices=("flash", "eager", "eager-bf16"), default="flash")
recompute = Quantity("recompute", r"\text{recompute}", choices=("none", "attention", "full", "projections"), default="none")
dropout = Quantity("dropout", r"1_\text{dropout}", choices=(False, True), default=False)
causal = Quantity("causal", r"\text{causal}", choices=(False, True), default=False)

# The card
memory_bytes = Quantity("memory_bytes", r"M_\text{card}", "B", source="gpu.memory_bytes", start=80 * GIB, slider=(8 * GIB, 2048 * GIB))
usable_bytes = Quantity("usable_bytes", r"M_\text{usable}", "B", source="gpu.usable_bytes", start=79.2 * GIB, slider=(8 * GIB, 2048 * GIB))
#: Measured in section 6: what the formulas miss inside the allocator, and what lies outside it. A test holds it.
overhead_bytes = Quantity("overhead_bytes", r"M_\text{over}", "B", valid=NONNEGATIVE, default=1.3 * GIB, slider=(0, 16 * GIB))
peak_flops = Quantity("peak_flops", "P", "FLOP/s", source="gpu.peak_flops", start=989.4e12, slider=(1e13, 1e16))
host_bandwidth = Quantity("host_bandwidth", r"W_\text{host}", "B/s", start=64e9, slider=(4e9, 900e9), default=64e9)
gpus = _count("gpus", "G", default=1, slider=(1, 131072), doubles=True)

# How well it runs
mfu = Quantity("mfu", r"\text{MFU}", "share", valid=SHARE, start=0.5, slider=(0.01, 1))
flops_per_token = Quantity("flops_per_token", "c", "FLOP/token", start=4e10, slider=(1e8, 1e13))
tokens_per_second = Quantity("tokens_per_second", r"\tau", "tokens/s", start=10000, slider=(10, 1e8))

kernel_efficiency = Quantity("kernel_efficiency", r"\eta_\text{kernel}", "share", valid=SHARE, start=0.6, slider=(0.01, 1))
scaling_efficiency = Quantity("scaling_efficiency", r"\eta_\text{scale}", "share", valid=SHARE, default=1, slider=(0.01, 1))
goodput = Quantity("goodput", r"\eta_\text{good}", "share", valid=SHARE, default=1, slider=(0.01, 1))

# Money, energy, failures
gpu_price = Quantity("gpu_price", r"p_\text{gpu}", "$/s", start=FACTS["price_h100"].value, slider=(0.1 / 3600, 20 / 3600))
gpu_power = Quantity("gpu_power", r"P_\text{el}", "W", source="gpu.power_watts", start=700, slider=(50, 2500))
pue = Quantity("pue", r"\text{PUE}", valid=AT_LEAST_ONE, default=FACTS["pue_google"].value, slider=(1, 2.5))
gpu_seconds = Quantity("gpu_seconds", r"T_\text{gpu}", "GPU·s", start=3.6e9, slider=(3.6e4, 3.6e12))
gpu_mtbf = Quantity("gpu_mtbf", r"\text{MTBF}_\text{gpu}", "s", slider=(30 * DAY, 36525 * DAY),
                    start=FACTS["llama3_window"].value * FACTS["llama3_gpus"].value / FACTS["llama3_interruptions"].value)
checkpoint_time = Quantity("checkpoint_time", r"t_\text{ckpt}", "s", start=FACTS["checkpoint_seconds"].value, slider=(0.1, 3600))
restart_time = Quantity("restart_time", r"t_\text{restart}", "s", valid=NONNEGATIVE, start=600, slider=(1, 7200))
global_batch = Quantity("global_batch", "B", "tokens", start=4194304, slider=(8192, 134217728), doubles=True)
critical_batch = Quantity("critical_batch", r"B_\text{crit}", "tokens", start=FACTS["batch_llama3"].value, slider=(1e5, 1e9))

# A roofline
matmul_tokens = _count("matmul_tokens", "T_b", start=4096, slider=(1, 65536))
d_in = _count("d_in", r"d_\text{in}", start=4096, slider=(64, 65536))
d_out = _count("d_out", r"d_\text{out}", start=11008, slider=(64, 131072))
memory_bandwidth = Quantity("memory_bandwidth", r"W_\text{mem}", "B/s", source="gpu.memory_bandwidth", start=3.35e12, slider=(1e11, 2e13))
intensity = Quantity("intensity", "I", "FLOP/B", start=295, slider=(1, 10000))

# Sharing the work
link_bandwidth = Quantity("link_bandwidth", r"W_\text{link}", "B/s", source="gpu.link_bandwidth", start=450e9, slider=(1e9, 2e12))
network_bandwidth = Quantity("network_bandwidth", r"W_\text{net}", "B/s", source="network.bandwidth", start=50e9, slider=(1e9, 2e11))
link_fraction = Quantity("link_fraction", r"\eta_\text{link}", "share", valid=SHARE, default=0.8, slider=(0.01, 1))
network_fraction = Quantity("network_fraction", r"\eta_\text{net}", "share", valid=SHARE, default=0.8, slider=(0.01, 1))
overlap = Quantity("overlap", r"\eta_\text{hide}", "share", valid=sp.Interval(0, 1), default=0.5, slider=(0, 1))
message_bytes = Quantity("message_bytes", "m", "B", start=14e9, slider=(1e3, 1e12))
group_size = _count("group_size", "n", start=8, slider=(1, 16384))
gpus_per_node = _count("gpus_per_node", r"G_\text{node}", default=8, slider=(1, 72))
data_parallel = _count("data_parallel", r"n_d", start=8, slider=(1, 16384), doubles=True)
tensor_parallel = _count("tensor_parallel", r"n_t", default=1, slider=(1, 8), doubles=True)
pipeline_parallel = _count("pipeline_parallel", r"n_p", default=1, slider=(1, 128), doubles=True)
virtual_stages = _count("virtual_stages", "v", default=1, slider=(1, 16), doubles=True)
accumulation_steps = _count("accumulation_steps", "k", default=1, slider=(1, 1024), doubles=True)
context_parallel = _count("context_parallel", r"n_c", default=1, slider=(1, 64), doubles=True)
expert_parallel = _count("expert_parallel", r"n_e", default=1, slider=(1, 256), doubles=True)
expert_imbalance = Quantity("expert_imbalance", r"\epsilon_\text{load}", valid=AT_LEAST_ONE, default=1, slider=(1, 3))
dispatch_bytes = Quantity("dispatch_bytes", r"\beta_\text{dispatch}", "B/element", default=2, slider=(1, 2))
routing_nodes = _count("routing_nodes", r"n_\text{nodes}", default=8, slider=(1, 64))
schedule = Quantity("schedule", r"\text{schedule}", choices=("1f1b", "dualpipe"), default="1f1b")
zero_stage = Quantity("zero_stage", r"\text{ZeRO}", choices=(0, 1, 2, 3), default=0, start=0)

# Fine-tuning: what is trained and kept, then what eager code and its libraries keep more
quantized_bytes = Quantity("quantized_bytes", r"\beta_q", "B/param", valid=NONNEGATIVE, default=0.5 + 1 / 64 + 4 / (64 * 256), slider=(0.25, 2))
rank = _count("rank", "r", default=16, slider=(1, 512))
method = Quantity("method", r"\text{method}", choices=("full", "lora", "qlora", "qlora-dq"), default="lora")
targets = Quantity("targets", r"\text{targets}", choices=("qv", "attention", "all", "all+head"), default="all")
lora_dropout = Quantity("lora_dropout", r"p_\text{drop}", "share", valid=sp.Interval.Ropen(0, 1), default=0, slider=(0, 0.5))
#: All of it: weight, gradient, master copy and moments, whether of a whole model or of adapters.
trainable_bytes = Quantity("trainable_bytes", r"\beta_t", "B/param", valid=NONNEGATIVE, default=8, slider=(2, 20), source="recipe.bytes_per_param")
#: What the optimizer's step allocates on top: a copy of the second moments in PyTorch's default AdamW, nothing in a fused one.
step_bytes = Quantity("step_bytes", r"\beta_s", "B/param", valid=NONNEGATIVE, default=0, slider=(0, 8))
#: bitsandbytes before July 2024 kept the inputs of quantised matrices, which no gradient needs.
quantized_inputs = Quantity("quantized_inputs", r"\text{inputs}", choices=("freed", "kept"), default="freed")
#: A loop that holds the last step's loss holds its graph until the next loss is there.
previous_step = Quantity("previous_step", r"1_\text{held}", choices=(False, True), default=False)
head_quantized = Quantity("head_quantized", r"1_\text{q-head}", choices=(False, True), default=False)
dequantized_bytes = Quantity("dequantized_bytes", r"\beta_d", "B/param", valid=NONNEGATIVE, default=2, slider=(0, 4))
#: Eager: RMSNorm keeps an fp32 copy of its input, and a gated block the result of its activation function. Fused: neither.
kernels = Quantity("kernels", r"\text{kernels}", choices=("eager", "fused"), default="eager")
kv_repeated = Quantity("kv_repeated", r"1_\text{kv}", choices=(False, True), default=False)
#: Adapters in fp32 read an fp32 copy of their input, each its own.
adapter_bytes = Quantity("adapter_bytes", r"\beta_a", "B/param", choices=(2, 4), default=2)
#: Fused: one matrix whose product is split; the values keep all of it, one dropout serves its adapters, heads are copied together.
qkv = Quantity("qkv", r"\text{qkv}", choices=("separate", "fused"), default="separate")

examples = Quantity("examples", r"n_\text{examples}", valid=AT_LEAST_ONE, integer=True, start=52002, slider=(100, 1e8))
example_tokens = Quantity("example_tokens", r"\bar{s}", "tokens", start=128, slider=(16, 131072))
epochs = Quantity("epochs", r"n_\text{epochs}", default=1, slider=(1, 20))
packing = Quantity("packing", r"\text{packing}", choices=("packed", "padded"), default="packed")

# What the reader measured
reading = Quantity("reading", r"\text{reading}", choices=("rate", "step"), default="rate")
gpu_tokens_per_second = Quantity("gpu_tokens_per_second", r"\tau_\text{read}", "tokens/s", start=3000, slider=(1, 1e6))
measured_step_time = Quantity("measured_step_time", r"t_\text{read}", "s", start=10, slider=(0.01, 1000))
measured_peak = Quantity("measured_peak", r"M_\text{read}", "B", start=40 * GIB, slider=(GIB, 300 * GIB))
