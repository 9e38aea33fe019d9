"""Section 06: what a compiler counts in a real training step.

A training step of a catalogued model is written here in plain JAX and handed over with abstract
shapes: nothing is allocated, and a laptop asks about a model of 540B parameters. Autodiff writes the
backward pass. What is then counted (FLOPs in the program handed to XLA, bytes that autodiff keeps, bytes
of the compiled step's arguments) knows nothing of the formulas of the other sections.

JAX is imported when something is asked, not before.

Notes
-----
What is simplified; none of it changes a matrix product. Positions that are not learned are rotary over
the whole head (BLOOM's ALiBi, the partly rotated heads of phi-2 and GPT-NeoX). Attention is over all
keys, masked (Mistral's and Gemma 2's sliding windows), without soft-capping or dropout. Gated blocks use
SiLU, plain ones GELU. One norm in a layer feeds both blocks in parallel; with two the blocks follow
each other (Falcon 40B, 180B and GPT-NeoX run them in parallel); four stand before and after each block.
"""

import contextlib
import functools
import gc
import math
import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from .catalog import Transformer

CHOICES = {
    "attention": ("eager", "eager-bf16", "flash"),
    "recompute": ("none", "attention", "full"),
    "grad_dtype": ("bfloat16", "float32"),
    "moment_dtype": ("float32", "bfloat16"),
    "optimizer": ("adamw", "momentum", "sgd"),
    "fused": (False, True),
    "master": (True, False),
}

#: Moments that an optimizer keeps for each parameter.
MOMENTS = {"adamw": 2, "momentum": 1, "sgd": 0}

LEARNING_RATE, BETA_1, BETA_2, EPSILON, WEIGHT_DECAY = 3e-4, 0.9, 0.95, 1e-8, 0.1


class Tensor(NamedTuple):
    """A tensor that is kept: its type, its shape and its bytes."""

    dtype: str
    shape: tuple
    bytes: int


# -- the question ----------------------------------------------------------------------------------

def ask(model, *, seq_len=None, **choices):
    """The training step of a model, to be asked what it computes and keeps.

    Parameters
    ----------
    model : Transformer
        A dense model [-]
    seq_len : int, optional
        Tokens in a sequence; the length that the model was trained with if left out [tokens]
    **choices
        Fields of :class:`Step` [-]

    Returns
    -------
    Step
        Each of its answers is computed when it is first read [-]

    Raises
    ------
    ValueError
        If the model is not dense, or a choice is unknown.

    Examples
    --------
    >>> from onegpu import MODELS
    >>> ask(MODELS["Llama 2 7B"], seq_len=4096).params
    6738415616
    """
    if seq_len is None:
        seq_len = getattr(model, "train_seq_len", None)
    if seq_len is None and isinstance(model, Transformer):
        raise ValueError(f"seq_len = None: must be given; {model} has no training length in the catalogue")
    return Step(model=model, seq_len=seq_len, **choices)


