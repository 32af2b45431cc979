"""The independent reference: transformers' models in torch, on random tiny configurations."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from rmsweb_jax.qwen.config import DeltaConfig, Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen.inputs import (
    Grid,
    ModelInputs,
    image_rows,
    image_starts,
    mrope_positions,
    tree_tables,
    vision_inputs,
)
from tests.references import torch, transformers

IMAGE_TOKEN = 90
CONTROL = (IMAGE_TOKEN, 91, 92, 93)

# The images of a batch fill eight places of `WINDOW` patches at most.
WINDOW, BUCKET = 64, 512


def random_config(seed: int) -> Qwen3VLConfig:
    """A tiny model; every fourth is deep enough for loops over layers to stay loops."""
    rng = np.random.default_rng(seed)
    deep = seed % 4 == 3
    depth = int(rng.integers(9, 12) if deep else rng.integers(2, 7))
    num_taps = int(rng.integers(1, min(depth, 4) + 1))
    head_dim = int(rng.choice([8, 16, 24, 32]))
    kv_heads, hidden = int(rng.integers(1, 4)), int(rng.choice([40, 48, 64]))
    height, width = (int(size) for size in rng.integers(1, head_dim // 6 + 1, 2))
    vision_heads = int(rng.integers(1, 5))
    text = TextConfig(
        vocab_size=int(rng.integers(97, 140)),
        hidden_size=hidden,
        intermediate_size=int(rng.integers(40, 100)),
        # Every third model is nothing but the layers that DeepStack adds to.
        num_hidden_layers=num_taps + (10 if deep else int(seed % 3 > 0) * int(rng.integers(1, 5))),
        num_attention_heads=kv_heads * int(rng.integers(1, 5)),
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        mrope_section=(head_dim // 2 - height - width, height, width),
        rope_theta=float(rng.choice([1e4, 5e5, 5e6])),
        rms_norm_eps=float(rng.choice([1e-6, 1e-5])),
    )
    vision = VisionConfig(
        depth=depth,
        hidden_size=vision_heads * int(rng.choice([4, 8, 12])),
        intermediate_size=int(rng.integers(20, 60)),
        num_heads=vision_heads,
        out_hidden_size=hidden,
        num_position_embeddings=int(rng.integers(3, 10)) ** 2,
        deepstack_visual_indexes=tuple(sorted(rng.choice(depth, num_taps, replace=False).tolist())),
        patch_size=4,
    )
    return Qwen3VLConfig(
        text,
        vision,
        seed % 2 == 0,
        image_token_id=90,
        video_token_id=91,
        vision_start_token_id=92,
        vision_end_token_id=93,
    )


def random_delta_config(seed: int) -> Qwen3VLConfig:
    """A tiny Qwen3.5; every fourth is deep enough for loops over layers to stay loops."""
    rng = np.random.default_rng((seed, 35))
    base = random_config(seed)
    interval, key_heads = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    head_dim, factor = int(rng.choice([16, 32])), float(rng.choice([0.25, 0.5]))
    half = int(head_dim * factor) // 2
    height = int(rng.integers(0, half // 2 + 1))
    delta = DeltaConfig(
        interval=interval,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=key_heads * int(rng.integers(1, 4)),
        linear_key_head_dim=int(rng.choice([8, 16])),
        linear_value_head_dim=int(rng.choice([8, 12])),
        linear_conv_kernel_dim=int(rng.choice([2, 4])),
    )
    text = dataclasses.replace(
        base.text,
        num_hidden_layers=interval * (3 if seed % 4 == 3 else int(rng.integers(1, 3))),
        head_dim=head_dim,
        partial_rotary_factor=factor,
        mrope_section=(half - 2 * height, height, height),
        delta=delta,
    )
    vision = dataclasses.replace(base.vision, deepstack_visual_indexes=())
    return dataclasses.replace(base, text=text, vision=vision)


def reference_model(config: Qwen3VLConfig, seed: int) -> Any:
    """transformers' model with every parameter random, norms and biases too."""
    torch.manual_seed(seed)
    hf = config.to_hf()
    settings = transformers.AutoConfig.for_model(**hf)
    model = getattr(transformers, hf["architectures"][0])(settings).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("A_log", "dt_bias")):
                value.uniform_(-1, 2)
            elif "norm" in name and name.endswith("weight"):
                # Those of Qwen3.5's decoder are added to 1, but for the one of the recurrence.
                offset = config.text.norm_offset * ("language" in name and "linear_attn" not in name)
                value.uniform_(0.5 - offset, 1.5 - offset)
            else:
                value.normal_(0, 0.3 if "embed" in name or value.ndim == 1 else value[0].numel() ** -0.5)
                # Norms of heads in a row of recurrences enlarge rounding.
                value *= 0.3 if "linear_attn" in name or (config.text.delta and "o_proj" in name) else 1
    return model


