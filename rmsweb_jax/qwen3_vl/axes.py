"""Logical axes of every weight: the one table that sharding, loading and checks of a mesh read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig


class Axis(NamedTuple):
    """A logical axis of a model: `count` things of `unit` entries each, which are never split."""

    count: int
    unit: int = 1

    @property
    def size(self) -> int:
        return self.count * self.unit


def axis_sizes(config: Qwen3VLConfig) -> dict[str, Axis]:
    """Extent of every logical axis, but that of the stacked layers and of the adapters' rank."""
    text, vision = config.text, config.vision
    return {
        "vocab": Axis(text.vocab_size),
        "embed": Axis(text.hidden_size),
        "heads": Axis(text.num_attention_heads, text.head_dim),
        "kv_heads": Axis(text.num_key_value_heads, text.head_dim),
        "head_dim": Axis(text.head_dim),
        "qkv": Axis(text.query_dim + 2 * text.kv_dim),
        "mlp": Axis(text.intermediate_size),
        "patch": Axis(vision.patch_dim),
        "vision_positions": Axis(vision.num_position_embeddings),
        "vision_embed": Axis(vision.hidden_size),
        "vision_heads": Axis(vision.num_heads, vision.head_dim),
        "vision_qkv": Axis(vision.num_heads, 3 * vision.head_dim),
        "vision_mlp": Axis(vision.intermediate_size),
        "merged": Axis(vision.hidden_size * vision.merge_unit),
        "merger_mlp": Axis(vision.hidden_size * vision.merge_unit),
    }


# Parameter -> its axes, without numbers of list entries and without the leading axis of stacked layers.
_WEIGHTS: dict[str, tuple[str, ...]] = {
    "language_model.embed_tokens.embedding": ("vocab", "embed"),
    "language_model.layers.input_layernorm.scale": ("embed",),
    "language_model.layers.self_attn.q_proj.kernel": ("embed", "heads"),
    "language_model.layers.self_attn.k_proj.kernel": ("embed", "kv_heads"),
    "language_model.layers.self_attn.v_proj.kernel": ("embed", "kv_heads"),
    "language_model.layers.self_attn.o_proj.kernel": ("heads", "embed"),
    "language_model.layers.self_attn.q_norm.scale": ("head_dim",),
    "language_model.layers.self_attn.k_norm.scale": ("head_dim",),
    "language_model.layers.post_attention_layernorm.scale": ("embed",),
    "language_model.layers.mlp.gate_proj.kernel": ("embed", "mlp"),
    "language_model.layers.mlp.up_proj.kernel": ("embed", "mlp"),
    "language_model.layers.mlp.down_proj.kernel": ("mlp", "embed"),
    "language_model.norm.scale": ("embed",),
    "lm_head.kernel": ("embed", "vocab"),
    "visual.patch_embed.proj.kernel": ("patch", "vision_embed"),
    "visual.patch_embed.proj.bias": ("vision_embed",),
    "visual.pos_embed.embedding": ("vision_positions", "vision_embed"),
    "visual.blocks.norm1.scale": ("vision_embed",),
    "visual.blocks.norm1.bias": ("vision_embed",),
    "visual.blocks.norm2.scale": ("vision_embed",),
    "visual.blocks.norm2.bias": ("vision_embed",),
    "visual.blocks.attn.qkv.kernel": ("vision_embed", "vision_qkv"),
    "visual.blocks.attn.qkv.bias": ("vision_qkv",),
    "visual.blocks.attn.proj.kernel": ("vision_heads", "vision_embed"),
    "visual.blocks.attn.proj.bias": ("vision_embed",),
    "visual.blocks.mlp.linear_fc1.kernel": ("vision_embed", "vision_mlp"),
    "visual.blocks.mlp.linear_fc1.bias": ("vision_mlp",),
    "visual.blocks.mlp.linear_fc2.kernel": ("vision_mlp", "vision_embed"),
    "visual.blocks.mlp.linear_fc2.bias": ("vision_embed",),
    "visual.merger.norm.scale": ("vision_embed",),
    "visual.merger.norm.bias": ("vision_embed",),
    "visual.merger.linear_fc1.kernel": ("merged", "merger_mlp"),
    "visual.merger.linear_fc1.bias": ("merger_mlp",),
    "visual.merger.linear_fc2.kernel": ("merger_mlp", "embed"),
    "visual.merger.linear_fc2.bias": ("embed",),
    "visual.deepstack_merger_list.norm.scale": ("merged",),
    "visual.deepstack_merger_list.norm.bias": ("merged",),
    "visual.deepstack_merger_list.linear_fc1.kernel": ("merged", "merger_mlp"),
    "visual.deepstack_merger_list.linear_fc1.bias": ("merger_mlp",),
    "visual.deepstack_merger_list.linear_fc2.kernel": ("merger_mlp", "embed"),
    "visual.deepstack_merger_list.linear_fc2.bias": ("embed",),
}

# Where adapters may lie; A and B take the axes of the matrix that they add to.
_ADAPTED = ("language_model.layers.self_attn.", "language_model.layers.mlp.", "visual.blocks.")

PARAM_AXES: dict[str, tuple[str, ...]] = {
    **_WEIGHTS,
    "language_model.layers.self_attn.qkv_lora.a": ("embed", "lora_rank"),
    "language_model.layers.self_attn.qkv_lora.b": ("lora_rank", "qkv"),
}
for _name, _axes in _WEIGHTS.items():
    if _name.startswith(_ADAPTED) and _name.endswith(".kernel"):
        _prefix = _name.removesuffix("kernel") + "lora."
        PARAM_AXES |= {f"{_prefix}a": (_axes[0], "lora_rank"), f"{_prefix}b": ("lora_rank", _axes[1])}

_ROOTS = ("language_model", "visual", "lm_head")


def table_name(path: Sequence[str]) -> str | None:
    """The row of `PARAM_AXES` for a path in a model's state or in an optimizer's copy of one.

    None when the path leads to no parameter, such as an optimizer's step count.
    """
    start = next((number for number, name in enumerate(path) if name in _ROOTS), None)
    if start is None:
        return None
    names = ["layers" if name == "first_layers" else name for name in path[start:] if not name.isdigit()]
    return ".".join(names)


def logical_axes(path: Sequence[str], ndim: int) -> tuple[str | None, ...]:
    """Names of a parameter's axes, "layers" for the leading one of stacked layers; () for no parameter.

    Raises:
      KeyError: the table has no row for it.
    """
    name = table_name(path)
    if name is None:
        return (None,) * ndim
    axes = PARAM_AXES[name]
    return ("layers", *axes) if ndim == len(axes) + 1 else axes
