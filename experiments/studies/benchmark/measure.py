"""Runs two worker processes in turns and checks that they compute the same."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.benchmark.side import PROGRAMS, Job, Values
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import ChildProcess

OURS = "ours"
_REFERENCE_PACKAGES = ("torch", "transformers", "peft")


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Largest difference between two correct computations in one dtype.

    Attributes:
      log_probs: mean absolute difference, nats; of unrelated random models it is about 1.
      loss, gradient_norm: relative.
    """

    log_probs: float
    loss: float
    gradient_norm: float


# Measured at the 2B model's full depth in bfloat16: 0.011 nats, 8e-5, 1e-3; float32 leaves room for TF32.
TOLERANCES = {"float32": Tolerance(1e-3, 1e-4, 1e-3), "bfloat16": Tolerance(0.05, 2e-3, 2e-2)}


@dataclasses.dataclass(frozen=True)
class Timings:
    """Measurements of one program on one side.

    Attributes:
      first_seconds: the first step, with compilation.
      seconds: of each counted step.
      others: CPU seconds of all other processes during each step.
      peak_bytes: highest memory use; on a CPU of the process during counted steps.
      first, second: results of the first two steps.
    """

    first_seconds: float
    seconds: tuple[float, ...]
    others: tuple[float, ...]
    peak_bytes: int
    first: Values
    second: Values


def check_reference() -> None:
    """Checks that the reference is installed.

    Raises:
      UserError: names the missing packages.
    """
    missing = [name for name in _REFERENCE_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"the reference needs {', '.join(missing)}: pip install {' '.join(missing)}, or measure ours "
            "alone with --config.reference=none"
        )


class SideProcess:
    """A process that runs one side and is idle between requests.

    Args:
      job: its work.
      log: file for its output.
    """

    def __init__(self, job: Job, log: Path):
        self.name, self._log = job.side, log
        program = [sys.executable, "-m", "experiments.studies.benchmark.worker"]
        self._child = ChildProcess(
            job.side,
            [*program, json.dumps(dataclasses.asdict(job))],
            log,
            env=_environment(job),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a request and waits for the reply.

        Raises:
          UserError: the side cannot carry it out, or its process has ended.
        """
        with contextlib.suppress(
            BrokenPipeError
        ):  # The worker has ended; its last reply may give the reason.
            self._child.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            code = self._child.wait()
            reason = "killed, most likely for its memory" if code == -9 else f"exit code {code}"
            raise UserError(f"{self.name}: the worker ended ({reason}); see {self._log}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._child.kill()


def _environment(job: Job) -> dict[str, str]:
    """The same single device on both sides, without preallocated memory."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {
        "JAX_PLATFORMS": job.device,
        "CUDA_VISIBLE_DEVICES": visible if job.device == "cuda" else "",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "OMP_NUM_THREADS": str(job.threads),
        "HF_HUB_OFFLINE": "1",
    }


@contextlib.contextmanager
def workers(jobs: list[Job], folder: Path) -> Iterator[list[SideProcess]]:
    """Worker processes, killed on exit; their logs are in `folder`."""
    with contextlib.ExitStack() as stack:
        started = []
        for job in jobs:
            started.append(SideProcess(job, folder / f"{job.side}.log"))
            stack.callback(started[-1].close)
        yield started


def measure(
    sides: list[SideProcess], tolerance: Tolerance, warmup_steps: int, steps: int
) -> dict[str, dict[str, Timings]]:
    """Program -> side -> timings.

    Raises:
      UserError: the sides compute different things, or one of them fails.
    """
    return {program: _take_turns(sides, program, tolerance, warmup_steps, steps) for program in PROGRAMS}


def _take_turns(
    sides: list[SideProcess], program: str, tolerance: Tolerance, warmup_steps: int, steps: int
) -> dict[str, Timings]:
    for side in sides:
        side.ask("start", program=program)
    answers: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    values: dict[str, list[Values]] = {side.name: [] for side in sides}
    for turn in range(warmup_steps + steps):
        for side in sides:
            if turn == warmup_steps:
                side.ask("reset_peak")
            answer = side.ask("step")
            answers[side.name].append(answer)
            values[side.name].append(Values(**answer["values"]))
        if turn < 2:
            check_agreement(f"{program}, step {turn + 1}", {k: v[turn] for k, v in values.items()}, tolerance)

    def counted(side: SideProcess, key: str) -> tuple[float, ...]:
        return tuple(answer[key] for answer in answers[side.name][warmup_steps:])

    return {
        side.name: Timings(
            first_seconds=answers[side.name][0]["seconds"],
            seconds=counted(side, "seconds"),
            others=counted(side, "others"),
            peak_bytes=side.ask("peak_bytes")["bytes"],
            first=values[side.name][0],
            second=values[side.name][1],
        )
        for side in sides
    }


def check_agreement(where: str, values: dict[str, Values], tolerance: Tolerance) -> None:
    """Checks that all sides computed the same. The second training step also covers gradient and optimizer.

    Raises:
      UserError: names what differs and by how much.
    """
    ours = values[OURS]
    if not np.isfinite([ours.loss, ours.gradient_norm]).all():
        raise UserError(f"{where}: {OURS} has loss {ours.loss}, gradient norm {ours.gradient_norm}")
    for name, other in values.items():
        gaps = {
            "loss": (ours.loss, other.loss, abs(ours.loss - other.loss) / abs(ours.loss), tolerance.loss),
            "gradient norm": (
                ours.gradient_norm,
                other.gradient_norm,
                abs(ours.gradient_norm - other.gradient_norm) / max(ours.gradient_norm, 1e-12),
                tolerance.gradient_norm,
            ),
        }
        for what, (mine, theirs, gap, most) in gaps.items():
            if not gap <= most:  # NaN too.
                raise UserError(
                    f"{where}: {what} is {mine:.6g} on our side and {theirs:.6g} with {name}, apart by "
                    f"{gap:.2g} where {most:.2g} is allowed: no ratio is reported for different computations"
                )
        apart = log_prob_gap(ours, other)
        if not apart <= tolerance.log_probs:
            raise UserError(
                f"{where}: log-probabilities with {name} are {apart:.2g} nats apart on average where "
                f"{tolerance.log_probs:.2g} is allowed: no ratio is reported for different computations"
            )


def log_prob_gap(one: Values, other: Values) -> float:
    """Mean absolute difference of log-probabilities, nats; 0 for a step without them."""
    if not one.log_probs:
        return 0.0
    return float(np.abs(np.subtract(one.log_probs, other.log_probs)).mean())