@dataclass(frozen=True, kw_only=True, repr=False)
class Step:
    """One training step: forward, backward and the optimizer, on one micro-batch.

    Parameters
    ----------
    model : Transformer
        Its shape [-]
    seq_len, micro_batch : int
        Tokens in a sequence, sequences [-]
    attention : {'eager', 'eager-bf16', 'flash'}
        Softmax in fp32, softmax in bf16, or what a FlashAttention kernel keeps: the log-sum-exp of each
        row of scores, from which backward computes the scores again [-]
    recompute : {'none', 'attention', 'full'}
        What backward computes again: nothing, the scores and softmax, or each layer from its input [-]
    fused : bool
        Keep of norms and activation functions what fused kernels keep: their inputs [-]
    grad_dtype, moment_dtype : {'float32', 'bfloat16'}
        In which the gradients are handed to the optimizer, and the moments kept [-]
    master : bool
        Whether the optimizer keeps an fp32 copy of the bf16 weights [-]
    optimizer : {'adamw', 'momentum', 'sgd'}
        Two moments, one, none [-]

    Raises
    ------
    ValueError
        If the model has experts or latent attention, or a choice is unknown.
    """

    model: Transformer
    seq_len: int
    micro_batch: int = 1
    attention: str = "eager"
    recompute: str = "none"
    fused: bool = False
    grad_dtype: str = "bfloat16"
    moment_dtype: str = "float32"
    master: bool = True
    optimizer: str = "adamw"

    def __post_init__(self):
        if not isinstance(self.model, Transformer):
            raise ValueError(f"model = {self.model}: must be a Transformer, such as MODELS['Llama 2 7B']")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} = {getattr(self, name)}: must be one of {', '.join(map(str, allowed))}")
        for name in ("seq_len", "micro_batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value}: must be a whole number, at least 1")
        _check(self.model, self.seq_len)

    def __repr__(self):
        chosen = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model" and getattr(self, f.name) != f.default}
        return f"Step({self.model}, {', '.join(f'{name}={value!r}' for name, value in chosen.items())})"

    @property
    def tokens(self):
        """Tokens of a step."""
        return self.seq_len * self.micro_batch

    # -- FLOPs: from the program that is handed to XLA

    @functools.cached_property
    def params(self):
        """Elements of the weights [-]."""
        return sum(math.prod(shape) for shape in _leaves(shapes(self.model)))

    @functools.cached_property
    def program(self):
        """Forward and backward as the program that JAX hands to XLA, every layer called in its turn."""
        import jax

        with _cpu():
            return jax.jit(jax.value_and_grad(functools.partial(loss, self))).lower(_abstract(shapes(self.model)), *_batch(self))

    @functools.cached_property
    def matmul_flops(self):
        """FLOPs of the matrix products of forward and backward, exactly [FLOP]."""
        return count_products(self.program.as_text())

    @functools.cached_property
    def flops(self):
        """All FLOPs of forward and backward by XLA's own count, which adds up in single precision [FLOP]."""
        return self.program.cost_analysis()["flops"]

    @property
    def elementwise_flops(self):
        """What is no matrix product: norms, activation functions, softmax, loss [FLOP]."""
        return self.flops - self.matmul_flops

    @property
    def coefficient(self):
        """FLOPs for each matrix weight and token, without attention's products: 6, and towards 8 with full recomputation [FLOP]."""
        attention = attention_products(self) * _scores(self.model, self.seq_len)
        return (self.matmul_flops / self.tokens - attention) / self.model.matmul_params

    # -- bytes: what autodiff keeps between forward and backward

    @functools.cached_property
    def kept_bytes(self):
        """Bytes that autodiff keeps for backward, besides the weights [B]."""
        return sum(tensor.bytes for tensor in _kept(self))

    @functools.cached_property
    def kept_tensors(self):
        """What is kept of one layer: how many of each :class:`Tensor`."""
        return Counter(_kept(self._with_layers(2))) - Counter(_kept(self._with_layers(1)))

    @property
    def kept_per_layer(self):
        """Bytes that autodiff keeps of one layer [B]."""
        return sum(tensor.bytes for tensor in self.kept_tensors.elements())

    @property
    def kept_outside(self):
        """Bytes kept outside the layers: of embedding, final norm, head and loss [B]."""
        return self.kept_bytes - self.model.n_layers * self.kept_per_layer

    # -- bytes: what the compiled step takes

    @functools.cached_property
    def argument_bytes(self):
        """Bytes of the compiled step's arguments: weights, master copy, moments, and the batch [B]."""
        import jax

        with _cpu():
            program = jax.jit(functools.partial(train, self), donate_argnums=0).lower(_state(self), *_batch(self))
            return _compile(program).memory_analysis().argument_size_in_bytes

    @functools.cached_property
    def gradient_bytes(self):
        """Bytes of the gradients that the optimizer takes [B]."""
        import jax

        _, grads = jax.eval_shape(functools.partial(gradients, self), _abstract(shapes(self.model, stacked=True)), *_batch(self))
        return sum(g.size * g.dtype.itemsize for g in jax.tree.leaves(grads))

    @property
    def bytes_per_param(self):
        """Arguments and gradients for each parameter [B/param]."""
        return (self.argument_bytes + self.gradient_bytes) / self.params

    def _with_layers(self, n_layers):
        return replace(self, model=replace(self.model, n_layers=n_layers))


