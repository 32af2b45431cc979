"""A judge's errors, measured on runs whose truth is known, and rates that are corrected for them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.statistics import CONFIDENCE, RESAMPLES, Interval, rate_interval
from rmsweb_jax.errors import UserError

# In the workdir of `experiments.judge`: `JudgeError.report` by the judge's name.
ERRORS = "judge_errors.json"


@dataclasses.dataclass(frozen=True, eq=False)
class JudgeError:
    """How often a judge passes successes and fails failures.

    Attributes:
      judge: its name, or its version.
      counts: [T, 4], a row a task: successes that it passed and that it failed, failures that it passed and
        that it failed.
    """

    judge: str
    counts: np.ndarray

    @classmethod
    def of(cls, judge: str, verdicts: Iterable[tuple[str, bool, bool]]) -> JudgeError:
        """Counts verdicts: the task, whether the run is a success, and whether the judge passed it."""
        by_task = dict[str, np.ndarray]()
        for task, truth, passed in verdicts:
            by_task.setdefault(task, np.zeros(4, int))[2 * (not truth) + (not passed)] += 1
        return cls(
            judge, np.stack([by_task[task] for task in sorted(by_task)]) if by_task else np.zeros((0, 4), int)
        )

    @property
    def sensitivity(self) -> Interval | None:
        """Share of the successes that it passes; None without one."""
        return rate_interval(self.counts[:, 0], self.counts[:, :2].sum(1))

    @property
    def specificity(self) -> Interval | None:
        """Share of the failures that it fails; None without one."""
        return rate_interval(self.counts[:, 3], self.counts[:, 2:].sum(1))

    def rates(self, draws: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Sensitivity and specificity of all tasks, or of each resample of them ([resamples, T] counts)."""
        passed, failed, wrong, right = np.moveaxis(
            self.counts.sum(0) if draws is None else draws @ self.counts, -1, 0
        )
        with np.errstate(invalid="ignore"):
            return passed / (passed + failed), right / (wrong + right)

    def check(self, name: str) -> None:
        """Raises `UserError` if it is not better than chance: a rate cannot be corrected then.

        Args:
          name: of what gives the errors, for the message.
        """
        known = len(self.counts) and all(self.counts[:, part].sum() for part in (slice(0, 2), slice(2, 4)))
        youden = (
            sum(self.rates(_draws(len(self.counts), np.random.default_rng(0)))) - 1 if known else np.zeros(1)
        )
        low = float(np.nanquantile(youden, (1 - CONFIDENCE) / 2))
        if low <= 0:
            raise UserError(
                f"{name}: {self.judge} is not shown to be better than chance: sensitivity + specificity - 1 "
                f"has the lower limit {low:.2f} over {len(self.counts)} tasks; rates cannot be corrected by "
                "it: take another judge, or runs with more successes and failures whose truth is known"
            )

    def report(self) -> dict[str, Any]:
        found = {"sensitivity": self.sensitivity, "specificity": self.specificity}
        shares = {name: one and one.as_dict() for name, one in found.items()}
        return {"judge": self.judge, **shares, "counts": self.counts.tolist()}


def read_error(path: Path, name: str, setting: str) -> JudgeError:
    """Reads the errors of a judge from a file of `experiments.judge`.

    Raises:
      UserError: the file cannot be read, has no such judge, or it is not better than chance.
    """
    try:
        found = json.loads(path.read_bytes())
        errors = {key: JudgeError(one["judge"], np.asarray(one["counts"], int)) for key, one in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{setting}: {path}: not the judge_errors.json of experiments.judge ({error})"
        ) from None
    if name not in errors:
        raise UserError(f"{setting}: {path} has no judge {name!r}: take one of {', '.join(errors) or 'none'}")
    errors[name].check(f"{setting}: {path}")
    return errors[name]


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """What a judge said of a policy's runs: [T] shares of each task's runs, which weigh the same.

    Attributes:
      passed: runs that the judge passed.
      asked: runs that it was asked about; the others are failures without it.
    """

    passed: np.ndarray
    asked: np.ndarray

    def true_share(
        self, error: JudgeError, draws: np.ndarray | None, errors: np.ndarray | None
    ) -> np.ndarray:
        """Share of successes (Rogan and Gladen 1978), or that of each resample of both sets of tasks."""
        passed, asked = (
            one.mean() if draws is None else draws @ one / len(one) for one in (self.passed, self.asked)
        )
        sensitivity, specificity = error.rates(errors)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip((passed - (1 - specificity) * asked) / (sensitivity + specificity - 1), 0, asked)


def corrected_rate(judged: Judged, error: JudgeError, seed: int = 0) -> Interval:
    """The share of successes, with a bootstrap over the tasks and over those of the errors."""
    rng = np.random.default_rng(seed)
    draws, errors = _draws(len(judged.passed), rng), _draws(len(error.counts), rng)
    return _interval(
        judged.true_share(error, None, None), judged.true_share(error, draws, errors), len(judged.passed)
    )


def corrected_difference(
    first: Judged, second: Judged, errors: tuple[JudgeError, JudgeError], seed: int = 0
) -> Interval:
    """The difference of two such shares over the same tasks, which are resampled together.

    Args:
      errors: of both sides; the same object if the judge errs alike on both.
    """
    rng = np.random.default_rng(seed)
    draws = _draws(len(first.passed), rng)
    tasks = [_draws(len(one.counts), rng) for one in errors]
    if errors[0] is errors[1]:
        tasks[1] = tasks[0]
    exact = [one.true_share(error, None, None) for one, error in zip((first, second), errors, strict=True)]
    drawn = [
        one.true_share(error, draws, some)
        for one, error, some in zip((first, second), errors, tasks, strict=True)
    ]
    return _interval(exact[0] - exact[1], drawn[0] - drawn[1], len(first.passed))


def _draws(tasks: int, rng: np.random.Generator) -> np.ndarray:
    """[resamples, T]: how often each task is drawn."""
    return rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES).astype(float)


def _interval(mean: np.ndarray, drawn: np.ndarray, tasks: int) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return Interval(float(mean), float(low), float(high), tasks)
