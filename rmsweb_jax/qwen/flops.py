"""Floating-point operations of the model, counted from its shapes.

A multiply-add counts as two. Only matrix products are counted, as in the usual definition of MFU. The
compiler's own count is no substitute: it takes a scanned layer once and a fused kernel not at all.
"""

from __future__ import annotations

import dataclasses

from rmsweb_jax.qwen.config import Qwen3VLConfig


@dataclasses.dataclass(frozen=True)
class Work:
    """Amounts of work of a program, from which its operations follow; they add up.

    The same counts describe useful work, without padding, and executed work, with it.

    Attributes:
      tokens: positions of rows.
      pairs: visible (query, key) pairs over all rows.
      scored: positions at which the vocabulary head is computed.
      patches: positions of vision patches.
      patch_pairs: visible pairs of patches.
    """

    tokens: int
    pairs: int
    scored: int
    patches: int = 0
    patch_pairs: int = 0

    def __add__(self, other: Work) -> Work:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Work(*(mine + theirs for mine, theirs in pairs))


def causal_pairs(length: int) -> int:
    """Counts the visible pairs of one causal row."""
    return length * (length + 1) // 2


def decoder_flops(config: Qwen3VLConfig, tokens: int, pairs: int) -> int:
    """Counts one forward pass of all decoder layers.

    A recurrence counts as if it were computed token by token; chunks take more operations in less time.
    """
    text, layers = config.text, config.text.num_attention_layers
    gate = text.query_dim if text.delta else 0
    projections = text.hidden_size * (2 * text.query_dim + gate + 2 * text.kv_dim)
    # Scores, then values: head_dim multiply-adds each for a pair and a query head.
    mixers = layers * (tokens * projections + 2 * text.query_dim * pairs)
    if (delta := text.delta) is not None:
        heads = delta.linear_num_value_heads
        state = heads * delta.linear_key_head_dim * delta.linear_value_head_dim
        projections = text.hidden_size * (delta.channels + 2 * delta.value_dim + 2 * heads)
        # The state is read by the key, added to, and read by the query.
        own = 3 * state + delta.linear_conv_kernel_dim * delta.channels
        mixers += (text.num_hidden_layers - layers) * tokens * (projections + own)
    mlp = 3 * text.hidden_size * text.intermediate_size
    return 2 * (mixers + text.num_hidden_layers * tokens * mlp)


def head_flops(config: Qwen3VLConfig, scored: int) -> int:
    """Counts one forward pass of the vocabulary head."""
    return 2 * scored * config.text.hidden_size * config.text.vocab_size


def vision_flops(config: Qwen3VLConfig, patches: int, patch_pairs: int) -> int:
    """Counts one forward pass of the vision tower with its mergers."""
    vision = config.vision
    block = 4 * vision.hidden_size**2 + 2 * vision.hidden_size * vision.intermediate_size
    attention = 2 * vision.hidden_size * patch_pairs
    # A merger has two matrices, [merged, merged] and [merged, out_hidden_size]; there is one per DeepStack
    # tap and one for the output.
    merged = vision.hidden_size * vision.merge_unit
    merger = (patches // vision.merge_unit) * merged * (merged + vision.out_hidden_size)
    mergers = (1 + config.num_deepstack) * merger
    return 2 * (vision.depth * (patches * block + attention) + mergers) + embed_flops(config, patches)


def embed_flops(config: Qwen3VLConfig, patches: int) -> int:
    """Counts the projection of pixels, the first product of the vision tower."""
    return 2 * patches * config.vision.patch_dim * config.vision.hidden_size


def forward_flops(config: Qwen3VLConfig, work: Work) -> int:
    """Counts one forward pass of the whole model."""
    return (
        decoder_flops(config, work.tokens, work.pairs)
        + head_flops(config, work.scored)
        + vision_flops(config, work.patches, work.patch_pairs)
    )


def decode_flops(config: Qwen3VLConfig, rows: int, prompt: int, length: int) -> int:
    """Counts all decoding steps of `rows` samples of `length` tokens after `prompt` tokens.

    A step computes attention over the whole ring buffer, filled or not.
    """
    steps = length - 1
    tokens, pairs = rows * steps, rows * steps * (prompt + length)
    return decoder_flops(config, tokens, pairs) + head_flops(config, rows * length)


@dataclasses.dataclass(frozen=True)
class TrainingFlops:
    """Operations of a gradient.

    Attributes:
      useful: those that the gradient needs.
      executed: useful ones and those that are computed again in the backward pass.
    """

    useful: int
    executed: int


def training_flops(
    config: Qwen3VLConfig, work: Work, adapters: int, remat: str, trainable: str = "lora"
) -> TrainingFlops:
    """Counts a gradient whose logits are computed in chunks, and again in the backward pass.

    With adapters on a frozen base, decoder and head need a forward pass and a backward pass to activations,
    and the vision tower a forward pass only, since nothing before the decoder is trained. Adapters also need
    a backward pass to their weights. When all weights are trained, everything needs all three, except that
    pixels need no gradient.

    Args:
      adapters: number of adapter parameters; each is a multiply-add for every token.
      remat: policy of rematerialization: "none", "dots" (repeats attention), "named" and "offload" (repeat
        the adapters' products) or "full" (repeats every layer).
      trainable: "lora" or "all".
    """
    decoder = decoder_flops(config, work.tokens, work.pairs)
    attention = decoder - decoder_flops(config, work.tokens, 0)
    head, vision = head_flops(config, work.scored), vision_flops(config, work.patches, work.patch_pairs)
    low_rank = 2 * work.tokens * adapters
    # `head` is repeated under every policy, see `logprobs.score_tokens`.
    again = {"none": 0, "dots": attention, "full": decoder + low_rank}.get(remat, low_rank)
    if trainable == "lora":
        # Attention has no frozen operand: its backward is twice its forward.
        useful = 2 * decoder + attention + 2 * head + vision + 3 * low_rank
    else:
        useful = 3 * (decoder + head + vision + low_rank) - embed_flops(config, work.patches)
        looking = vision - vision_flops(config, work.patches, 0)
        again += {"dots": looking, "full": vision}.get(remat, 0)
    return TrainingFlops(useful, useful + again + head)
