"""Hyper-parameters of Qwen3-VL: Hugging Face `config.json` in and out, and the released sizes by name."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError

# Keys with the same names here and in Hugging Face configs.
_VISION_KEYS = (
    "depth",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "in_channels",
    "patch_size",
    "spatial_merge_size",
    "temporal_patch_size",
    "out_hidden_size",
    "num_position_embeddings",
)
_TEXT_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
)


def _require(found: Any, expected: Any, key: str) -> None:
    # Refused and not ignored: a model with another activation or RoPE would load and compute nonsense.
    if found != expected:
        raise UserError(
            f"config.json: {key} is {found!r}, only {expected!r} is supported; take a Qwen3-VL dense model"
        )


def _pick(section: dict[str, Any], keys: tuple[str, ...], name: str) -> dict[str, Any]:
    missing = [key for key in keys if key not in section]
    if missing:
        raise UserError(f"config.json: {name} lacks {', '.join(missing)}; take a Qwen3-VL dense model")
    return {key: section[key] for key in keys}


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """Hyper-parameters of the vision tower.

    Attributes:
      deepstack_visual_indexes: blocks whose outputs are added to the first decoder layers.
    """

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    out_hidden_size: int
    num_position_embeddings: int
    deepstack_visual_indexes: tuple[int, ...]
    in_channels: int = 3
    patch_size: int = 16
    spatial_merge_size: int = 2
    temporal_patch_size: int = 2
    rope_theta: float = 10_000.0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def merge_unit(self) -> int:
        """Number of patches that become one token of the decoder."""
        return self.spatial_merge_size**2

    @property
    def patch_dim(self) -> int:
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def grid_side(self) -> int:
        """Side of the square grid of learned position embeddings."""
        return math.isqrt(self.num_position_embeddings)

    @classmethod
    def from_hf(cls, section: dict[str, Any]) -> VisionConfig:
        _require(
            section.get("hidden_act", "gelu_pytorch_tanh"), "gelu_pytorch_tanh", "vision_config.hidden_act"
        )
        rope = section.get("rope_parameters") or {}
        return cls(
            **_pick(section, _VISION_KEYS, "vision_config"),
            deepstack_visual_indexes=tuple(section["deepstack_visual_indexes"]),
            rope_theta=float(rope.get("rope_theta", 10_000.0)),
        )

    def to_hf(self) -> dict[str, Any]:
        return {
            "model_type": "qwen3_vl",
            "hidden_act": "gelu_pytorch_tanh",
            **{key: getattr(self, key) for key in _VISION_KEYS},
            "deepstack_visual_indexes": list(self.deepstack_visual_indexes),
        }


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """Hyper-parameters of the decoder.

    Attributes:
      mrope_section: number of rotary frequencies of the time, height and width axes.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    mrope_section: tuple[int, int, int]
    # That of the released models; transformers' class default is another.
    rope_theta: float = 5_000_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 262_144

    @property
    def query_dim(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @classmethod
    def from_hf(cls, section: dict[str, Any]) -> TextConfig:
        """Reads the section `text_config`."""
        # transformers 5 writes `rope_parameters`, transformers 4 `rope_theta` and `rope_scaling`.
        rope = {**(section.get("rope_parameters") or {}), **(section.get("rope_scaling") or {})}
        theta = rope.get("rope_theta", section.get("rope_theta"))
        if theta is None or "mrope_section" not in rope:
            raise UserError("config.json: text_config lacks rope_theta or mrope_section; write both")
        _require(rope.get("rope_type", rope.get("type", "default")), "default", "text_config rope_type")
        _require(rope.get("mrope_interleaved", True), True, "text_config mrope_interleaved")
        _require(section.get("hidden_act", "silu"), "silu", "text_config.hidden_act")
        _require(section.get("attention_bias", False), False, "text_config.attention_bias")
        time, height, width = (int(size) for size in rope["mrope_section"])
        return cls(
            **_pick(section, _TEXT_KEYS, "text_config"),
            mrope_section=(time, height, width),
            rope_theta=float(theta),
            max_position_embeddings=int(section.get("max_position_embeddings", 262_144)),
        )

    def to_hf(self) -> dict[str, Any]:
        return {
            "model_type": "qwen3_vl_text",
            "hidden_act": "silu",
            "attention_bias": False,
            **{key: getattr(self, key) for key in _TEXT_KEYS},
            "max_position_embeddings": self.max_position_embeddings,
            "rope_theta": self.rope_theta,
            "rope_scaling": {
                "rope_type": "default",
                "mrope_interleaved": True,
                "mrope_section": list(self.mrope_section),
            },
        }


@dataclasses.dataclass(frozen=True)
class Qwen3VLConfig:
    """Hyper-parameters of a Qwen3-VL; hashable, so that it can be static under `jax.jit`.

    Raises:
      UserError: values contradict each other.
    """

    text: TextConfig
    vision: VisionConfig
    tie_word_embeddings: bool
    image_token_id: int = 151_655
    video_token_id: int = 151_656
    vision_start_token_id: int = 151_652
    vision_end_token_id: int = 151_653

    def __post_init__(self) -> None:
        text, vision = self.text, self.vision
        problems = {
            "mrope_section must sum to head_dim / 2": sum(text.mrope_section) * 2 != text.head_dim,
            "num_attention_heads must be a multiple of num_key_value_heads": text.num_attention_heads
            % text.num_key_value_heads,
            "vision out_hidden_size must equal the text hidden_size": vision.out_hidden_size
            != text.hidden_size,
            # The rotary embedding splits a head into rows and columns, and each into two halves.
            "vision head size must be a multiple of 4": vision.head_dim % 4
            or vision.head_dim * vision.num_heads != vision.hidden_size,
            "num_position_embeddings must be a square": vision.grid_side**2 != vision.num_position_embeddings,
            "there must be as many text layers as deepstack_visual_indexes at least": text.num_hidden_layers
            < self.num_deepstack,
            "deepstack_visual_indexes must ascend below depth": list(vision.deepstack_visual_indexes)
            != sorted(set(vision.deepstack_visual_indexes) & set(range(vision.depth))),
        }
        for rule, broken in problems.items():
            if broken:
                raise UserError(f"config.json: {rule}; correct the file")

    @property
    def num_deepstack(self) -> int:
        return len(self.vision.deepstack_visual_indexes)

    @classmethod
    def from_hf(cls, source: dict[str, Any] | str | os.PathLike[str]) -> Qwen3VLConfig:
        """Reads the content of a `config.json`, or the file at a path.

        Raises:
          UserError: the file is missing or not JSON, or is not that of a dense Qwen3-VL.
        """
        if not isinstance(source, dict):
            path = Path(source)
            try:
                source = json.loads(path.read_text())
            except (OSError, json.JSONDecodeError) as error:
                raise UserError(
                    f"cannot read the model config {path}: {error}; give a model folder"
                ) from error
            if not isinstance(source, dict):
                raise UserError(f"{path} is not a JSON object; give a Qwen3-VL config.json")
        _require(source.get("model_type", "qwen3_vl"), "qwen3_vl", "model_type")
        if "text_config" not in source or "vision_config" not in source:
            raise UserError(
                "config.json: text_config or vision_config is missing; take a Qwen3-VL dense model"
            )
        # Configs without the token ids have those of the released models.
        text = source["text_config"]
        tokens = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        return cls(
            text=TextConfig.from_hf(text),
            vision=VisionConfig.from_hf(source["vision_config"]),
            tie_word_embeddings=bool(
                source.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
            ),
            **{key: source[key] for key in tokens if key in source},
        )

    def to_hf(self) -> dict[str, Any]:
        """Makes the content of `config.json` in the form of the released models, for transformers 4 and 5."""
        return {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "image_token_id": self.image_token_id,
            "video_token_id": self.video_token_id,
            "vision_start_token_id": self.vision_start_token_id,
            "vision_end_token_id": self.vision_end_token_id,
            "tie_word_embeddings": self.tie_word_embeddings,
            "text_config": {**self.text.to_hf(), "tie_word_embeddings": self.tie_word_embeddings},
            "vision_config": self.vision.to_hf(),
        }


def _text(hidden: int, intermediate: int, layers: int, heads: int) -> TextConfig:
    return TextConfig(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        mrope_section=(24, 20, 20),
    )


def _small_vision(out: int) -> VisionConfig:
    return VisionConfig(
        depth=24,
        hidden_size=1024,
        intermediate_size=4096,
        num_heads=16,
        out_hidden_size=out,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(5, 11, 17),
    )


def _large_vision(out: int) -> VisionConfig:
    return VisionConfig(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_heads=16,
        out_hidden_size=out,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(8, 16, 24),
    )


_TINY = Qwen3VLConfig(
    text=TextConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mrope_section=(4, 2, 2),
    ),
    vision=VisionConfig(
        depth=4,
        hidden_size=32,
        intermediate_size=64,
        num_heads=2,
        out_hidden_size=64,
        num_position_embeddings=64,
        deepstack_visual_indexes=(0, 2, 3),
    ),
    tie_word_embeddings=True,
    image_token_id=510,
    video_token_id=511,
    vision_start_token_id=508,
    vision_end_token_id=509,
)

SIZES: dict[str, Qwen3VLConfig] = {
    "tiny": _TINY,
    "2b": Qwen3VLConfig(_text(2048, 6144, 28, 16), _small_vision(2048), tie_word_embeddings=True),
    "4b": Qwen3VLConfig(_text(2560, 9728, 36, 32), _small_vision(2560), tie_word_embeddings=True),
    "8b": Qwen3VLConfig(_text(4096, 12_288, 36, 32), _large_vision(4096), tie_word_embeddings=False),
    "32b": Qwen3VLConfig(_text(5120, 25_600, 64, 64), _large_vision(5120), tie_word_embeddings=False),
}
