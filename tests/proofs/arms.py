"""Trainings of several arms and seeds, whose policies are played in the browser; what each gave is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collection.evaluation.results import load_results
from experiments.stages import Chain, Stage, run_stages
from rmsweb_jax.records.files import write_atomic
from tests.proofs.bootstrap import crossed_bootstrap
from tests.proofs.page import DEMO, RESULTS, demo_run

START = "start"


@dataclasses.dataclass(frozen=True)
class Study:
    """A proof's runs below `runs/proofs/NAME`, of which `docs/results/NAME` has what each gave."""

    name: str

    @property
    def root(self) -> Path:
        return Path("runs/proofs") / self.name

    @property
    def kept(self) -> Path:
        return RESULTS / self.name

    def stage(self, name: str, script: str, config: str, **settings: Any) -> Stage:
        given = tuple(f"--config.{key}={value}" for key, value in settings.items())
        module = script if "." in script else f"experiments.{script}"
        return Stage(name, self.root / name, module, (f"--config=configs/{config}", *given))

    def evaluation(self, label: str, model: Path, **settings: Any) -> Stage:
        given = {"label": label, "model": model, **settings}
        return self.stage(f"evaluate/{label}", "evaluate", "evaluate.py:demo", **given)

    def play(
        self,
        chains: Sequence[Chain],
        work: Callable[[Path], Mapping[str, Any]] = lambda _: {},
        *,
        steps: bool = False,
    ) -> None:
        """Runs what is not kept yet.

        Args:
          chains: a policy each, whose evaluation has its name.
          work: what is kept of a training, by its folder.
          steps: keep the steps of solved tasks, too.
        """
        chains = [chain for chain in chains if not (self.kept / f"{chain.name}.json").exists()]
        if chains:
            demo_run()
        for chain in chains:
            for end in run_stages([chain], DEMO / ".jax_cache"):
                if end.error:
                    raise SystemExit(f"error: {end.error}")
                if end.seconds is not None:
                    print(f"{end.stage.name}: {end.seconds:.0f} s", flush=True)
            found = load_results(self.root / "evaluate" / chain.name)
            won = found.by_task("success")
            kept: dict[str, Any] = {"solved": {task: float(np.mean(some)) for task, some in won.items()}}
            if steps:
                kept["steps"] = {
                    task: float(np.mean(np.asarray(some)[list(won[task])]))
                    for task, some in found.by_task("steps").items()
                    if any(won[task])
                }
            folder = self.root / chain.name
            self.keep(chain.name, {**kept, **(work(folder) if folder.exists() else {})})

    def keep(self, name: str, found: Mapping[str, Any]) -> None:
        self.kept.mkdir(exist_ok=True)
        write_atomic(self.kept / f"{name}.json", json.dumps(found, indent=1).encode())

    def has(self, name: str) -> bool:
        return (self.kept / f"{name}.json").exists()

    def read(self, name: str) -> dict[str, Any]:
        return json.loads((self.kept / f"{name}.json").read_bytes())

    def seeds(self, arm: str, planned: Iterable[int]) -> dict[int, dict[str, Any]]:
        """What is kept of an arm, by seed."""
        names = {seed: name_of(arm, seed) for seed in planned}
        return {seed: self.read(name) for seed, name in names.items() if self.has(name)}


def name_of(arm: str, seed: int) -> str:
    return f"{arm.replace(',', '').replace(' ', '_')}-{seed}"


def page_of(task: str) -> str:
    return task.split("/")[1]


def values(runs: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> np.ndarray:
    """[trainings, tasks]: shares of the runs that were solved."""
    return np.asarray([[run["solved"][task] for task in tasks] for run in runs], float)


def interval(apart: Any, tasks: Sequence[str] = ()) -> dict[str, float]:
    """Mean of [trainings, tasks] in percent or points, with an interval that resamples both.

    Args:
      tasks: if given, whole pages are resampled.
    """
    apart = np.atleast_2d(np.asarray(apart, float))
    if tasks:
        pages = np.asarray([page_of(task) for task in tasks])
        apart = np.stack([apart[:, pages == page].mean(1) for page in sorted(set(pages))], 1)
    found = crossed_bootstrap(100 * apart)
    assert found is not None
    return {"mean": found.mean, "low": found.low, "high": found.high}


def points(one: Mapping[str, float]) -> str:
    return f"{one['mean']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f})"


def percent(one: Mapping[str, float]) -> str:
    return f"{one['mean']:.1f} ({one['low']:.1f} to {one['high']:.1f})"