def _check(model, seq_len):
    """Raise ``ValueError`` for a model that :func:`layer` does not write."""
    for name in ("n_experts", "kv_lora_rank"):
        if getattr(model, name):
            raise ValueError(f"{name} = {getattr(model, name)}: must be 0; the step is written for dense models with plain attention")
    for name in ("d_head", "d_ff"):
        if not getattr(model, name):
            raise ValueError(f"{name} = {getattr(model, name)}: must be given")
    if model.n_norms not in (1, 2, 4):
        raise ValueError(f"n_norms = {model.n_norms}: must be 1, 2 or 4")
    if model.qk_norm and model.qk_norm not in (1, (model.n_heads + model.n_kv_heads) / 2):
        raise ValueError(f"qk_norm = {model.qk_norm}: must be 0, 1 or the mean of n_heads and n_kv_heads")
    if not model.n_positions and model.d_head % 2:
        raise ValueError(f"d_head = {model.d_head}: must be even, since rotary positions turn pairs")
    if 0 < model.n_positions < seq_len:
        raise ValueError(f"seq_len = {seq_len}: must be at most n_positions = {model.n_positions}, the rows of the position table")


# -- what to expect ---------------------------------------------------------------------------------

#: Elementwise FLOPs of forward and backward by XLA's rule: one for each element of each result, none for an exponential, a root or a logistic function.
#: For each element of a norm by its kind, of an activation function by the matrices of its block; then for a score, a logit and a
#: rotated element. They are those of this module's code: counted, not published.
NORM, ACTIVATION = {"layernorm": 25, "rmsnorm": 18, "none": 19}, {2: 21, 3: 13}
SCORE, LOGIT, ROTATION, BIAS = 16, 7, 10.5, 2


def _scores(model, seq_len):
    return model.n_layers * seq_len * model.n_heads * model.d_head


def attention_products(step):
    """What multiplies layers × length × heads × head size in the FLOPs of a token.

    Forward has two products, QKᵀ and that with V, backward twice as many, each of 2 FLOPs. Backward from the log-sum-exp and
    recomputation of the attention repeat QKᵀ alone, since the result of the other one is kept; full recomputation repeats both.
    """
    return 12 + 2 * (step.attention == "flash" or step.recompute == "attention") + 4 * (step.recompute == "full")


def recomputed_params(model):
    """Weights whose product backward computes once more with full recomputation.

    The head is outside the layers. Of a layer, all but the last product: nothing in backward needs its result, which is only added.
    With one norm for both blocks each has such a product; with a norm after the blocks there is none.
    """
    down, out = model.d_ff * model.d_model, model.n_heads * model.d_head * model.d_model
    return model.matmul_params - model.head_params - model.n_layers * {1: down + out, 2: down, 4: 0}[model.n_norms]


def matmul_flops_per_token(step):
    """What :attr:`Step.matmul_flops` should be for each token, as an expression [FLOP/token]."""
    again = 2 * recomputed_params(step.model) if step.recompute == "full" else 0
    return 6 * step.model.matmul_params + again + attention_products(step) * _scores(step.model, step.seq_len)


