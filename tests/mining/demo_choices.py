"""The miner's choices in a pool of the scripted teacher's runs, whose mistakes are known."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from collection.llm.scripted.mistakes import KINDS
from collection.mining.config import MineSettings
from collection.mining.divergence import KEPT, MiningConfig
from collection.mining.failure_modes import rule_label
from collection.mining.pipeline import TaskSettings, mine_pools
from collection.mining.runs import parse_run
from collection.mining.state_score import StateAlignment
from collection.mining.step_scores import action_scores, category_scores, eligible
from configs import mine
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import AuditPair, Trajectory
from rmsweb_jax.settings import from_config
from tests.mining.demo_mistakes import (
    Acts,
    KnownMistake,
    Reading,
    acts_in,
    read_guidance,
    read_run,
    read_settings,
    view_of,
)

Known = Mapping[str, tuple[Trajectory, Reading]]


@dataclasses.dataclass(frozen=True)
class Choice:
    """The miner's choice for a task whose localization run has a known mistake.

    Attributes:
      success, localization: the runs of the chosen pair.
      right_at: the success's first step that does what the teacher without mistakes would have done at the
        mistake; None where no step of it does.
      there: the scores of (`right_at`, the mistake's step) in the same pair of runs; empty without it.
    """

    audit: AuditPair
    mistake: KnownMistake
    success: Trajectory
    localization: Trajectory
    right_at: int | None
    there: dict[str, float]

    @property
    def kept(self) -> bool:
        return self.audit.decision == KEPT

    @property
    def at_mistake(self) -> bool:
        """The localization step is the mistake, or a later one, before which it is still open."""
        at = self.audit.localization_step
        return at is not None and at >= self.mistake.step

    @property
    def at_remedy(self) -> bool:
        """The success step does what would have been right in the state of the mistake."""
        at = self.audit.success_step
        return at is not None and _did(self.success, at) == self.mistake.right

    @property
    def hit(self) -> bool:
        return self.at_mistake and self.at_remedy


@dataclasses.dataclass(frozen=True)
class Measured:
    """A pool, mined.

    Attributes:
      decisions: of all tasks, counted.
      choices: of the tasks whose chosen localization run holds a known mistake.
      recall: by kind of mistake, tasks with a success and a failed run with a known mistake, and those of
        them that were mined right. Tasks whose failed runs differ in kind are under `several`.
      by_policy, by_clean: mined tasks whose localization run is the policy's, or a longer success of the
        teacher without a mistake.
    """

    name: str
    decisions: Counter[str]
    choices: list[Choice]
    recall: dict[str, list[int]]
    by_policy: int
    by_clean: int

    @property
    def mined(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.kept]

    @property
    def share(self) -> float:
        """The share of the mined tasks with a known mistake in which its step was chosen."""
        return sum(choice.hit for choice in self.mined) / max(len(self.mined), 1)


def read_teacher(folder: Path) -> Known:
    """Every run of the scripted teacher and its reading, by trajectory id.

    Raises:
      UserError: there is none, or the folder is no collecting run.
    """
    config, guidance = read_settings(folder), read_guidance(folder)
    runs = [run for run in read_dataset(folder, Trajectory) if run.model == "scripted"]
    if not runs:
        raise UserError(
            f"{folder}: no run of the scripted teacher: collect with --config.actor.kind=scripted"
        )
    return {run.trajectory_id: (run, read_run(run, config, guidance)) for run in runs}


def measure(
    name: str,
    run: Path,
    folders: Iterable[str],
    readings: Known,
) -> Measured:
    """Mines the pools with the demo's settings and compares the choices with the known mistakes."""
    pools = [run / folder for folder in folders]
    config = from_config(MineSettings, mine.get_config("demo").to_dict() | {"pools": "-"})
    settings = TaskSettings(config.select, config.pairs)
    mined = mine_pools(pools, settings, config.balance)
    runs = {one.trajectory_id: one for pool in pools for one in read_dataset(pool, Trajectory)}
    choices, others = [], Counter()
    for audit in mined.audits:
        if not audit.localization_id:
            continue
        known = readings.get(audit.localization_id)
        if known is None or known[1].found is None:
            others["policy" if known is None else "clean"] += audit.decision == KEPT
            continue
        choices.append(_choice(audit, known[1].found, runs, settings.select))
    decisions = Counter(audit.decision for audit in mined.audits)
    recall = recall_of(
        runs.values(), readings, {one.audit.task_id for one in choices if one.kept and one.hit}
    )
    return Measured(name, decisions, choices, recall, others["policy"], others["clean"])


def recall_of(runs: Iterable[Trajectory], readings: Known, right: set[str]) -> dict[str, list[int]]:
    """Tasks by kind of mistake, and those that were mined right; see `Measured.recall`."""
    solved, mistakes = set(), defaultdict(set)
    for run in runs:
        known = readings.get(run.trajectory_id)
        if run.success:
            solved.add(run.task.task_id)
        elif known is not None and known[1].found is not None:
            mistakes[run.task.task_id].add(known[1].found.kind)
    counts: dict[str, list[int]] = {kind: [0, 0] for kind in (*KINDS, "several")}
    for task_id in sorted(solved & mistakes.keys()):
        (kind,) = mistakes[task_id] if len(mistakes[task_id]) == 1 else ("several",)
        counts[kind][0] += 1
        counts[kind][1] += task_id in right
    return counts


def _choice(
    audit: AuditPair, mistake: KnownMistake, runs: dict[str, Trajectory], config: MiningConfig
) -> Choice:
    success, localization = runs[audit.success_id], runs[audit.localization_id]
    right_at = next(
        (step.number for step in success.steps if _did(success, step.number) == mistake.right), None
    )
    there = scores_at(success, localization, right_at, mistake.step, config) if right_at else {}
    return Choice(audit, mistake, success, localization, right_at, there)


def _did(run: Trajectory, number: int) -> Acts:
    step = run.steps[number - 1]
    try:
        return acts_in(view_of(step), step.response)
    except UserError:
        return ()


def scores_at(
    success: Trajectory, localization: Trajectory, ours: int, theirs: int, config: MiningConfig
) -> dict[str, float]:
    """The miner's scores of a pair of steps (1-based), and `eligible`."""
    good, bad = parse_run(success), parse_run(localization)
    states = StateAlignment((good, bad))
    same = states.same_states(good, bad)
    parts = states.scores(good, bad, config.state)
    parts |= category_scores(good, bad, rule_label(good, bad), same, config.category)
    parts |= {"action": action_scores(good, bad, config.action), "eligible": eligible(good, bad)}
    weights = {
        "state": config.state_weight,
        "action": config.action_weight,
        "category": config.category_weight,
    }
    found = {name: float(part[ours - 1, theirs - 1]) for name, part in parts.items()}
    return found | {"total": sum(weight * found[name] for name, weight in weights.items())}
