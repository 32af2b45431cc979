"""Qwen3-VL as one module: vision tower, decoder and vocabulary head; and the scores of given tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Bool, Float, Float32, Int32, Key

from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.backends import make_attend, make_recur
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import Array, ModelInputs
from rmsweb_jax.qwen.layers import Linear
from rmsweb_jax.qwen.text import REMAT_POLICIES, Hidden, KeyValues, LanguageModel
from rmsweb_jax.qwen.vision import VisionTower
from rmsweb_jax.training.mesh import constrain, constrain_rows, row_shards


def place_features(
    features: Float[jax.Array, "merged hidden"], image_index: Int32[Array, "rows tokens"]
) -> Hidden:
    """Puts vision features at their tokens, and zeros at text."""
    index = jnp.asarray(image_index)
    # A gather with a mask, not a scatter, which accelerators do row by row. Text (-1) reads row 0 and drops
    # it.
    return jnp.where((index >= 0)[..., None], features[jnp.maximum(index, 0)], 0)


class Qwen3VL(nnx.Module):
    """The dense Qwen3-VL architecture (text decoder, vision tower, DeepStack, interleaved MRoPE).

    Args:
      config: hyper-parameters.
      rngs: needs the stream `params`.
      dtype: dtype of the computation; norms, softmax, rotary embedding and logits are always float32.
      param_dtype: dtype of the stored base weights.
      remat: policy of rematerialization for all layers, see `text.remat`.
      attention: back end of the decoder's attention.
      embedding_std: standard deviation of fresh embeddings; that of kernels is 1 / sqrt(inputs).

    Attributes:
      carried: folder of the checkpoint with tensors that are not computed, which exports copy; "": none.

    Raises:
      ValueError: the rematerialization policy is unknown.
    """

    def __init__(
        self,
        config: Qwen3VLConfig,
        *,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        remat: str = "none",
        attention: AttentionConfig | None = None,
        embedding_std: float = 0.02,
    ):
        if remat not in REMAT_POLICIES:
            raise ValueError(f"remat is {remat!r}, not one of {REMAT_POLICIES}")
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.visual = VisionTower(config.vision, remat=remat, embedding_std=embedding_std, **kw)
        self.language_model = LanguageModel(config, remat=remat, embedding_std=embedding_std, **kw)
        # Tied in the released 2B and 4B models, separate in 8B and 32B.
        self.lm_head: Linear | None = (
            nnx.data(None)
            if config.tie_word_embeddings
            else Linear(config.text.hidden_size, config.text.vocab_size, ("embed", "vocab"), **kw)
        )
        self.config = config
        self.carried = ""
        self.attention = attention or AttentionConfig()
        self.dtype = dtype

    def set_remat(self, policy: str) -> None:
        """Changes the policy of rematerialization."""
        self.visual.remat = self.language_model.remat = policy

    def __call__(
        self, inputs: ModelInputs, *, adapters: bool = True, dropout_key: Key[jax.Array, ""] | None = None
    ) -> Hidden:
        """Computes hidden states after the final norm.

        Args:
          adapters: False switches LoRA off, which gives the reference policy.
          dropout_key: enables the adapters' dropout.
        """
        return self.forward(inputs, adapters=adapters, dropout_key=dropout_key)[0]

    def forward(
        self,
        inputs: ModelInputs,
        *,
        adapters: bool = True,
        dropout_key: Key[jax.Array, ""] | None = None,
        return_kv: bool = False,
    ) -> tuple[Hidden, KeyValues | None]:
        """Computes hidden states as `__call__` does, and if `return_kv` the keys and values of all layers."""
        x, deepstack = self.embed(inputs, adapters=adapters, dropout_key=dropout_key)
        # Once per call: masks and kernels are the same for all layers.
        attend = make_attend(self.attention, inputs.until)
        return self.language_model(
            x,
            inputs.positions,
            attend,
            deepstack,
            adapters=adapters,
            dropout_key=dropout_key,
            recur=None if inputs.tables is None else make_recur(self.attention, inputs.until, inputs.tables),
            parent=None if inputs.tables is None else jnp.asarray(inputs.tables.parent),
            mesh=self.attention.mesh,
            return_kv=return_kv,
        )

    def embed(
        self, inputs: ModelInputs, *, adapters: bool = True, dropout_key: Key[jax.Array, ""] | None = None
    ) -> tuple[Hidden, list[Hidden]]:
        """Computes embeddings, with vision features at image tokens, and the DeepStack additions."""
        x = constrain_rows(self.language_model.embed_tokens(jnp.asarray(inputs.tokens)), self.attention.mesh)
        if inputs.vision is None:
            return x, []
        if dropout_key is not None:
            # A number that no decoder layer has, so that the towers' dropout differs.
            dropout_key = jax.random.fold_in(dropout_key, self.config.text.num_hidden_layers)
        vision = self.visual(
            inputs.vision, adapters=adapters, dropout_key=dropout_key, mesh=self.attention.mesh
        )
        is_image = (jnp.asarray(inputs.image_index) >= 0)[..., None]
        x = jnp.where(is_image, place_features(vision.features, inputs.image_index).astype(x.dtype), x)
        return x, [place_features(part, inputs.image_index).astype(x.dtype) for part in vision.deepstack]

    def head_kernel(self) -> Float[jax.Array, "hidden vocab"]:
        """Returns the vocabulary projection; in tied models the transposed embedding table."""
        if self.lm_head is not None:
            return self.lm_head.kernel[...]
        return self.language_model.embed_tokens.embedding[...].T

    def head(self) -> Callable[[jax.Array], jax.Array]:
        """Returns the function from hidden states [..., hidden] to float32 logits [..., vocab].

        Its calls share one gathered kernel; each call of `logits` gathers its own.
        """
        # A tied table is contracted along its second axis, since CPUs would copy its transpose in every call.
        table, hidden_axis = self.language_model.embed_tokens.embedding[...], 1
        if self.lm_head is not None:
            table, hidden_axis = self.lm_head.kernel[...], 0
        axes = ("tensor", None) if hidden_axis else (None, "tensor")
        # Gathered over `fsdp`: otherwise every product of a chunk would leave partial sums of logits, which
        # are far larger than the kernel.
        table = constrain(table.astype(self.dtype), self.attention.mesh, *axes)

        def logits(hidden: jax.Array) -> jax.Array:
            flat = hidden.astype(self.dtype).reshape(-1, hidden.shape[-1])
            # Accumulated and returned in float32: log-probabilities are differences of large logits.
            found = jax.lax.dot_general(
                flat, table, (((1,), (hidden_axis,)), ((), ())), preferred_element_type=jnp.float32
            )
            return found.reshape(*hidden.shape[:-1], -1)

        return logits

    def logits(self, hidden: Float[jax.Array, "*lead hidden"]) -> Float32[jax.Array, "*lead vocab"]:
        return self.head()(hidden)


# Most float32 logits that a device holds at once (256 MiB), and tokens of a row that are scored at once:
# enough for matrix products to be fast.
MAX_LOGITS, _CHUNK = 2**26, 512


class TokenScores(NamedTuple):
    """Scores of given tokens.

    Attributes:
      log_probs: log-probability of each token.
      matches: True where the token is the most probable one.
    """

    log_probs: Float32[jax.Array, "rows targets"]
    matches: Bool[jax.Array, "rows targets"]


def score_tokens(
    model: Qwen3VL,
    hidden: Float[jax.Array, "rows targets hidden"],
    tokens: Int32[Array, "rows targets"],
    count: Int32[jax.Array, ""] | None = None,
    *,
    temperature: float | Float32[jax.Array, "rows targets"] = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Scores tokens by the hidden states that predict them.

    They are scored in chunks, one after another, and again in the backward pass, so that the logits of few
    tokens are in memory at once.

    Args:
      hidden: state before each token, which in a tree is not always that of the token's neighbour.
      count: tokens of a row that need a score, from the first; the chunks after them cost nothing. By default
        all.
      temperature: temperature of the softmax, one for all tokens or one for each.
      max_logits: most logits of a device that are in memory at once.
    """
    head = model.head()
    tokens = jnp.asarray(tokens)
    rows, length = tokens.shape
    # Chunks cut the token axis, not the rows, so that each device keeps its rows.
    local_rows = -(-rows // row_shards(model.attention.mesh))
    chunk = max(1, min(_CHUNK, length, max_logits // (local_rows * model.config.text.vocab_size)))
    chunks = -(-length // chunk)

    def score(part: tuple[jax.Array, ...]) -> TokenScores:
        hidden, tokens, *own = part
        logits = head(hidden) / (own[0][..., None] if own else temperature)
        # The picked logit minus the log-sum-exp, without a softmax over the vocabulary in memory.
        picked = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        return TokenScores(picked - jax.nn.logsumexp(logits, axis=-1), jnp.argmax(logits, axis=-1) == tokens)

    def skip(part: tuple[jax.Array, ...]) -> TokenScores:
        shape = part[1].shape
        return TokenScores(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool))

    # Checkpointed: otherwise the backward pass would keep the logits of all chunks.
    @jax.checkpoint
    def step(part: tuple[jax.Array, tuple[jax.Array, ...]]) -> TokenScores:
        number, scored = part
        if count is None:
            return score(scored)
        return jax.lax.cond(number * chunk < count, score, skip, scored)

    def cut(x: jax.Array, fill: float = 0) -> jax.Array:
        """Reshapes [rows, targets, ...] to [chunks, rows, chunk, ...]."""
        padding = ((0, 0), (0, chunks * chunk - length), *[(0, 0)] * (x.ndim - 2))
        x = jnp.pad(x, padding, constant_values=fill)
        return jnp.moveaxis(x.reshape(rows, chunks, chunk, *x.shape[2:]), 1, 0)

    parts = [cut(hidden), cut(tokens)]
    if jnp.ndim(temperature):
        parts.append(cut(jnp.asarray(temperature), fill=1))
    scored = jax.lax.map(step, (jnp.arange(chunks), tuple(parts)))
    return TokenScores(*(jnp.moveaxis(part, 0, 1).reshape(rows, -1)[:, :length] for part in scored))
