"""Hyper-parameters of Qwen3-VL and Qwen3.5: Hugging Face `config.json` in and out, and sizes by name."""

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
_ROPE = {"rope_type": "default", "mrope_interleaved": True}
# By `model_type`: Qwen3-VL, and Qwen3.5, whose later releases (3.6, 3.8) have the same one.
_FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_vl": {"partial_rotary_factor": 1.0},
    "qwen3_5": {"attn_output_gate": True, "mamba_ssm_dtype": "float32"},
}
# Kinds of layers.
ATTENTION, DELTA = "full_attention", "linear_attention"
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
class DeltaConfig:
    """Hyper-parameters of Qwen3.5's layers with a recurrence in place of attention.

    Attributes:
      interval: every layer of this number has attention, the others have the recurrence.
      linear_conv_kernel_dim: taps of the convolution.
      mtp_num_hidden_layers: layers for drafts, which are not computed; exports carry their weights.
    """

    interval: PositiveInt
    linear_num_key_heads: PositiveInt
    linear_num_value_heads: PositiveInt
    linear_key_head_dim: PositiveInt
    linear_value_head_dim: PositiveInt
    linear_conv_kernel_dim: PositiveInt
    mtp_num_hidden_layers: NonNegativeInt = 0

    @property
    def key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def channels(self) -> int:
        """Number of channels that are convolved: queries, keys and values."""
        return 2 * self.key_dim + self.value_dim