def elementwise_flops_per_token(step):
    """What :attr:`Step.elementwise_flops` should be for each token, with eager attention and nothing recomputed or fused [FLOP/token].

    Against the matrix products, everything but the scores falls as 1 / ``d_model``, and the scores are 4 / (3 · ``d_head``) of attention's
    share at any length. Left out are the statistics of rows, the mask and the sums over tables: less than a thousandth of it.
    """
    if (step.attention, step.recompute, step.fused) != ("eager", "none", False):
        raise ValueError(f"step = {step}: must have eager attention, nothing recomputed and nothing fused")
    m, length = step.model, step.seq_len
    turned, norm, gated = (m.n_heads + m.n_kv_heads) * m.d_head, NORM[m.norm], m.n_ff_matrices == 3
    layer = (norm * m.n_norms + 6 + gated) * m.d_model + ACTIVATION[m.n_ff_matrices] * m.d_ff + SCORE * m.n_heads * length
    layer += (0 if m.n_positions else ROTATION * turned) + (NORM["rmsnorm"] * turned if m.qk_norm else 0)
    layer += BIAS * m.qkv_bias * (m.n_heads + 2 * m.n_kv_heads) * m.d_head + BIAS * m.linear_bias * ((1 + gated) * m.d_ff + 2 * m.d_model)
    ends = norm * (1 + m.embedding_norm) * m.d_model + (LOGIT + BIAS * m.head_bias) * m.vocab_size
    both = m.tied_embeddings * m.vocab_size * m.d_model / step.tokens  # the two gradients of a tied table are added once a step
    return m.n_layers * layer + ends + both


# -- the weights -----------------------------------------------------------------------------------

def _norm(model, size):
    return {"layernorm": {"scale": (size,), "shift": (size,)}, "rmsnorm": {"scale": (size,)}, "none": {}}[model.norm]


def _linear(d_in, d_out, bias):
    return {"weight": (d_in, d_out)} | ({"bias": (d_out,)} if bias else {})


def layer_shapes(model):
    """The weights of one layer: a tree of shapes."""
    h, f, query, key = model.d_model, model.d_ff, model.n_heads * model.d_head, model.n_kv_heads * model.d_head
    found = {"q": _linear(h, query, model.qkv_bias), "k": _linear(h, key, model.qkv_bias), "v": _linear(h, key, model.qkv_bias),
             "o": _linear(query, h, model.linear_bias), "up": _linear(h, f, model.linear_bias), "down": _linear(f, h, model.linear_bias),
             "norms": [_norm(model, h) for _ in range(model.n_norms)]}
    if model.n_ff_matrices == 3:
        found["gate"] = _linear(h, f, model.linear_bias)
    if model.qk_norm == 1:
        found |= {"q_norm": {"scale": (model.d_head,)}, "k_norm": {"scale": (model.d_head,)}}
    elif model.qk_norm:
        found |= {"q_norm": {"scale": (query,)}, "k_norm": {"scale": (key,)}}
    return found


def shapes(model, stacked=False):
    """All weights: a tree of shapes, with a list of layers, or (``stacked``) one array for each weight of all layers."""
    found = {"embedding": (model.vocab_size, model.d_model), "norm": _norm(model, model.d_model)}
    if model.n_positions:
        found["positions"] = (model.n_positions, model.d_model)
    if model.embedding_norm:
        found["embedding_norm"] = _norm(model, model.d_model)
    if not model.tied_embeddings:
        found["head"] = (model.vocab_size, model.d_model)
    if model.head_bias:
        found["head_bias"] = (model.vocab_size,)
    one = layer_shapes(model)
    found["layers"] = _map(lambda shape: (model.n_layers, *shape), one) if stacked else [one] * model.n_layers
    return found


def _map(function, tree):
    """Apply a function to each shape of a tree."""
    if isinstance(tree, dict):
        return {name: _map(function, part) for name, part in tree.items()}
    return [_map(function, part) for part in tree] if isinstance(tree, list) else function(tree)


def _leaves(tree):
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in _leaves(part)] if isinstance(tree, (dict, list)) else [tree]


def _abstract(tree, dtype="bfloat16"):
    """The tree with arrays that have a shape and no memory."""
    import jax

    return _map(lambda shape: jax.ShapeDtypeStruct(shape, dtype), tree)


