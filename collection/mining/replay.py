"""Decides by replay whether mined decisions are critical.

A failed run is played again up to the decision. Then the success's action is put in and an actor goes on;
likewise with the failed run's own action. Not in RMSWeb.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.agent.recorded import RecordedActor
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import BrowserLostError, PageError
from collection.corpus.elements import name_of, role_of
from collection.environments.miniwob import MiniWobEnvironment
from collection.evaluation.statistics import rate_interval
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from collection.llm.actor import ActorModel
from collection.llm.build import make_actor
from collection.llm.calls import CALLS, Calls, CallsAddress, connect, serve
from collection.mining.config import VerifySettings
from collection.mining.mine import VERDICTS
from rmsweb_jax.actions import Action, Reply, ReplyError, recorded_reply, render_reply
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.bucket import frozen
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import (
    AuditPair,
    Element,
    Observation,
    ReplayRate,
    ReplayVerdict,
    Task,
    Trajectory,
)
from rmsweb_jax.storage import AnyPath, parse_path
from rmsweb_jax.workdir import run_stage

# `differs`: a page is not the recorded one. `lost`: no browser could play the episode.
Outcome = Literal["success", "failure", "differs", "lost"]
# Environments that a seed or a snapshot sets back to the same state.
RESETTABLE = frozenset(("miniwob",))
JOURNAL = "verdicts.journal"
# By how much the rate of success must be higher with the success's action; with one trial it is 0 or 1.
MIN_DIFFERENCE = 0.5
# Most of the actor's steps after the decision: what is left of a task is short.
FURTHER_STEPS = 10
# Decisions that stand on a pair which passed every gate of the miner.
_PASSED = frozenset(("kept", "obstruction_cap", "domain_cap", "sampled_out"))


@dataclasses.dataclass(frozen=True)
class Decision:
    """A mined decision with the runs that it compares."""

    audit: AuditPair
    success: Trajectory
    failed: Trajectory
    sampled: bool = False


def verify_mined(settings: VerifySettings, workdir: str | os.PathLike[str]) -> dict[str, Any]:
    """Verifies the decisions of a mining run. The workdir gets `verdicts/` and, last, `report.json`.

    The same call again resumes: what has been tried is in a journal.

    Returns:
      The report.

    Raises:
      UserError: the mining run is not there or has no decisions, its runs have moved, or no browser starts.
    """
    return run_stage(_verify, settings, workdir)


def _verify(settings: VerifySettings, workdir: Path) -> dict[str, Any]:
    start = time.monotonic()
    decisions = read_decisions(parse_path(settings.mined, "config.mined"), settings.sample)
    known = {verdict.task_id: verdict for verdict in _journalled(workdir)}
    todo = [decision for decision in decisions if decision.audit.task_id not in known]
    progress = Progress(workdir, "verify_mined", total=len(decisions))
    with contextlib.closing(Journal(workdir / JOURNAL)) as journal:
        for verdict in _verdicts(todo, settings, workdir):
            journal.append(verdict.model_dump_json().encode())
            known[verdict.task_id] = verdict
            progress.update(len(known))
    progress.close()
    verdicts = [known[decision.audit.task_id] for decision in decisions]
    write_dataset(workdir / VERDICTS, verdicts, "replay_verdicts", {"mined": settings.mined})
    report = {"stage": "verify_mined", "seconds": round(time.monotonic() - start, 1), **summarize(verdicts)}
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def read_decisions(mined: AnyPath, sample: float) -> list[Decision]:
    """Reads the decisions that passed the miner's gates, by task, and the runs that they compare.

    Raises:
      UserError: mining has not run there, kept nothing, or its pools lack a run.
    """
    try:
        names = json.loads((mined / "report.json").read_bytes())["pools"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{mined}: no report of a mining run: give the workdir of experiments.mine"
        ) from error
    audits = [audit for audit in read_dataset(mined / "audit", AuditPair) if audit.decision in _PASSED]
    if not audits:
        raise UserError(f"{mined}: mining kept no decision: there is nothing to verify")
    wanted = {name for audit in audits for name in (audit.success_id, audit.localization_id)}
    pools = [frozen(parse_path(name, "pools"), mined) for name in names]
    records = itertools.chain.from_iterable(read_dataset(pool, Trajectory) for pool in pools)
    runs = {run.trajectory_id: run for run in records if run.trajectory_id in wanted}
    if missing := wanted - runs.keys():
        raise UserError(f"{mined}: its pools lack run {min(missing)}: mine them again")
    count = round(sample * len(audits))
    # Evenly spread over the tasks, so that the sample has all pages.
    chosen = {round(at * len(audits) / count) for at in range(count)} if count else set()
    return [
        Decision(audit, runs[audit.success_id], runs[audit.localization_id], number in chosen)
        for number, audit in enumerate(audits)
    ]


def _journalled(workdir: Path) -> list[ReplayVerdict]:
    path = workdir / JOURNAL
    try:
        return [ReplayVerdict.model_validate_json(record) for record in read_journal(path)]
    except ValidationError as error:
        raise UserError(f"{path}: written by another version; use another --workdir") from error


# --- Decisions ---


def decide(decision: Decision, player: Player, settings: VerifySettings) -> ReplayVerdict:
    """Tries a decision: with the success's action, and with the failed run's."""
    start, audit = time.monotonic(), decision.audit
    assert audit.success_step is not None and audit.localization_step is not None
    verdict = ReplayVerdict(
        task_id=audit.task_id,
        success_id=audit.success_id,
        localization_id=audit.localization_id,
        success_step=audit.success_step,
        localization_step=audit.localization_step,
        verdict="no_reset",
    )
    if decision.failed.task.environment not in RESETTABLE:
        return verdict
    reply = success_reply(decision)
    if not reply:
        return verdict.model_copy(update={"verdict": "no_element"})
    at = audit.localization_step
    ours = _play(player, Trial(decision.failed, at - 1, reply), settings.trials)
    theirs = _play(player, Trial(decision.failed, at), settings.trials)
    found: dict[str, Any] = {"with_success": _rate(ours), "with_failure": _rate(theirs)}
    found["verdict"] = _compare(ours, theirs)
    if decision.sampled:
        found["last_critical"] = last_critical(decision.failed, player)
    return verdict.model_copy(update=found | {"seconds": round(time.monotonic() - start, 2)})


def _play(player: Player, trial: Trial, times: int) -> list[Outcome]:
    return [player.play(trial) for _ in range(times)]


def success_reply(decision: Decision) -> str:
    """The success's reply for the page of the failed run; empty if an element of it is not there."""
    audit = decision.audit
    assert audit.success_step is not None and audit.localization_step is not None
    ours = decision.success.steps[audit.success_step - 1]
    theirs = decision.failed.steps[audit.localization_step - 1]
    try:
        reply = move_reply(recorded_reply(ours.response)[0], ours.observation, theirs.observation)
    except ReplyError:
        return ""
    return "" if reply is None else render_reply(reply)


