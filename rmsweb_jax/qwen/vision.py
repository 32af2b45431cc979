"""The vision tower, from patches to features of decoder tokens, with DeepStack outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Float32, Int32, Key

from rmsweb_jax.qwen.attention import attend
from rmsweb_jax.qwen.config import VisionConfig
from rmsweb_jax.qwen.inputs import Array, VisionInputs
from rmsweb_jax.qwen.layers import Embedding, LayerNorm, Linear, rotate
from rmsweb_jax.qwen.sharding import gather_weights
from rmsweb_jax.qwen.text import MAX_UNROLL, Keys, module_keys, remat, stack_modules
from rmsweb_jax.training.mesh import ROWS, constrain

Patches = Float[jax.Array, "patches hidden"]


class VisionOutput(NamedTuple):
    """Features of the merged patches, one row each (`merged` is patches / 4).

    Attributes:
      deepstack: features from each of the blocks `deepstack_visual_indexes`.
    """

    features: Float[jax.Array, "merged out_hidden"]
    deepstack: list[Float[jax.Array, "merged out_hidden"]]


def vision_cos_sin(
    hw: Int32[Array, "patches 2"], config: VisionConfig
) -> tuple[Float32[jax.Array, "patches half_dim"], Float32[jax.Array, "patches half_dim"]]:
    """Computes the axial rotary table: the first half of its entries follows rows, the second columns."""
    # Laid out as [row, column, row, column] over a head, of which `rotate` pairs the two halves.
    quarter = config.head_dim // 2
    exponent = np.arange(0, quarter, 2, dtype=np.float32) / np.float32(quarter)
    frequencies = (1.0 / np.float32(config.rope_theta) ** exponent).astype(np.float32)
    angles = (jnp.asarray(hw)[..., None].astype(jnp.float32) * frequencies).reshape(len(hw), -1)
    return jnp.cos(angles), jnp.sin(angles)


class BlockContext(NamedTuple):
    """Inputs that all vision blocks of one forward pass share.

    Attributes:
      cos, sin: rotary table.
      mask: visible patches in each attention window.
      adapters: True applies LoRA.
    """

    cos: Float32[jax.Array, "patches half_dim"]
    sin: Float32[jax.Array, "patches half_dim"]
    mask: Bool[jax.Array, "windows window window"]
    adapters: bool


class VisionAttention(nnx.Module):
    """Attention within windows, where `mask` separates images and padding."""

    def __init__(self, config: VisionConfig, **kw: Any):
        self.qkv = Linear(
            config.hidden_size, 3 * config.hidden_size, ("vision_embed", "vision_qkv"), use_bias=True, **kw
        )
        self.proj = Linear(
            config.hidden_size, config.hidden_size, ("vision_heads", "vision_embed"), use_bias=True, **kw
        )
        self.num_heads = config.num_heads

    def __call__(self, x: Patches, context: BlockContext, keys: Keys) -> Patches:
        lora, mask = context.adapters, context.mask
        qkv = self.qkv(x, adapters=lora, key=keys[0])
        # [3, patches, heads, head_dim]
        q, k, v = jnp.moveaxis(qkv.reshape(len(x), 3, self.num_heads, -1), 1, 0)
        q, k = rotate(q, context.cos, context.sin), rotate(k, context.cos, context.sin)
        # Windows take the place of rows: [windows, window, heads, head_dim].
        q, k, v = (part.reshape(*mask.shape[:2], *part.shape[1:]) for part in (q, k, v))
        mixed = attend(q, k, v, mask, causal=False).reshape(len(x), -1)
        return self.proj(mixed, adapters=lora, key=keys[1])


class VisionMLP(nnx.Module):
    def __init__(self, config: VisionConfig, **kw: Any):
        size, inner = config.hidden_size, config.intermediate_size
        self.linear_fc1 = Linear(size, inner, ("vision_embed", "vision_mlp"), use_bias=True, **kw)
        self.linear_fc2 = Linear(inner, size, ("vision_mlp", "vision_embed"), use_bias=True, **kw)

    def __call__(self, x: Patches, adapters: bool, keys: Keys) -> Patches:
        # The tanh approximation, as in the reference (`gelu_pytorch_tanh`).
        x = jax.nn.gelu(self.linear_fc1(x, adapters=adapters, key=keys[0]), approximate=True)
        return self.linear_fc2(x, adapters=adapters, key=keys[1])


class VisionBlock(nnx.Module):
    def __init__(self, config: VisionConfig, **kw: Any):
        self.norm1 = LayerNorm(config.hidden_size, param_dtype=kw["param_dtype"])
        self.norm2 = LayerNorm(config.hidden_size, param_dtype=kw["param_dtype"])
        self.attn = VisionAttention(config, **kw)
        self.mlp = VisionMLP(config, **kw)

    def __call__(self, x: Patches, context: BlockContext, key: Key[jax.Array, ""] | None) -> Patches:
        # For qkv, proj and both matrices of the MLP.
        keys = module_keys(key, 4)
        x = x + self.attn(self.norm1(x), context, keys[:2])
        return x + self.mlp(self.norm2(x), context.adapters, keys[2:])


class PatchMerger(nnx.Module):
    """Merges 2x2 patches to the features of one decoder token.

    As in the reference its GELU is exact, unlike that of the blocks, and the DeepStack mergers normalize the
    merged vector instead of the patches.
    """

    def __init__(self, config: VisionConfig, *, norm_after_shuffle: bool, **kw: Any):
        self.size = config.hidden_size * config.merge_unit
        self.norm_after_shuffle = norm_after_shuffle
        norm_size = self.size if norm_after_shuffle else config.hidden_size
        self.norm = LayerNorm(norm_size, param_dtype=kw["param_dtype"])
        self.linear_fc1 = Linear(self.size, self.size, ("merged", "merger_mlp"), use_bias=True, **kw)
        self.linear_fc2 = Linear(
            self.size, config.out_hidden_size, ("merger_mlp", "embed"), use_bias=True, **kw
        )

    def __call__(self, x: Patches) -> Float[jax.Array, "merged out_hidden"]:
        # The reshape merges 2x2 patches, because patches come in merge-block order.
        if self.norm_after_shuffle:
            x = self.norm(x.reshape(-1, self.size))
        else:
            x = self.norm(x).reshape(-1, self.size)
        return self.linear_fc2(jax.nn.gelu(self.linear_fc1(x), approximate=False))


class PatchEmbed(nnx.Module):
    """Projects patches; the reference writes this product as a 3-D convolution with stride = kernel."""

    def __init__(self, config: VisionConfig, **kw: Any):
        self.proj = Linear(
            config.patch_dim, config.hidden_size, ("patch", "vision_embed"), use_bias=True, **kw
        )

    def __call__(self, patches: Float[jax.Array, "patches patch_dim"]) -> Patches:
        return self.proj(patches)


def _gathered(module: Any, mesh: Mesh | None) -> Any:
    graphdef, state = nnx.split(module)
    return nnx.merge(graphdef, gather_weights(state, mesh))


class VisionTower(nnx.Module):
    """Patch and position embeddings, stacked blocks, and mergers."""

    def __init__(
        self,
        config: VisionConfig,
        *,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
        remat: str,
        embedding_std: float,
    ):
        kw: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype}
        self.patch_embed = PatchEmbed(config, rngs=rngs, **kw)
        self.pos_embed = Embedding(
            config.num_position_embeddings,
            config.hidden_size,
            ("vision_positions", "vision_embed"),
            std=embedding_std,
            rngs=rngs,
            **kw,
        )
        self.blocks: VisionBlock = stack_modules(
            lambda rngs: VisionBlock(config, rngs=rngs, **kw), config.depth, rngs
        )
        self.merger = PatchMerger(config, norm_after_shuffle=False, rngs=rngs, **kw)
        self.deepstack_merger_list = nnx.List(
            [
                PatchMerger(config, norm_after_shuffle=True, rngs=rngs, **kw)
                for _ in config.deepstack_visual_indexes
            ]
        )
        self.config = config
        self.remat = remat

    def __call__(
        self,
        inputs: VisionInputs,
        *,
        adapters: bool = True,
        dropout_key: Key[jax.Array, ""] | None = None,
        mesh: Mesh | None = None,
    ) -> VisionOutput:
        """Computes the features of all images; those of padding are finite, and no token refers to them."""
        weight = jnp.asarray(inputs.pos_weight)[..., None]
        # Outside of the scan these weights are gathered once per call; those of blocks one by one.
        patch_embed = _gathered(self.patch_embed, mesh)
        pos_embed = _gathered(self.pos_embed, mesh)
        x = patch_embed(jnp.asarray(inputs.patches))
        # The table is a square of learned positions; each patch interpolates four entries of it bilinearly.
        pos = (pos_embed(jnp.asarray(inputs.pos_index)) * weight).sum(1)
        x = x + pos.astype(x.dtype)
        cos, sin = vision_cos_sin(inputs.hw, self.config)
        # No image crosses a window, so attention costs patches * window instead of patches squared.
        segments = jnp.asarray(inputs.segment_ids).reshape(-1, inputs.window or len(x))
        mask = (segments[:, :, None] == segments[:, None, :]) & (segments > 0)[:, None, :]
        x, taps = self._blocks(x, BlockContext(cos, sin, mask, adapters), dropout_key, mesh)
        deepstack = [
            _gathered(merger, mesh)(tap) for merger, tap in zip(self.deepstack_merger_list, taps, strict=True)
        ]
        return VisionOutput(_gathered(self.merger, mesh)(x), deepstack)

    def _blocks(
        self, x: Patches, context: BlockContext, dropout_key: jax.Array | None, mesh: Mesh | None
    ) -> tuple[Patches, Float[jax.Array, "taps patches hidden"]]:
        """Scans the blocks; returns the last output, and the outputs of the DeepStack blocks."""
        graphdef, state = nnx.split(self.blocks)
        tap_blocks = jnp.asarray(self.config.deepstack_visual_indexes, jnp.int32)
        depth = self.config.depth
        keys = None if dropout_key is None else jax.random.split(dropout_key, depth)

        def apply(state: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
            # Within the rematerialized function, as in the decoder: gathered weights are not saved.
            state = gather_weights(state, mesh)
            return constrain(nnx.merge(graphdef, state)(x, context, key), mesh, ROWS, None)

        apply = remat(apply, self.remat)

        def step(carry: tuple[jax.Array, jax.Array], inputs: Any) -> tuple[tuple[jax.Array, jax.Array], None]:
            x, taps = carry
            state, index, key = inputs
            x = apply(state, x, key)
            # Only the DeepStack outputs are carried; a scan that stacks outputs would keep those of all
            # blocks.
            return (x, jnp.where((tap_blocks == index)[:, None, None], x, taps)), None

        # [taps, patches, hidden]
        taps = jnp.zeros((len(tap_blocks), *x.shape), x.dtype)
        carry, _ = jax.lax.scan(
            step, (x, taps), (state, jnp.arange(depth), keys), unroll=depth if depth <= MAX_UNROLL else 1
        )
        return carry
