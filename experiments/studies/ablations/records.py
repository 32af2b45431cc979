"""Results of one trained variant, small enough to commit; the study's page needs no other files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from collection.evaluation.results import Results
from collection.report.dynamics import METRICS
from collection.report.sources import RunFolder
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

# Name, instead of a variant, of the policy that all trainings start from.
SFT = "sft"
_CURVES = (*METRICS, "gates/accepted", "reward/mean", "reward/best_of_k", "reward/group_std", "eval/reward")
_DIGITS = 5


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HeldOut(_Record):
    """Greedy replies to held-out prompts: mean reward, and the share that is exactly right."""

    reward: float
    exact: float


class Training(_Record):
    """Counts and curves of one RL training.

    Attributes:
      corpus: "mined" or "full": runs on other corpora hold out other prompts.
      before, after: None when no prompt is held out.
      curves: metric -> its value at each of `steps`; None where it was not measured.
    """

    corpus: str
    prompts: int
    held_out_prompts: int
    iterations: int
    optimizer_steps: int
    generation_batches: int
    seconds: float
    before: HeldOut | None
    after: HeldOut | None
    steps: tuple[int, ...]
    curves: dict[str, tuple[float | None, ...]]

    def rows(self) -> list[dict[str, Any]]:
        """The curves as metrics, one row per step."""
        return [
            {"step": step, **{name: curve[place] for name, curve in self.curves.items()}}
            for place, step in enumerate(self.steps)
        ]


class AblationRun(_Record):
    """A variant trained with one seed, and its runs in the browser.

    Attributes:
      variant: key of `settings.VARIANTS`, or `SFT`.
      seed: of the training; 0 for the SFT policy.
      training: None for the SFT policy.
      tasks: task -> success of each run.
      seconds: duration of the evaluation.
    """

    variant: str
    seed: int
    training: Training | None
    tasks: dict[str, tuple[bool, ...]]
    seconds: float


class Settings(_Record):
    """Settings and inputs that all trainings of one table share.

    Attributes:
      config: settings that decide the results.
      inputs: name -> SHA-256 of the training data and the initial policy.
      corpus: counts of the demo run that made the inputs.
    """

    config: dict[str, Any]
    inputs: dict[str, str]
    corpus: dict[str, Any]


def read_training(run: RunFolder, corpus: str) -> Training:
    """Reads the finished stage `rl` of `run`.

    Args:
      corpus: setting of that name.
    """
    report = run.report("rl")
    assert report is not None, f"{run.root}: RL has not finished"
    rows = run.metrics("rl")
    curves = {name: tuple(_number(row.get(name)) for row in rows) for name in _CURVES}
    return Training(
        corpus=corpus,
        prompts=report["prompts"],
        held_out_prompts=report["held_out"],
        iterations=report["iterations"],
        optimizer_steps=report["optimizer_steps"],
        generation_batches=sum(row["dynamic_sampling/batches"] for row in rows),
        seconds=report["seconds"],
        before=_held_out(report["first"]),
        after=_held_out(report["final"]),
        steps=tuple(row["step"] for row in rows),
        curves={name: curve for name, curve in curves.items() if any(value is not None for value in curve)},
    )


def make_run(
    variant: str, seed: int, training: Training | None, results: Results, seconds: float
) -> AblationRun:
    """Combines a training with its policy's outcomes in the browser."""
    tasks = {task.task_id: task.successes for task in results.tasks}
    return AblationRun(variant=variant, seed=seed, training=training, tasks=tasks, seconds=seconds)


def run_path(folder: Path, variant: str, seed: int) -> Path:
    return folder / (f"{SFT}.json" if variant == SFT else f"{variant}-{seed}.json")


def save(path: Path, record: AblationRun | Settings) -> None:
    make_folder(path.parent)
    write_atomic(path, record.model_dump_json().encode() + b"\n")


def load_runs(folder: Path, variants: Sequence[str], seeds: Sequence[int]) -> list[AblationRun]:
    """Reads the results there are of the variants and seeds, and of the SFT policy.

    Raises:
      UserError: one of them is damaged.
    """
    wanted = [(SFT, 0), *((variant, seed) for seed in seeds for variant in variants)]
    paths = [run_path(folder, variant, seed) for variant, seed in wanted]
    return [_load(path, AblationRun) for path in paths if path.exists()]


def load_settings(folder: Path) -> Settings | None:
    """Reads the shared settings; None for a folder without results.

    Raises:
      UserError: the file is damaged.
    """
    path = folder / "settings.json"
    return _load(path, Settings) if path.exists() else None


def _load(path: Path, type_: type[Any]) -> Any:
    try:
        return type_.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path}: not a result of an ablation ({error.error_count()} errors): delete it and "
            "run the same command again"
        ) from error


def _held_out(row: dict[str, Any]) -> HeldOut | None:
    if "eval/reward" not in row:
        return None
    return HeldOut(reward=row["eval/reward"], exact=row["eval/exact"])


def _number(value: Any) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, int | float) else None