def last_critical(run: Trajectory, player: Player) -> int | None:
    """The last step from which the actor still reaches success, tried from late to early; None if none."""
    for kept in reversed(range(len(run.steps))):
        if player.play(Trial(run, kept)) == "success":
            return kept + 1
    return None


def _compare(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> str:
    for unknown in ("differs", "lost"):
        if unknown in (*ours, *theirs):
            return unknown
    rates = [np.mean([outcome == "success" for outcome in some]) for some in (ours, theirs)]
    return "critical" if rates[0] - rates[1] >= MIN_DIFFERENCE else "not_critical"


def _rate(outcomes: Sequence[Outcome]) -> ReplayRate:
    successes, trials = outcomes.count("success"), len(outcomes)
    interval = rate_interval(np.array(outcomes) == "success", np.ones(trials))
    assert interval is not None
    return ReplayRate(
        successes=successes, trials=trials, low=round(interval.low, 4), high=round(interval.high, 4)
    )


# --- Episodes ---


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run to be played again.

    Attributes:
      kept: number of its first steps that are played as recorded.
      reply: text of the reply at the next step; "" leaves that step to the other actor, too.
    """

    run: Trajectory
    kept: int
    reply: str = ""


class Player(contextlib.AbstractContextManager["Player"]):
    """Plays trials in a browser; created and used in one thread.

    Args:
      images: takes the screenshots of the trials.
      then: plays the steps after the recorded ones.
      further_steps: maximum number of these.
      label: value of `Trajectory.actor`.
    """

    def __init__(
        self,
        browser: BrowserConfig,
        prompt: PromptConfig,
        limits: EpisodeLimits,
        images: ImageStore,
        then: ActorModel,
        further_steps: int,
        label: str = "replay",
    ):
        self._pool = BrowserPool(browser, GuardConfig(), RecyclePolicy())
        self._prompt, self._limits, self._images, self._then = prompt, limits, images, then
        self._further_steps, self._label = further_steps, label

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def play(self, trial: Trial) -> Outcome:
        """Plays a trial; a lost browser is replaced once.

        Raises:
          UserError: the actor cannot answer, or no browser starts.
        """
        recorded = [(step.response, step.error) for step in trial.run.steps[: trial.kept]]
        recorded += [(trial.reply, "")] if trial.reply else []
        for _ in range(2):
            try:
                return _judge(trial, self.run(trial.run.task, recorded, trial.run.attempt))
            except (BrowserLostError, PageError):
                self._pool.discard()
        return "lost"

    def run(self, task: Task, recorded: Sequence[tuple[str, str]] = (), attempt: int = 1) -> Trajectory:
        """Plays an episode that begins as `RecordedActor`; raises as `EpisodeRunner.run_episode`."""
        runner = EpisodeRunner(
            environment=MiniWobEnvironment(self._pool.browser(task), self._images),
            actor=RecordedActor(recorded, self._then),
            images=self._images,
            label=self._label,
            prompt=self._prompt,
            limits=self._limits.model_copy(update={"max_steps": len(recorded) + self._further_steps}),
        )
        return runner.run_episode(task, attempt)


def _judge(trial: Trial, played: Trajectory) -> Outcome:
    """The outcome of a trial, once its pages up to the step at which it parts are those of the record."""
    recorded = trial.run.steps[: trial.kept + 1]
    again = played.steps[: len(recorded)]
    pages = [step.observation.fingerprint for step in recorded]
    if [step.observation.fingerprint for step in again] != pages:
        return "differs"
    return "success" if played.success else "failure"


# --- The same action on another page ---


def move_reply(reply: Reply, source: Observation, target: Observation) -> Reply | None:
    """Returns a reply whose actions name the same elements on another page.

    An element is the same if its role, its name and its place among the elements of that role and name are.

    Returns:
      None if an element is not on the other page.
    """
    actions = []
    for action in reply.executable:
        moved = _move(action, source, target)
        if moved is None:
            return None
        actions.append(moved)
    return reply.model_copy(update={"actions": tuple(actions)})


def _move(action: Action, source: Observation, target: Observation) -> Action | None:
    index = getattr(action.params, "index", None)
    if not index:
        return action
    keys = {element.index: key for key, element in _keyed(source).items()}
    element = _keyed(target).get(keys[index]) if index in keys else None
    if element is None:
        return None
    return normalize_action({action.name: action.params.model_dump() | {"index": element.index}})


def _keyed(page: Observation) -> dict[tuple[str, str, int], Element]:
    """The elements that can be acted on, by role, name and place among their like."""
    found: dict[tuple[str, str, int], Element] = {}
    counts: dict[tuple[str, str], int] = {}
    for element in page.elements:
        if element.index is not None:
            key = role_of(element.tag, element.attributes), name_of(element.text, element.attributes)
            place = counts.get(key, 0)
            counts[key] = place + 1
            found[(*key, place)] = element
    return found


# --- Processes ---


def _verdicts(
    decisions: Sequence[Decision], settings: VerifySettings, workdir: Path
) -> Iterator[ReplayVerdict]:
    if not decisions:
        return
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(settings.workers, len(decisions)))
    with (
        Calls(workdir / CALLS) as calls,
        serve(calls) as address,
        ProcessPoolExecutor(
            workers, context, initializer=_begin, initargs=(settings, workdir, address)
        ) as executor,
    ):
        try:
            yield from executor.map(_decide, decisions)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


@dataclasses.dataclass
class _Process:
    settings: VerifySettings
    player: Player


_process: list[_Process] = []


def _begin(settings: VerifySettings, workdir: Path, calls: CallsAddress) -> None:
    exit_with_parent()
    actor = make_actor(settings.actor.resolve(), connect(calls))
    player = Player(
        settings.browser, settings.prompt, settings.limits, ImageStore(workdir), actor, FURTHER_STEPS
    )
    _process.append(_Process(settings, player))
    Finalize(player, player.close, exitpriority=10)


def _decide(decision: Decision) -> ReplayVerdict:
    return decide(decision, _process[0].player, _process[0].settings)


# --- Results ---


def summarize(verdicts: Sequence[ReplayVerdict]) -> dict[str, Any]:
    """Counts for the report; decisions of unknown verdict are in no share."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    decided = counts["critical"] + counts["not_critical"]
    sampled = [one for one in verdicts if one.last_critical is not None]
    return {
        "decisions": len(verdicts),
        "verdicts": dict(sorted(counts.items())),
        "critical_share": round(counts["critical"] / decided, 4) if decided else None,
        "sampled": len(sampled),
        "at_last_critical": sum(one.localization_step == one.last_critical for one in sampled),
        "seconds_a_decision": round(sum(one.seconds for one in verdicts) / max(decided, 1), 2),
    }
