"""Decides by replay whether mined decisions are critical."""

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
from typing import Any

import numpy as np

from collection.evaluation.statistics import rate_interval
from collection.llm.build import make_actor
from collection.llm.calls import CALLS, Calls, CallsAddress, connect, serve
from collection.replay.config import VerifySettings
from collection.replay.elements import move_reply
from collection.replay.trials import RESETTABLE, Outcome, Player, Trial
from collection.replay.verdicts import VERDICTS
from rmsweb_jax.actions import ReplyError, render_reply, repair_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import AuditPair, ReplayRate, ReplayVerdict, Trajectory
from rmsweb_jax.records.sealing import finish_stage
from rmsweb_jax.storage import AnyPath, parse_path
from rmsweb_jax.workdir import run_stage

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
    finish_stage(workdir, json.dumps(report, indent=1).encode())
    return report


def read_decisions(mined: AnyPath, sample: float) -> list[Decision]:
    """Reads the decisions that passed the miner's gates, by task, and the runs that they compare.

    Raises:
      UserError: mining has not run there, kept nothing, or its pools lack a run.
    """
    try:
        pools = json.loads((mined / "report.json").read_bytes())["pools"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{mined}: no report of a mining run: give the workdir of experiments.mine"
        ) from error
    audits = [audit for audit in read_dataset(mined / "audit", AuditPair) if audit.decision in _PASSED]
    if not audits:
        raise UserError(f"{mined}: mining kept no decision: there is nothing to verify")
    wanted = {name for audit in audits for name in (audit.success_id, audit.localization_id)}
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
    return [ReplayVerdict.model_validate_json(record) for record in read_journal(workdir / JOURNAL)]


# --- Trials ---


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
        reply = move_reply(repair_reply(ours.response)[0], ours.observation, theirs.observation)
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