@dataclass(frozen=True, config=_STRICT)
class TextConfig:
    """Hyper-parameters of the decoder.

    Attributes:
      mrope_section: number of rotary frequencies of the time, height and width axes.
      partial_rotary_factor: share of a head, from its beginning, that is rotated.
      delta: of Qwen3.5; None in Qwen3-VL. Qwen3.5 also gates the output of attention, and its norms scale by
        1 + weight.
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
    partial_rotary_factor: PositiveFloat = 1.0
    delta: DeltaConfig | None = None

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Kinds of the layers that repeat: one in Qwen3-VL; in Qwen3.5 recurrences, and attention last."""
        return (*[DELTA] * (self.delta.interval - 1 if self.delta else 0), ATTENTION)

    @property
    def num_attention_layers(self) -> int:
        return self.num_hidden_layers // len(self.layer_types)

    @property
    def norm_offset(self) -> float:
        """Added to the weights of norms."""
        return 1.0 if self.delta else 0.0

    @property
    def query_dim(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_key_value_heads * self.head_dim


@dataclass(frozen=True, config=_STRICT)
class Qwen3VLConfig:
    """Hyper-parameters of a Qwen3-VL or Qwen3.5; hashable, so that it can be static under `jax.jit`.

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
        delta, layers = text.delta, text.num_hidden_layers - len(taps)
        rules = {
            "mrope_section must sum to half of what is rotated": 2 * sum(text.mrope_section)
            == text.rotary_dim,
            "num_hidden_layers must be a multiple of the interval of attention": layers
            % len(text.layer_types)
            == 0,
            "linear_num_value_heads must be a multiple of linear_num_key_heads": delta is None
            or delta.linear_num_value_heads % delta.linear_num_key_heads == 0,
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
          UserError: the file is missing or damaged, or it is of another model than the dense ones.
        """
        try:
            return cls._from_hf(source if isinstance(source, dict) else json.loads(Path(source).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            what = "this" if isinstance(source, dict) else source
            raise UserError(
                f"{what} is not the config of a Qwen3-VL or Qwen3.5 ({error}); give a model folder"
            ) from error

    @classmethod
    def _from_hf(cls, content: dict[str, Any]) -> Qwen3VLConfig:
        family = content.get("model_type")
        if family not in _FAMILIES:
            known = " and ".join(map(repr, _FAMILIES))
            raise UserError(
                f"config.json: model_type is {shortened(family)}, only {known} are supported; take a dense "
                "Qwen3-VL or Qwen3.5"
            )
        text, vision = content.get("text_config") or {}, content.get("vision_config") or {}
        # transformers 5 writes `rope_parameters`, transformers 4 `rope_theta` and `rope_scaling`.
        rope = {**text, **(text.get("rope_parameters") or {}), **(text.get("rope_scaling") or {})}
        rotary = vision.get("rope_parameters") or {}
        for name, section in ("", content), ("text_config.", text), ("vision_config.", vision):
            _expect(name, section, {"quantization_config": None, "compression_config": None})
        _expect("text_config.", text, _TEXT)
        found = {"rope_type": rope.get("type", "default"), **rope}
        _expect("text_config.", found, {**_ROPE, **_FAMILIES[family]})
        _expect("vision_config.", vision, _VISION)
        # transformers 4 calls RoPE over rows and columns "default".
        if rotary.get("rope_type") != "default":
            _expect("vision_config.", rotary, {"rope_type": "axial"})
        if "rope_theta" not in rope:
            raise UserError("config.json: text_config lacks rope_theta; take a Qwen3-VL dense model")
        tied = {"tie_word_embeddings": text.get("tie_word_embeddings", False)}
        delta = {"delta": None}
        if family == "qwen3_5":
            rope, vision = {"partial_rotary_factor": 0.25, **rope}, {**vision, "deepstack_visual_indexes": []}
            delta = {"delta": _make(DeltaConfig, "text_config.", text, interval=_interval(text))}
        return _make(
            cls,
            "",
            tied | content,
            text=_make(TextConfig, "text_config.", text | rope, **delta),
            vision=_make(VisionConfig, "vision_config.", vision | rotary),
        )

    def to_hf(self) -> dict[str, Any]:
        """Makes the content of `config.json` in the form of the released models, for transformers 4 and 5."""
        own = dataclasses.asdict(self)
        text, vision = own.pop("text"), own.pop("vision")
        delta, factor = text.pop("delta"), text.pop("partial_rotary_factor")
        rope = {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [*text.pop("mrope_section")],
        }
        # Old versions of transformers know no such key, but have its default.
        if (theta := vision.pop("rope_theta")) != VisionConfig.rope_theta:
            vision["rope_parameters"] = {"rope_type": "axial", "rope_theta": theta}
        vision["deepstack_visual_indexes"] = [*vision["deepstack_visual_indexes"]]
        family, name = "qwen3_vl", "Qwen3VLForConditionalGeneration"
        if delta:
            family, name = "qwen3_5", "Qwen3_5ForConditionalGeneration"
            del vision["deepstack_visual_indexes"]
            interval = delta.pop("interval")
            kinds = [*self.text.layer_types] * (self.text.num_hidden_layers // interval)
            text |= {**_FAMILIES[family], **delta, "layer_types": kinds, "full_attention_interval": interval}
            rope |= {"rope_theta": text.pop("rope_theta"), "partial_rotary_factor": factor}
        return {
            "architectures": [name],
            "model_type": family,
            **own,
            "text_config": {
                "model_type": f"{family}_text",
                "hidden_act": "silu",
                "attention_bias": False,
                **text,
                "rope_parameters" if delta else "rope_scaling": rope,
                "tie_word_embeddings": self.tie_word_embeddings,
            },
            "vision_config": {"model_type": family, **_VISION, **vision},
        }


def _interval(text: dict[str, Any]) -> int:
    """Reads the interval of attention from the kinds of the layers, which have to repeat."""
    kinds = text.get("layer_types")
    interval = text.get("full_attention_interval", 4)
    if kinds is None:
        return interval
    interval = kinds.index(ATTENTION) + 1 if ATTENTION in kinds else 0
    expected = [
        ATTENTION if interval and number % interval == 0 else DELTA for number in range(1, 1 + len(kinds))
    ]
    if not interval or kinds != expected or len(kinds) != text.get("num_hidden_layers", len(kinds)):
        raise UserError(
            f"config.json: text_config.layer_types is {shortened(kinds)}: only recurrences with one layer of "
            "attention after each so many are supported; take a dense Qwen3.5"
        )
    return interval


def _expect(name: str, section: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        if (found := section.get(key, value)) != value:
            raise UserError(
                f"config.json: {name}{key} is {shortened(found)}, only {value!r} is supported; take a dense "
                "Qwen3-VL or Qwen3.5 without quantization"
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


def _delta_size(
    hidden: int, intermediate: int, layers: int, heads: int, value_heads: int, large: bool = True
) -> Qwen3VLConfig:
    """Makes the config of a released Qwen3.5; the large ones have another vision tower, and an own head."""
    delta = DeltaConfig(
        interval=4,
        linear_num_key_heads=16,
        linear_num_value_heads=value_heads,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        mtp_num_hidden_layers=1,
    )
    text = TextConfig(
        vocab_size=248_320,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=4,
        head_dim=256,
        mrope_section=(11, 11, 10),
        rope_theta=10_000_000.0,
        partial_rotary_factor=0.25,
        delta=delta,
    )
    like = _size(hidden, 1, 4, heads, large).vision
    vision = dataclasses.replace(like, deepstack_visual_indexes=())
    ids = {
        "image_token_id": 248_056,
        "video_token_id": 248_057,
        "vision_start_token_id": 248_053,
        "vision_end_token_id": 248_054,
    }
    return Qwen3VLConfig(text, vision, tie_word_embeddings=not large, **ids)


_TINY_DELTA = dataclasses.replace(
    _TINY,
    text=dataclasses.replace(
        _TINY.text,
        num_hidden_layers=8,
        head_dim=32,
        partial_rotary_factor=0.25,
        mrope_section=(2, 1, 1),
        delta=DeltaConfig(
            interval=4,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            linear_conv_kernel_dim=4,
        ),
    ),
    vision=dataclasses.replace(_TINY.vision, deepstack_visual_indexes=()),
)

SIZES: dict[str, Qwen3VLConfig] = {
    "tiny_qwen35": _TINY_DELTA,
    "qwen35_4b": _delta_size(2560, 9216, 32, 16, 32, large=False),
    "qwen35_9b": _delta_size(4096, 12_288, 32, 16, 32),
    "qwen35_27b": _delta_size(5120, 17_408, 64, 24, 48),
    "tiny": _TINY,
    "2b": _size(2048, 6144, 28, 16),
    "4b": _size(2560, 9728, 36, 32),
    "8b": _size(4096, 12_288, 36, 32, large=True),
    "32b": _size(5120, 25_600, 64, 64, large=True),
}
