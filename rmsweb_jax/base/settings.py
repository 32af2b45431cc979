"""Settings of `configs/base.py`, typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Shape of a style's batches.

    Attributes:
      low, high: elements of a generated page.
      length, rows: tokens of a row, rows of a batch.
      repetition: share of rows that repeat random tokens.
    """

    low: int
    high: int
    length: int
    rows: int
    repetition: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase(Sizes):
    """One phase of the curriculum.

    Attributes:
      mix: share of the batches by style.
      accuracy, window: it ends once so much of the last `window` batches' questions was right,
      max_steps: or after so many steps.
      rate: multiplies the learning rates.
    """

    name: str
    mix: Mapping[str, float]
    accuracy: float
    window: int
    max_steps: int
    rate: float


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """The architecture, with the vision tower's sizes prefixed; see `TextConfig` and `VisionConfig`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    mrope_section: tuple[int, int, int]
    rope_theta: float
    max_position_embeddings: int
    vision_hidden_size: int
    vision_intermediate_size: int
    vision_depth: int
    vision_heads: int
    vision_positions: int
    embedding_std: float
    qk_norm: float


@dataclasses.dataclass(frozen=True)
class RecordedSettings:
    """Which MiniWoB++ pages are recorded, and the shape of their batches."""

    seed: int
    held_out_seed: int
    per_page: int
    per_demo_page: int
    held_out_per_page: int
    held_out_per_demo_page: int
    max_actions: int
    max_pixels: int
    length: int
    rows: int


@dataclasses.dataclass(frozen=True)
class ScoreSettings:
    """Held-out batches: their seed, number and shape."""

    seed: int
    batches: int
    length: int
    rows: int


@dataclasses.dataclass(frozen=True)
class BaseConfig:
    """A whole run of `experiments.make_base`."""

    seed: int
    vocab_size: int
    tokenizer_words: int
    model: ModelSettings
    muon_rate: float
    adam_rate: float
    warmup_steps: int
    final_rate: float
    phases: tuple[Phase, ...]
    checkpoint_every: int
    recorded: RecordedSettings
    demo_pages: tuple[str, ...]
    scores: ScoreSettings

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BaseConfig:
        """From a config's `to_dict()`."""
        return cls(
            **{
                **values,
                "model": ModelSettings(**values["model"]),
                "phases": tuple(Phase(**phase) for phase in values["phases"]),
                "recorded": RecordedSettings(**values["recorded"]),
                "scores": ScoreSettings(**values["scores"]),
            }
        )
