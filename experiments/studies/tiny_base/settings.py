"""Settings of the tiny base, with those of what ships."""

from __future__ import annotations

from collections.abc import Mapping

from rmsweb_jax.settings import Settings

DEMO_PAGES = (
    "click-button", "click-checkboxes", "click-collapsible", "click-dialog-2", "click-link", "click-option",
    "click-tab", "click-tab-2-easy", "choose-list", "enter-password", "enter-text", "focus-text-2",
    "login-user", "navigate-tree", "search-engine", "use-autocomplete",
)  # fmt: skip


class Sizes(Settings):
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


class Phase(Sizes):
    """One phase of the curriculum.

    Attributes:
      mix: share of the batches by style: `recalls`, `plain`, `bare`, `state`, `recorded`.
      accuracy, window: it ends once so much of the last `window` batches' questions was right,
      max_steps: or after so many steps.
      rate: multiplies the learning rates.
    """

    name: str
    mix: Mapping[str, float]
    accuracy: float = 0.95
    window: int = 50
    max_steps: int = 4000
    rate: float = 1.0


class ModelSettings(Settings):
    """The architecture, with the vision tower's sizes prefixed; see `TextConfig` and `VisionConfig`.

    Attributes:
      attention_interval: every layer of this number has attention, the others have Qwen3.5's recurrence; 0 is
        a Qwen3-VL.
      linear_key_heads, linear_value_heads, linear_head_dim: of the recurrence.
    """

    hidden_size: int = 192
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 3
    head_dim: int = 32
    mrope_section: tuple[int, int, int] = (6, 5, 5)
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 4096
    vision_hidden_size: int = 64
    vision_intermediate_size: int = 128
    vision_depth: int = 3
    vision_heads: int = 2
    vision_positions: int = 64
    embedding_std: float = 0.5
    # Heads of 32 with unit norms cannot attend sharply enough to begin with.
    qk_norm: float = 1.5
    attention_interval: int = 0
    partial_rotary_factor: float = 1.0
    linear_key_heads: int = 3
    linear_value_heads: int = 6
    linear_head_dim: int = 32


class RecordedSettings(Settings):
    """Recorded MiniWoB++ pages and the shape of their batches.

    Attributes:
      seed, held_out_seed: the first of the recorded seeds.
      per_page, per_demo_page: seeds of every page, and of those that the demo plays.
      length, rows: of a batch; prompts that leave no room for a question are left out.
    """

    seed: int = 100_000
    held_out_seed: int = 150_000
    per_page: int = 2
    per_demo_page: int = 14
    held_out_per_page: int = 1
    held_out_per_demo_page: int = 3
    max_actions: int = 3
    max_pixels: int = 16_384
    length: int = 352
    rows: int = 12


class ScoreSettings(Settings):
    """Held-out batches: their seed, number and shape."""

    seed: int = 900_000
    batches: int = 12
    length: int = 640
    rows: int = 8


class BaseConfig(Settings):
    """A whole run of `experiments.studies.tiny_base.run`.

    Attributes:
      tokenizer_words: of the text that the tokenizer is learned from.
      final_rate: the last phase ends with a linear decay to this share of the rates.
      phases: the curriculum, in order.
      demo_pages: pages that the demo plays.
    """

    seed: int = 0
    vocab_size: int = 2048
    tokenizer_words: int = 60_000
    model: ModelSettings = ModelSettings()
    muon_rate: float = 0.02
    adam_rate: float = 0.005
    warmup_steps: int = 50
    final_rate: float = 0.05
    phases: tuple[Phase, ...] = ()
    checkpoint_every: int = 100
    recorded: RecordedSettings = RecordedSettings()
    demo_pages: tuple[str, ...] = DEMO_PAGES
    scores: ScoreSettings = ScoreSettings()
