"""Results of trainings and their policies, small enough to commit; the page needs no other files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from collection.report.plots import METRICS
from collection.report.sources import RunFolder
from rmsweb_jax.actions.reward import EXACT
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

# Name, instead of a variant, of the policy that all trainings start from.
SFT = "sft"
# The variant that is supervised training: is RL needed at all?
SFT_ON_PROMPTS = "sft_same_prompts"
_CURVES = (*METRICS, "gates/accepted", "reward/mean", "reward/best_of_k", "reward/group_std", "eval/reward")
_DIGITS = 5
R = TypeVar("R", "TrainingRun", "BrowserRun")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HeldOut(_Record):
    """The held-out prompts; all fields are parallel.

    Attributes:
      prompts, tasks: ids of the prompts and of their tasks.
      fates: class of each under the first policy, a key of `prompts.CLASSES`.
      exact: whether the first policy's greedy reply is exactly right.
    """

    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    fates: tuple[str, ...]
    exact: tuple[bool, ...]


class TrainingRun(_Record):
    """A variant trained with one seed.

    Attributes:
      variant: key of `settings.VARIANTS`.
      prompts: number of those trained on.
      exact: "1" for each held-out prompt whose greedy reply is exactly right after training, else "0".
      curves: metric -> its value at each of `steps`; None where it was not measured.
    """

    variant: str
    seed: int
    prompts: int
    optimizer_steps: int
    seconds: float
    exact: str
    steps: tuple[int, ...]
    curves: dict[str, tuple[float | None, ...]]


class BrowserRun(_Record):
    """A policy's runs in the browser.

    Attributes:
      variant: key of `settings.VARIANTS`, or `SFT`.
      seed: of the training; 0 for the SFT policy.
      tasks: task -> success of each run.
      seconds: duration of the evaluation.
    """

    variant: str
    seed: int
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


def read_training(run: RunFolder, variant: str, seed: int, held_out: HeldOut) -> TrainingRun:
    """Reads a finished training: the stage `rl`, and before it `sft` for supervised training.

    Raises:
      UserError: it did not answer all held-out prompts.
    """
    stage = "sft" if variant == SFT_ON_PROMPTS else "rl"
    report, rows = run.report(stage), run.metrics(stage)
    assert report is not None, f"{run.root}: {stage} has not finished"
    replies = [json.loads(line) for line in (run.root / "rl/replies.jsonl").read_bytes().splitlines()]
    last = max(reply["step"] for reply in replies)
    exact = {reply["sample_id"]: reply["reward"] == EXACT for reply in replies if reply["step"] == last}
    if exact.keys() != set(held_out.prompts):
        raise UserError(f"{run.root / 'rl'}: it answered {len(exact)} of {len(held_out.prompts)} prompts")
    curves = {name: tuple(_number(row.get(name)) for row in rows) for name in _CURVES}
    return TrainingRun(
        variant=variant,
        seed=seed,
        prompts=report["samples" if stage == "sft" else "prompts"],
        optimizer_steps=report["steps" if stage == "sft" else "optimizer_steps"],
        seconds=report["seconds"],
        exact="".join("01"[exact[prompt]] for prompt in held_out.prompts),
        steps=tuple(row["step"] for row in rows),
        curves={name: curve for name, curve in curves.items() if any(value is not None for value in curve)},
    )


def read_browser(run: RunFolder, label: str, variant: str, seed: int) -> BrowserRun:
    """Reads a finished evaluation."""
    results, report = run.results(label), run.report(f"evaluate/{label}")
    assert results is not None
    assert report is not None
    return BrowserRun(variant=variant, seed=seed, tasks=results.by_task("success"), seconds=report["seconds"])


def run_path(folder: Path, variant: str, seed: int, type_: type[TrainingRun | BrowserRun]) -> Path:
    name = variant if variant == SFT else f"{variant}-{seed}"
    return folder / (f"{name}.browser.json" if type_ is BrowserRun else f"{name}.json")


def save(path: Path, record: BaseModel) -> None:
    make_folder(path.parent)
    write_atomic(path, record.model_dump_json().encode() + b"\n")


def load_runs(folder: Path, variants: Sequence[str], seeds: Sequence[int], type_: type[R]) -> list[R]:
    """Reads the results there are of the variants and seeds, in the browser also that of the SFT policy.

    Raises:
      UserError: one of them is damaged.
    """
    wanted = [(SFT, 0)] if type_ is BrowserRun else []
    wanted += [(variant, seed) for seed in seeds for variant in variants]
    paths = [run_path(folder, variant, seed, type_) for variant, seed in wanted]
    return [_load(path, type_) for path in paths if path.exists()]


def load_held_out(folder: Path) -> HeldOut:
    """Reads the held-out prompts.

    Raises:
      UserError: the file is damaged.
    """
    return _load(folder / "held_out.json", HeldOut)


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


def _number(value: Any) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, int | float) else None