def _batch(step):
    """Abstract tokens and the tokens that follow them."""
    import jax

    return [jax.ShapeDtypeStruct((step.micro_batch, step.seq_len), "int32")] * 2


# -- the model -------------------------------------------------------------------------------------

def linear(weights, x):
    """A matrix product, and a bias if there is one."""
    y = x @ weights["weight"]
    return y + weights["bias"] if "bias" in weights else y


def norm(kind, weights, x):
    """A norm over the last axis, computed in fp32: ``"rmsnorm"``, or a layer norm with or without weights."""
    import jax

    y = x.astype("float32")
    if kind != "rmsnorm":
        y = y - y.mean(-1, keepdims=True)
    y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
    for name, value in weights.items():
        y = y * value.astype("float32") if name == "scale" else y + value.astype("float32")
    return y.astype(x.dtype)


def rotate(x, cosine, sine):
    """Rotary positions: turn each pair of a head's elements by an angle that grows with the position."""
    import jax.numpy as jnp

    left, right = jnp.split(x.astype("float32"), 2, axis=-1)
    return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1).astype(x.dtype)


@functools.cache
def softmax():
    """Softmax over the last axis, whose derivative needs its result alone, as the frameworks write it."""
    import jax
    import jax.numpy as jnp

    @jax.custom_jvp
    def softmax(x):
        x = jnp.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)

    @softmax.defjvp
    def derivative(x, dx):
        y = softmax(*x)
        change = y * dx[0]
        return y, change - y * change.sum(-1, keepdims=True)

    return softmax


def attend(attention, q, k, v, mask):
    """Causal attention of grouped heads: every score is computed, those of later keys are masked."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    batch, length, heads, size = q.shape
    q = q.reshape(batch, length, k.shape[2], -1, size)
    scores = jnp.einsum("bsngd,btnd->bngst", q, k).astype("bfloat16" if attention == "eager-bf16" else "float32")
    scores = scores * size**-0.5 + mask.astype(scores.dtype)
    if attention == "flash":
        scores = jnp.exp(scores - checkpoint_name(jax.nn.logsumexp(scores, axis=-1, keepdims=True), "log_sum_exp"))
    else:
        scores = softmax()(scores)
    return jnp.einsum("bngst,btnd->bsngd", scores.astype(v.dtype), v).reshape(batch, length, heads * size)


def gelu(x):
    """GELU by its tanh approximation, written as a logistic function: what autodiff keeps of tanh depends on JAX's version."""
    import jax

    return x * jax.nn.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))


def gated(gate, up):
    """SwiGLU's activation."""
    import jax

    return jax.nn.silu(gate) * up


def layer(step, weights, x, angles, mask):
    """One layer: attention and the feed-forward block, each added to what comes in."""
    import jax

    model, (batch, length, _) = step.model, x.shape
    fuse = jax.checkpoint if step.fused else lambda function: function
    head_norm = fuse(functools.partial(norm, "rmsnorm"))
    norms = [functools.partial(fuse(functools.partial(norm, model.norm)), w) for w in weights["norms"]]
    core = functools.partial(attend, step.attention)
    if step.attention == "flash":
        core = jax.checkpoint(core, policy=jax.checkpoint_policies.save_only_these_names("log_sum_exp"))
    elif step.recompute == "attention":
        core = jax.checkpoint(core)

    def heads(name, y):
        y, own = linear(weights[name], y), weights.get(f"{name}_norm")
        y = head_norm(own, y) if own and model.qk_norm > 1 else y
        y = y.reshape(batch, length, -1, model.d_head)
        return head_norm(own, y) if own and model.qk_norm == 1 else y

    def attention_block(y):
        q, k, v = heads("q", y), heads("k", y), heads("v", y)
        if angles:
            q, k = rotate(q, *angles), rotate(k, *angles)
        return linear(weights["o"], core(q, k, v, mask))

    def feed_forward(y):
        up = linear(weights["up"], y)
        y = fuse(gated)(linear(weights["gate"], y), up) if "gate" in weights else fuse(gelu)(up)
        return linear(weights["down"], y)

    if model.n_norms == 1:
        y = norms[0](x)
        return x + attention_block(y) + feed_forward(y)
    if model.n_norms == 2:
        x = x + attention_block(norms[0](x))
        return x + feed_forward(norms[1](x))
    x = x + norms[1](attention_block(norms[0](x)))
    return x + norms[3](feed_forward(norms[2](x)))


