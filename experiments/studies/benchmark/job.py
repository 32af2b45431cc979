"""What a worker process is told, and what each side can do; imports neither jax nor torch."""

from __future__ import annotations

import dataclasses
from typing import Protocol

PROGRAMS = ("forward", "train")


@dataclasses.dataclass(frozen=True)
class Job:
    """One side's work, the same on both sides but for `side`.

    Attributes:
      side: "ours" or "transformers".
      model: folder of the weights, in Hugging Face layout.
      rows: file of `experiments.studies.benchmark.rows`.
      adapters: PEFT folder of the fresh adapters; ours writes it before the reference reads it.
      device: "cpu", "cuda" or "tpu".
      dtype: of weights and computation; adapters and their optimizer are float32.
      remat: "none", "dots" or "full".
      threads: of a CPU.
      response: R, scored tokens at the end of every row.
    """

    side: str
    model: str
    rows: str
    adapters: str
    device: str
    dtype: str
    remat: str
    threads: int
    response: int
    rank: int
    alpha: float
    learning_rate: float
    weight_decay: float
    clip_norm: float
    seed: int


@dataclasses.dataclass(frozen=True)
class Values:
    """What a step computed, to tell that both sides compute the same.

    Attributes:
      loss: mean negative log-likelihood of the scored tokens before the update, nats.
      gradient_norm: of the adapters before clipping; 0 for a forward pass.
      log_probs: of the scored tokens, row by row; empty for a training step.
    """

    loss: float
    gradient_norm: float = 0.0
    log_probs: tuple[float, ...] = ()


class Side(Protocol):
    """A model with the two programs that are compared."""

    def describe(self) -> dict[str, str]:
        """Versions, and what it runs on."""
        ...

    def start(self, program: str) -> None:
        """Readies a program; "forward", without adapters, comes before "train"."""
        ...

    def step(self) -> None:
        """Runs the program once, until the device is done."""
        ...

    def values(self) -> Values:
        """Returns the values computed by the previous step."""
        ...

    def reset_peak(self) -> None:
        """Forgets the highest memory use so far, where the device can."""
        ...

    def peak_bytes(self) -> int:
        """Highest memory use: of the device, or on a CPU of the process."""
        ...
