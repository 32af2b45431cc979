"""A side of the comparison: its job, its interface, and what Linux reports of its memory and of other load.

Imports neither jax nor torch: each worker process loads only its own library.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import time
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")
_LIBC = ctypes.CDLL(None)
PROGRAMS = ("forward", "train")


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one side; only `side` differs between the two.

    Attributes:
      side: "ours" or "transformers".
      model: folder of the weights, in Hugging Face layout.
      samples: file of `run.write_samples`.
      adapters: PEFT folder of the fresh adapters; ours writes it before the reference reads it.
      device: "cpu", "cuda" or "tpu".
      dtype: of weights and computation; adapters and their optimizer are float32.
      remat: "none", "dots" or "full".
      threads: of a CPU.
      response: scored tokens at the end of every sample.
      packed: samples in a row of ours.
    """

    side: str
    model: str
    samples: str
    adapters: str
    device: str
    dtype: str
    remat: str
    threads: int
    response: int
    packed: int
    rank: int
    alpha: float
    learning_rate: float
    weight_decay: float
    clip_norm: float
    seed: int


@dataclasses.dataclass(frozen=True)
class Values:
    """Results of a step, to check that both sides compute the same.

    Attributes:
      loss: mean negative log-likelihood of the scored tokens before the update, nats.
      gradient_norm: of the adapters before clipping; 0 for a forward pass.
      log_probs: of the scored tokens, sample by sample; empty for a training step.
    """

    loss: float
    gradient_norm: float = 0.0
    log_probs: tuple[float, ...] = ()


class Side(Protocol):
    """A model with the two programs that are compared."""

    def describe(self) -> dict[str, str]:
        """Library versions and the device."""
        ...

    def start(self, program: str) -> None:
        """Prepares a program; "forward", without adapters, comes before "train"."""
        ...

    def step(self) -> None:
        """Runs the program once and waits for the device."""
        ...

    def values(self) -> Values:
        """Returns the values computed by the previous step."""
        ...

    def reset_peak(self) -> None:
        """Resets the peak memory, if the device can."""
        ...

    def peak_bytes(self) -> int:
        """Peak memory of the device, or on a CPU of the process."""
        ...


def reset_peak() -> None:
    """Resets the peak memory of this process."""
    # Memory that loading and compiling freed is not part of a step.
    _LIBC.malloc_trim(0)
    (_PROC / "self" / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """Highest resident memory of this process since the last reset."""
    fields = dict(line.split(":", 1) for line in (_PROC / "self" / "status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def others_seconds() -> float:
    """CPU seconds used so far by all other processes; differences measure contention."""
    user, nice, system, _idle, _wait, *interrupts = (
        _PROC.joinpath("stat").read_text().split("\n")[0].split()[1:]
    )
    ticks = sum(map(int, (user, nice, system, *interrupts[:3])))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