@functools.cache
def _layer_function(step):
    """The layer as a function of its own: autodiff and lowering then treat it once, however often it is called."""
    import jax

    one = functools.partial(layer, step)
    return jax.jit(jax.checkpoint(one) if step.recompute == "full" else one)


def loss(step, weights, tokens, targets):
    """Mean cross-entropy of a micro-batch, in fp32."""
    import jax
    import jax.numpy as jnp

    model = step.model
    final_norm = functools.partial(norm, model.norm)
    final_norm = jax.checkpoint(final_norm) if step.fused else final_norm
    where = jnp.arange(step.seq_len)
    mask = jnp.where(where[:, None] >= where, 0.0, -jnp.inf)
    x, angles = weights["embedding"][tokens], ()
    if model.n_positions:
        x = x + weights["positions"][: step.seq_len]
    else:
        turns = where[:, None] * 10000.0 ** (-jnp.arange(0, model.d_head, 2) / model.d_head)
        angles = jnp.cos(turns)[None, :, None], jnp.sin(turns)[None, :, None]
    if model.embedding_norm:
        x = final_norm(weights["embedding_norm"], x)
    one = _layer_function(replace(step, model=replace(model, n_layers=1)))
    if isinstance(weights["layers"], list):
        for part in weights["layers"]:
            x = one(part, x, angles, mask)
    else:
        x, _ = jax.lax.scan(lambda x, part: (one(part, x, angles, mask), None), x, weights["layers"])
    x = final_norm(weights["norm"], x)
    logits = jnp.einsum("bsh,vh->bsv", x, weights["embedding" if model.tied_embeddings else "head"])
    logits = (logits + weights["head_bias"] if model.head_bias else logits).astype("float32")
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


# -- the step --------------------------------------------------------------------------------------

def gradients(step, weights, tokens, targets):
    """The loss and its gradients, as the optimizer takes them."""
    import jax

    value, grads = jax.value_and_grad(functools.partial(loss, step))(weights, tokens, targets)
    return value, jax.tree.map(lambda g: g.astype(step.grad_dtype), grads)


def updated(step, count, weight, grad, *moments):
    """One weight after the optimizer: its new value in fp32 and its new moments."""
    import jax.numpy as jnp

    weight, grad = weight.astype("float32"), grad.astype("float32")
    moments = [m.astype("float32") for m in moments]
    direction = grad
    if step.optimizer == "momentum":
        moments = [BETA_1 * moments[0] + grad]
        direction = moments[0]
    elif step.optimizer == "adamw":
        moments = [BETA_1 * moments[0] + (1 - BETA_1) * grad, BETA_2 * moments[1] + (1 - BETA_2) * grad * grad]
        first, second = (m / (1 - beta**count) for m, beta in zip(moments, (BETA_1, BETA_2), strict=True))
        direction = first / (jnp.sqrt(second) + EPSILON) + WEIGHT_DECAY * weight
    return weight - LEARNING_RATE * direction, *(m.astype(step.moment_dtype) for m in moments)


def optimize(step, state, grads):
    """The state after the optimizer: weights, and what it keeps."""
    import jax

    count = state["count"] + 1
    old = state["master" if step.master else "weights"]
    tree = jax.tree.structure(old)
    results = [updated(step, count, *leaves) for leaves in zip(*map(jax.tree.leaves, (old, grads, *state["moments"])), strict=True)]
    new, *moments = (tree.unflatten(part) for part in zip(*results, strict=True))
    after = {"weights": jax.tree.map(lambda w: w.astype("bfloat16"), new), "moments": moments, "count": count}
    return after | ({"master": new} if step.master else {})


