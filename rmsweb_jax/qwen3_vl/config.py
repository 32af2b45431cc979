"""Hyper-parameters of Qwen3-VL: Hugging Face `config.json` in and out, and the released sizes by name."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from rmsweb_jax.errors import UserError

# What this implementation computes: a model with other values would load and compute nonsense. Keys that
# transformers' model does not read change nothing there and are not read here either.
_TEXT = {"hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0}
_ROPE = {"rope_type": "default", "mrope_interleaved": True, "partial_rotary_factor": 1.0}
_VISION = {"hidden_act": "gelu_pytorch_tanh"}
_STRICT = pydantic.ConfigDict(strict=True, allow_inf_nan=False)
# A list in JSON; what is in it stays strict.
_Listed = Field(strict=False)


@dataclass(frozen=True, config=_STRICT)
class VisionConfig:
    """Hyper-parameters of the vision tower.

    Attributes:
      deepstack_visual_indexes: blocks whose outputs are added to the first decoder layers.
    """

    depth: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_heads: PositiveInt
    out_hidden_size: PositiveInt
    num_position_embeddings: PositiveInt
    deepstack_visual_indexes: Annotated[tuple[int, ...], _Listed]
    in_channels: PositiveInt = 3
    patch_size: PositiveInt = 16
    spatial_merge_size: PositiveInt = 2
    temporal_patch_size: PositiveInt = 2
    rope_theta: PositiveFloat = 10_000.0

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


@dataclass(frozen=True, config=_STRICT)
class TextConfig:
    """Hyper-parameters of the decoder.

    Attributes:
      mrope_section: number of rotary frequencies of the time, height and width axes.
    """

    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    mrope_section: Annotated[tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt], _Listed]
    # That of the released models; transformers' class default is another.
    rope_theta: PositiveFloat = 5_000_000.0
    rms_norm_eps: PositiveFloat = 1e-6
    max_position_embeddings: PositiveInt = 262_144

    @property
    def query_dim(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_key_value_heads * self.head_dim


@dataclass(frozen=True, config=_STRICT)
class Qwen3VLConfig:
    """Hyper-parameters of a Qwen3-VL; hashable, so that it can be static under `jax.jit`.

    Raises:
      UserError: values contradict each other.
    """

    text: TextConfig
    vision: VisionConfig
    tie_word_embeddings: bool
    image_token_id: NonNegativeInt = 151_655
    video_token_id: NonNegativeInt = 151_656
    vision_start_token_id: NonNegativeInt = 151_652
    vision_end_token_id: NonNegativeInt = 151_653

    def __post_init__(self) -> None:
        text, vision = self.text, self.vision
        taps, blocks = vision.deepstack_visual_indexes, set(range(vision.depth))
        rules = {
            "mrope_section must sum to head_dim / 2": 2 * sum(text.mrope_section) == text.head_dim,
            "num_attention_heads must be a multiple of num_key_value_heads": text.query_dim % text.kv_dim
            == 0,
            "vision out_hidden_size must be the text hidden_size": vision.out_hidden_size == text.hidden_size,
            # The rotary embedding splits a head into rows and columns, and each into two halves.
            "vision head size must be a multiple of 4": vision.hidden_size % (4 * vision.num_heads) == 0,
            "num_position_embeddings must be a square": vision.grid_side**2 == vision.num_position_embeddings,
            "deepstack_visual_indexes must be fewer than layers": len(taps) <= text.num_hidden_layers,
            "deepstack_visual_indexes must ascend below depth": taps == tuple(sorted({*taps} & blocks)),
        }
        for rule, kept in rules.items():
            if not kept:
                raise UserError(f"config.json: {rule}; correct the file")

    @property
    def num_deepstack(self) -> int:
        return len(self.vision.deepstack_visual_indexes)

    @classmethod
    def from_hf(cls, source: dict[str, Any] | str | Path) -> Qwen3VLConfig:
        """Reads a `config.json` of transformers 4 or 5: its content, or the file at a path.

        Raises:
          UserError: the file is missing or damaged, or its model is not a dense Qwen3-VL as computed here.
        """
        try:
            return cls._from_hf(source if isinstance(source, dict) else json.loads(Path(source).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            what = "this" if isinstance(source, dict) else source
            raise UserError(
                f"{what} is not the config of a Qwen3-VL ({error}); give a model folder"
            ) from error

    @classmethod
    def _from_hf(cls, content: dict[str, Any]) -> Qwen3VLConfig:
        _expect("", content, {"model_type": "qwen3_vl"})
        text, vision = content.get("text_config") or {}, content.get("vision_config") or {}
        # transformers 5 writes `rope_parameters`, transformers 4 `rope_theta` and `rope_scaling`.
        rope = {**text, **(text.get("rope_parameters") or {}), **(text.get("rope_scaling") or {})}
        rotary = vision.get("rope_parameters") or {}
        for name, section in ("", content), ("text_config.", text), ("vision_config.", vision):
            _expect(name, section, {"quantization_config": None, "compression_config": None})
        _expect("text_config.", text, _TEXT)
        _expect("text_config.", {"rope_type": rope.get("type", "default"), **rope}, _ROPE)
        _expect("vision_config.", vision, _VISION)
        # transformers 4 calls RoPE over rows and columns "default".
        if rotary.get("rope_type") != "default":
            _expect("vision_config.", rotary, {"rope_type": "axial"})
        if "rope_theta" not in rope:
            raise UserError("config.json: text_config lacks rope_theta; take a Qwen3-VL dense model")
        tied = {"tie_word_embeddings": text.get("tie_word_embeddings", False)}
        return _make(
            cls,
            "",
            tied | content,
            text=_make(TextConfig, "text_config.", text | rope),
            vision=_make(VisionConfig, "vision_config.", vision | rotary),
        )

    def to_hf(self) -> dict[str, Any]:
        """Makes the content of `config.json` in the form of the released models, for transformers 4 and 5."""
        own = dataclasses.asdict(self)
        text, vision = own.pop("text"), own.pop("vision")
        rope = {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [*text.pop("mrope_section")],
        }
        # Old versions of transformers know no such key, but have its default.
        if (theta := vision.pop("rope_theta")) != VisionConfig.rope_theta:
            vision["rope_parameters"] = {"rope_type": "axial", "rope_theta": theta}
        vision["deepstack_visual_indexes"] = [*vision["deepstack_visual_indexes"]]
        tied = {"tie_word_embeddings": self.tie_word_embeddings}
        return {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            **own,
            "text_config": {
                "model_type": "qwen3_vl_text",
                "hidden_act": "silu",
                "attention_bias": False,
                **text,
                "rope_scaling": rope,
                **tied,
            },
            "vision_config": {"model_type": "qwen3_vl", **_VISION, **vision},
        }


def _expect(name: str, section: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        if (found := section.get(key, value)) != value:
            raise UserError(
                f"config.json: {name}{key} is {shortened(found)}, only {value!r} is supported; take a dense "
                "Qwen3-VL without quantization"
            )


_T = TypeVar("_T")


def _make(type_: type[_T], name: str, section: dict[str, Any], **parts: Any) -> _T:
    """Makes a dataclass from the keys of a section that it has."""
    try:
        return type_(**section | parts)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "missing" and len(first["loc"]) == 1:
            raise UserError(f"config.json: {name}{key} is missing; take a Qwen3-VL dense model") from error
        raise UserError(
            f"config.json: {name}{key} is {shortened(section[key])}: {first['msg'].lower()}; correct the file"
        ) from error


def shortened(value: Any) -> str:
    """Formats a value of a file for a message of one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _size(hidden: int, intermediate: int, layers: int, heads: int, large: bool = False) -> Qwen3VLConfig:
    """Makes the config of a released model; the large ones have another vision tower, and an own head."""
    text = TextConfig(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        mrope_section=(24, 20, 20),
    )
    vision = VisionConfig(
        depth=27 if large else 24,
        hidden_size=1152 if large else 1024,
        intermediate_size=4304 if large else 4096,
        num_heads=16,
        out_hidden_size=hidden,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(8, 16, 24) if large else (5, 11, 17),
    )
    return Qwen3VLConfig(text, vision, tie_word_embeddings=not large)


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
    "2b": _size(2048, 6144, 28, 16),
    "4b": _size(2560, 9728, 36, 32),
    "8b": _size(4096, 12_288, 36, 32, large=True),
    "32b": _size(5120, 25_600, 64, 64, large=True),
}
