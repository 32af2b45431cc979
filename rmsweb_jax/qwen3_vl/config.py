"""Hyper-parameters of Qwen3-VL: Hugging Face `config.json` in and out, and the released sizes by name."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable
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
    "deepstack_visual_indexes",
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
_ROPE_KEYS = (
    "mrope_interleaved",
    "mrope_section",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "type",
)
_KNOWN_TEXT_KEYS = (
    *_TEXT_KEYS,
    "attention_bias",
    "attention_dropout",
    "hidden_act",
    "max_position_embeddings",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "tie_word_embeddings",
)
_TOKEN_KEYS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
# Keys that any transformers config may have, and that do not change what a model computes.
# fmt: off
_NEUTRAL_KEYS = frozenset({
    # What made the file, and how weights were drawn or stored.
    "architectures", "auto_map", "dtype", "initializer_range", "model_type", "name_or_path",
    "tokenizer_class", "torch_dtype", "transformers_version", "use_bfloat16",
    # How transformers runs the model, and what its calls return.
    "attn_implementation", "chunk_size_feed_forward", "output_attentions", "output_hidden_states",
    "output_scores", "return_dict", "return_dict_in_generate", "tie_last_hidden_states", "torchscript",
    "use_cache",
    # Labels of classifiers.
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "task_specific_params",
    # Sampling, and the tokens around a text.
    "bos_token_id", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "encoder_no_repeat_ngram_size", "eos_token_id", "length_penalty", "max_length", "max_new_tokens",
    "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "pad_token_id", "repetition_penalty", "sep_token_id", "temperature", "top_k", "top_p", "typical_p",
    # Read only with use_sliding_window, which is not supported.
    "max_window_layers",
})
# fmt: on
_QUANTIZATION_KEYS = ("quantization_config", "compression_config")


def shortened(value: Any) -> str:
    """Formats a value of a file for a message of one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_empty(value: Any) -> bool:
    """Returns True for null, false and empty values, which switch off any setting.

    A zero is none of these: it may well change what is computed.
    """
    return value is None or value is False or value in ("", [], {})


def _require(found: Any, expected: Any, key: str) -> None:
    # Refused and not ignored: a model with another activation or RoPE would load and compute nonsense.
    if found != expected:
        raise UserError(
            f"config.json: {key} is {shortened(found)}, only {expected!r} is supported; "
            "take a Qwen3-VL dense model"
        )