def train(step, state, tokens, targets):
    """A whole training step: the state before it, a batch, and the state after it with the loss."""
    value, grads = gradients(step, state["weights"], tokens, targets)
    return optimize(step, state, grads), value


def _state(step):
    """The abstract state of a step, the layers' weights stacked: the compiler's time does not grow with their number."""
    tree = shapes(step.model, stacked=True)
    moments = [_abstract(tree, step.moment_dtype) for _ in range(MOMENTS[step.optimizer])]
    state = {"weights": _abstract(tree), "moments": moments, "count": _abstract((), "int32")}
    return state | ({"master": _abstract(tree, "float32")} if step.master else {})


# -- counting --------------------------------------------------------------------------------------

#: The arguments do not depend on how hard the compiler tries. These are XLA's own flags, which another version may not know.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

_FUNCTION = re.compile(r"func\.func .*?@([\w.]+)\(")
_CALL = re.compile(r"call @([\w.]+)\(")
_PRODUCT = re.compile(r"dot_general .*contracting_dims = \[([\d, ]*)\] x .*: \(tensor<([\dx]*)x\w+>, .*\) -> tensor<([\dx]*)x\w+>")


@contextlib.contextmanager
def _cpu():
    """Ask the CPU's compiler, also where there is a GPU: the counts are then the same everywhere.

    Tracing makes many small objects and no garbage: collecting it would take a quarter of the time.
    """
    import jax

    collects = gc.isenabled()
    gc.disable()
    try:
        with jax.default_device(jax.devices("cpu")[0]):
            yield
    finally:
        if collects:
            gc.enable()


def _compile(program):
    """The compiled program, quickly where the compiler lets us."""
    import jax

    try:
        return program.compile(compiler_options=QUICK)
    except jax.errors.JaxRuntimeError:
        return program.compile()


def count_products(text):
    """FLOPs of the matrix products in the text of a lowered program.

    Parameters
    ----------
    text : str
        A StableHLO module, from ``lowered.as_text()`` [-]

    Returns
    -------
    int
        Two for each element of each product's result and each term of its sum; a function counts as often as it is called [FLOP]

    Raises
    ------
    ValueError
        If a product stands in a form that is not read, or in a loop.

    Examples
    --------
    >>> product = "%c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<3x5xf32>, tensor<5x7xf32>) -> tensor<3x7xf32>"
    >>> count_products(f"func.func @main(\\n{product}\\n{product}")
    420
    """
    products, calls, name = Counter(), {}, None
    for line in text.splitlines():
        if found := _FUNCTION.search(line):
            name = found[1]
            calls[name] = []
        elif found := _PRODUCT.search(line):
            left, result = ([int(n) for n in size.split("x")] for size in found.group(2, 3))
            products[name] += 2 * math.prod(result) * math.prod(left[int(i)] for i in found[1].split(","))
        elif "dot_general" in line or "stablehlo.while" in line:
            raise ValueError(f"text = {line.strip()}: must be a product in StableHLO's short form, outside a loop")
        calls.setdefault(name, []).extend(_CALL.findall(line))

    @functools.cache
    def total(name):
        return products[name] + sum(map(total, calls[name]))

    return total("main")


def _kept(step):
    """The tensors that forward hands to backward, besides the weights."""
    import jax

    def forward(weights, tokens, targets):
        return jax.vjp(lambda w: loss(step, w, tokens, targets), weights)[1]

    program = jax.make_jaxpr(forward)(_abstract(shapes(step.model)), *_batch(step)).jaxpr
    given = set(program.invars)
    kept = {v: None for v in program.outvars if not hasattr(v, "val") and v not in given}  # each once; a constant has a value
    return [Tensor(v.aval.dtype.name, v.aval.shape, v.aval.size * v.aval.dtype.itemsize) for v in kept]