@dataclasses.dataclass(frozen=True)
class Segment:
    """Text with images between: tokens [T], and per image its patches and grid."""

    tokens: np.ndarray
    patches: tuple[np.ndarray, ...]
    grids: tuple[Grid, ...]


def random_segment(num_images: int, config: Qwen3VLConfig, rng: np.random.Generator) -> Segment:
    """Images of 1 to 16 tokens, 1 to 4 a side, odd sides included."""
    tokens, grids = rng.integers(1, 80, rng.integers(2, 5)).tolist(), []
    for _ in range(num_images):
        rows, columns = (int(side) for side in rng.integers(1, 5, 2))
        tokens += [
            92,
            *[IMAGE_TOKEN] * (rows * columns),
            93,
            *rng.integers(1, 80, rng.integers(0, 4)).tolist(),
        ]
        grids.append((1, 2 * rows, 2 * columns))
    tokens += rng.integers(1, 80, 6).tolist()
    dim = config.vision.patch_dim
    patches = [rng.standard_normal((h * w, dim)).astype(np.float32) for _, h, w in grids]
    return Segment(np.array(tokens, np.int32), tuple(patches), tuple(grids))


class SegmentPosition(NamedTuple):
    """Position of a segment in a batch."""

    row: int
    columns: slice


def lay_out(
    rows: list[list[tuple[int, Segment]]], length: int, config: Qwen3VLConfig, window: int = 0
) -> tuple[ModelInputs, list[SegmentPosition]]:
    """Rows of (padding before it, segment) as one batch, and the place of each segment."""
    segments = [segment for row in rows for _, segment in row]
    grids = [grid for segment in segments for grid in segment.grids]
    starts = iter(image_starts(grids, window))
    shape = (len(rows), length)
    tokens = np.zeros(shape, np.int32)
    until = np.tile(np.arange(1, length + 1, dtype=np.int32), (len(rows), 1))
    positions, image_index = np.zeros((3, *shape), np.int32), np.full(shape, -1, np.int32)
    places = []
    for number, row in enumerate(rows):
        stop = 0
        for gap, segment in row:
            at, stop = stop + gap, stop + gap + len(segment.tokens)
            assert stop <= length
            own = [next(starts) for _ in segment.grids]
            tokens[number, at:stop], until[number, at:stop] = segment.tokens, stop
            positions[:, number, at:stop] = mrope_positions(segment.tokens, segment.grids, config)
            image_index[number, at:stop] = image_rows(segment.tokens, segment.grids, own, config)
            places.append(SegmentPosition(number, slice(at, stop)))
    patches = [image for segment in segments for image in segment.patches]
    vision = vision_inputs(patches, grids, config, BUCKET, window) if grids else None
    tables = tree_tables(until) if config.text.delta else None
    return ModelInputs(tokens, positions, until, image_index, vision, tables), places


def torch_inputs(segment: Segment) -> dict[str, torch.Tensor]:
    ids = torch.tensor(segment.tokens[None].astype(np.int64))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if segment.grids:
        inputs["pixel_values"] = torch.tensor(np.concatenate(segment.patches))
        inputs["image_grid_thw"] = torch.tensor(segment.grids)
        inputs["mm_token_type_ids"] = (ids == IMAGE_TOKEN).int()
    return inputs


class ReferenceOutputs(NamedTuple):
    """A segment alone in its row.

    Attributes:
      vision: features and DeepStack outputs, [M, D] each; nothing without images.
      layers: [T, D] each.
      logits: [T, V].
    """

    vision: list[np.ndarray]
    layers: list[np.ndarray]
    logits: np.ndarray


def reference_outputs(model: Any, segment: Segment) -> ReferenceOutputs:
    """Runs one segment, recording what the vision tower and each decoder layer return."""
    vision: list[np.ndarray] = []
    layers: list[np.ndarray] = []

    def record_vision(*call: Any) -> None:
        # At once: the model replaces these fields of the output later on.
        deepstack = getattr(call[-1], "deepstack_features", ())
        vision.extend(part.numpy() for part in (call[-1].pooler_output, *deepstack))

    hooks = [model.model.visual.register_forward_hook(record_vision)]
    for layer in model.model.language_model.layers:
        hooks.append(layer.register_forward_hook(lambda *call: layers.append(call[-1][0].numpy())))
    try:
        with torch.no_grad():
            logits = model(**torch_inputs(segment)).logits[0].numpy()
    finally:
        for hook in hooks:
            hook.remove()
    return ReferenceOutputs(vision, layers, logits)