def _check(valid: bool, key: str, found: Any, rule: str) -> None:
    if not valid:
        raise UserError(f"config.json: {key} is {shortened(found)}, but must be {rule}; correct the file")


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _object(section: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """Returns an object within a section, {} for null or none."""
    value = section.get(key)
    _check(value is None or isinstance(value, dict), name, value, "an object")
    return value or {}


def _pick(section: dict[str, Any], keys: tuple[str, ...], name: str) -> dict[str, Any]:
    missing = [key for key in keys if key not in section]
    if missing:
        raise UserError(f"config.json: {name} lacks {', '.join(missing)}; take a Qwen3-VL dense model")
    for key in keys:
        if key == "rms_norm_eps":
            _check(_is_number(section[key]), f"{name}.{key}", section[key], "a positive number")
        elif key != "deepstack_visual_indexes":
            _check(_is_count(section[key]), f"{name}.{key}", section[key], "a positive whole number")
    return {key: section[key] for key in keys}


def _refuse_unknown(section: dict[str, Any], known: Iterable[str], name: str) -> None:
    """Refuses keys that this version does not know, unless their value switches them off.

    A newer transformers, or another architecture under this name, may compute something else because of them.
    """
    for key, value in section.items():
        if key in _QUANTIZATION_KEYS and not is_empty(value):
            method = value.get("quant_method", "?") if isinstance(value, dict) else value
            raise UserError(
                f"config.json: {name}{key} is set ({shortened(method)}); take weights that are not quantized"
            )
        # transformers itself ignores keys that begin with "_", Unsloth leaves its version.
        ignored = key in _NEUTRAL_KEYS or key.startswith(("_", "unsloth_"))
        if key not in known and not ignored and not is_empty(value):
            raise UserError(
                f"config.json: {name}{key} is {shortened(value)}, which this version does not know and which "
                "may change the computation; take a Qwen3-VL dense model, or delete the key if it does not"
            )


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
        name = "vision_config"
        _require(section.get("hidden_act", "gelu_pytorch_tanh"), "gelu_pytorch_tanh", f"{name}.hidden_act")
        rope = _object(section, "rope_parameters", f"{name}.rope_parameters")
        # New versions of transformers call RoPE over rows and columns "axial", old ones "default".
        if rope.get("rope_type", "default") != "default":
            _require(rope["rope_type"], "axial", f"{name}.rope_parameters.rope_type")
        theta = rope.get("rope_theta", 10_000.0)
        _check(_is_number(theta), f"{name}.rope_parameters.rope_theta", theta, "a positive number")
        _refuse_unknown(rope, ("rope_type", "rope_theta"), f"{name}.rope_parameters.")
        # A full dump of transformers 4 has tie_word_embeddings in every section.
        known = (*_VISION_KEYS, "hidden_act", "rope_parameters", "tie_word_embeddings")
        _refuse_unknown(section, known, f"{name}.")
        # transformers' config also allows height and width.
        patch = section.get("patch_size")
        if isinstance(patch, list) and len(patch) == 2 and patch[0] == patch[1]:
            section = {**section, "patch_size": patch[0]}
        picked = _pick(section, _VISION_KEYS, name)
        taps = picked["deepstack_visual_indexes"]
        valid = isinstance(taps, list | tuple) and all(type(tap) is int for tap in taps)
        _check(valid, f"{name}.deepstack_visual_indexes", taps, "a list of blocks")
        return cls(**{**picked, "deepstack_visual_indexes": tuple(taps)}, rope_theta=float(theta))

    def to_hf(self) -> dict[str, Any]:
        return {
            "model_type": "qwen3_vl",
            "hidden_act": "gelu_pytorch_tanh",
            **{key: getattr(self, key) for key in _VISION_KEYS},
            # A list, as in JSON.
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
        name = "text_config"
        # transformers 5 writes `rope_parameters`, transformers 4 `rope_theta` and `rope_scaling`.
        rope = {
            **_object(section, "rope_parameters", f"{name}.rope_parameters"),
            **_object(section, "rope_scaling", f"{name}.rope_scaling"),
        }
        theta = rope.get("rope_theta", section.get("rope_theta"))
        if theta is None or "mrope_section" not in rope:
            raise UserError("config.json: text_config lacks rope_theta or mrope_section; write both")
        _check(_is_number(theta), f"{name} rope_theta", theta, "a positive number")
        _require(rope.get("rope_type", rope.get("type", "default")), "default", f"{name} rope_type")
        _require(rope.get("mrope_interleaved", True), True, f"{name} mrope_interleaved")
        for part in (rope, section):
            _require(part.get("partial_rotary_factor", 1.0), 1.0, f"{name} partial_rotary_factor")
        sizes = rope["mrope_section"]
        valid = isinstance(sizes, list | tuple) and len(sizes) == 3
        valid = valid and all(type(size) is int and size >= 0 for size in sizes)
        _check(valid, f"{name} mrope_section", sizes, "three whole numbers")
        time, height, width = sizes
        _require(section.get("hidden_act", "silu"), "silu", f"{name}.hidden_act")
        _require(section.get("attention_bias", False), False, f"{name}.attention_bias")
        _require(section.get("attention_dropout", 0.0), 0.0, f"{name}.attention_dropout")
        _refuse_unknown(rope, _ROPE_KEYS, f"{name} RoPE ")
        _refuse_unknown(section, _KNOWN_TEXT_KEYS, f"{name}.")
        longest = section.get("max_position_embeddings", 262_144)
        _check(_is_count(longest), f"{name}.max_position_embeddings", longest, "a positive whole number")
        return cls(
            **_pick(section, _TEXT_KEYS, name),
            mrope_section=(time, height, width),
            rope_theta=float(theta),
            max_position_embeddings=longest,
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
        text, vision = (_object(source, name, name) for name in ("text_config", "vision_config"))
        tied = source.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        _check(type(tied) is bool, "tie_word_embeddings", tied, "true or false")
        # Configs without the token ids have those of the released models.
        tokens = {key: source[key] for key in _TOKEN_KEYS if key in source}
        for key, token in tokens.items():
            _check(type(token) is int and token >= 0, key, token, "a token's number")
        # Some programs copy keys of the decoder, such as its hidden_size, to the top.
        copies = {key for key, value in source.items() if key in text and text[key] == value}
        known = {*_TOKEN_KEYS, *copies, "text_config", "vision_config", "tie_word_embeddings"}
        _refuse_unknown(source, known, "")
        return cls(
            text=TextConfig.from_hf(text),
            vision=VisionConfig.from_hf(vision),
            tie_word_embeddings=tied,
            **tokens,
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
