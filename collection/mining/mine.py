"""Mining: from pools of runs to one decision for each task, and to the RL corpus and its audit on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.corpus.filter import holder, image_fault
from collection.corpus.guidance import TaskGuidance, read_guidance
from collection.llm.build import make_model
from collection.llm.calls import CALLS, Calls
from collection.mining.audit import explain, to_audit, to_prompt, without_pair
from collection.mining.balance import REASONS, BalanceConfig, choose
from collection.mining.config import MineSettings
from collection.mining.label import REVIEW_BELOW, FailureLabeler, map_threads
from collection.mining.pool import (
    Map,
    RunLocation,
    ShardSource,
    check_messages,
    find_sources,
    open_pool,
    read_runs,
)
from collection.mining.runs import ParsedRun, by_task, run_pairs
from collection.mining.score import GATES, KEPT, TERMS, Divergence, MiningConfig, Readable, find_divergences
from collection.mining.taxonomy import PAPER_SHARES, FailureLabel, rule_label
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.bucket import address, freeze, frozen
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import is_temporary, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, ReplayVerdict, RlPrompt, Trajectory
from rmsweb_jax.settings import from_config, to_config_dict
from rmsweb_jax.storage import AnyPath, parse_path
from rmsweb_jax.workdir import run_stage

# Labels one pair of runs.
Labels = Callable[[ParsedRun, ParsedRun], FailureLabel]
# Replay verdicts by the failed run's id and the number of its step.
Verdicts = Mapping[tuple[str, int], Sequence[ReplayVerdict]]

DECISIONS = ("no_success", "no_contrast", *GATES, *REASONS, KEPT)
# The data set of replay verdicts in a workdir of `experiments.verify_mined`.
VERDICTS = "verdicts"
# Tasks per message to a process: small enough for an even load, large enough to hide the message's cost.
_BATCH = 8
# Smaller pools are mined faster than processes start.
_SMALL_BYTES = 32 * 2**20


@dataclasses.dataclass(frozen=True)
class MinedPair:
    """A pair of runs whose divergence passed every gate: the prompt, its audit, and what was compared.

    Attributes:
      kind, actor: of the pair and of its localization run.
    """

    audit: AuditPair
    prompt: RlPrompt
    kind: str
    actor: str


@dataclasses.dataclass(frozen=True)
class MinedTask:
    """The result for one task, before the corpus is balanced.

    Attributes:
      audit: of the best pair, kept or dropped.
      choices: the best pair of each category and site that passed every gate, best first.
      pairs: number of pairs that were tried.
    """

    audit: AuditPair
    choices: tuple[MinedPair, ...] = ()
    pairs: int = 0


@dataclasses.dataclass(frozen=True)
class MiningResult:
    """The result for all tasks.

    Attributes:
      prompts: the RL corpus.
      audits: one record for each task, kept or dropped.
      pair_kinds, localization_actors: counts over the kept prompts.
      pairs: number of pairs of runs that were tried.
    """

    prompts: list[RlPrompt]
    audits: list[AuditPair]
    pair_kinds: dict[str, int]
    localization_actors: dict[str, int]
    pairs: int


def mine(
    settings: MineSettings | ConfigDict | Mapping[str, Any], workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Finds the decisions that failed runs got wrong and successful runs got right.

    The workdir gets `prompts/` (for RL), `audit/` (one record per task, with both sides) and, last,
    `report.json`. If a model labels the failures, `calls.jsonl` has cost and answers, so that a second call
    repeats no question.

    Args:
      settings: such as `configs.mine.get_config("demo")`, with `pools`.

    Returns:
      The report.

    Raises:
      UserError: a pool cannot be read, nothing could be mined, or the workdir has other settings.
    """
    return run_stage(_mine, from_config(MineSettings, settings), workdir)


def _mine(settings: MineSettings, workdir: Path) -> dict[str, Any]:
    for left in filter(is_temporary, workdir.iterdir()):
        left.unlink()  # Left over from a killed run.
    start = time.monotonic()
    pools = [freeze(pool, workdir) for pool in pool_folders(settings.pools)]
    verdicts = read_verdicts(parse_path(settings.replay, "config.replay")) if settings.replay else {}
    progress = Progress(workdir, "mine", 1)
    mined = _mine_pools(pools, settings, verdicts, workdir, progress)
    summary = summarize(mined)
    _write(mined, pools, workdir, to_config_dict(settings).to_dict())
    if not mined.prompts:
        dropped = ", ".join(
            f"{name} {summary['decisions'][name]}" for name in DECISIONS if summary["decisions"][name]
        )
        raise UserError(
            f"{settings.pools}: no prompt could be mined ({dropped}): add runs that fail where others "
            "succeed; --explain=TASK_ID says why a task has none"
        )
    progress.close()
    report = {
        "stage": "mine",
        "seconds": time.monotonic() - start,
        "pools": [address(pool) for pool in pools],
    }
    report |= summary
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def mine_runs(
    trajectories: Iterable[Trajectory], select: MiningConfig, balancing: BalanceConfig
) -> MiningResult:
    """Mines one divergence for each task and balances the corpus, in memory and with the cues' labels."""
    return _balanced([mine_task(runs, select) for runs in by_task(trajectories).values()], balancing)


def _mine_pools(
    folders: Sequence[AnyPath], settings: MineSettings, verdicts: Verdicts, workdir: Path, progress: Progress
) -> MiningResult:
    """Mines data sets on disk: in processes, or, where a model names the failures, in threads.

    Threads, because they wait for the model; comparing runs takes milliseconds.

    Raises:
      UserError: a folder has no finished data set of trajectories, or a file has changed.
    """
    sources, select = find_sources(folders), MiningConfig(terms=TERMS[settings.terms])
    small = sum(source.shard.bytes for source in sources) < _SMALL_BYTES
    results: list[MinedTask] = []
    with _processes(1 if small else settings.workers or os.cpu_count() or 1) as map_:
        pool = open_pool(sources, map_)
        guidance = read_guidance(folders)
        tasks = [(locations, guidance.get(task_id, ())) for task_id, locations in pool.tasks.items()]
        mine_batch = functools.partial(_mine_batch, sources, select, verdicts)
        if settings.actor.kind == "none":
            batches = [tasks[first : first + _BATCH] for first in range(0, len(tasks), _BATCH)]
            for found in map_(mine_batch, batches):
                results += found
                progress.update(len(results), total=len(tasks))
    if settings.actor.kind != "none":
        with Calls(workdir / CALLS) as calls:
            labeler = FailureLabeler(make_model(settings.actor.resolve(), calls))
            mine_labelled = functools.partial(mine_batch, labels=labeler.label)
            update = functools.partial(progress.update, total=len(tasks))
            found = map_threads(mine_labelled, ([task] for task in tasks), settings.threads, update)
            results = [result for some in found for result in some]
    return _balanced(results, BalanceConfig(max_prompts=settings.max_prompts))


@contextlib.contextmanager
def _processes(workers: int) -> Iterator[Map]:
    """A `map` over processes; the built-in one for a single worker."""
    if workers <= 1:
        yield map
        return
    # Forking a process that has read shards would copy their threads' locks. An executor's processes would
    # outlive a killed parent.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=exit_with_parent) as executor:
        try:
            yield executor.map
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _mine_batch(
    sources: Sequence[ShardSource],
    select: MiningConfig,
    verdicts: Verdicts,
    batch: Sequence[tuple[Sequence[RunLocation], TaskGuidance]],
    labels: Labels = rule_label,
) -> list[MinedTask]:
    """Mines tasks, each given by the locations of its runs and its guidance."""
    stores = [ImageStore(folder) for folder in dict.fromkeys(source.folder for source in sources)]
    readable = functools.cache(lambda name: not image_fault(holder(stores, name), name))
    results = []
    for locations, guidance in batch:
        try:
            runs = list(read_runs(sources, locations, guidance))
            results.append(mine_task(runs, select, verdicts, labels, readable))
        except ValueError:
            # Prompts are parsed lazily, and that error does not name its file: parse all of them to find it.
            check_messages(sources, locations)
            raise
    return results


def mine_task(
    runs: Sequence[ParsedRun],
    select: MiningConfig,
    verdicts: Verdicts | None = None,
    labels: Labels = rule_label,
    readable: Readable = lambda _: True,
) -> MinedTask:
    """Finds the last critical divergences among the runs of a task, or the reason why there is none.

    Args:
      verdicts: replays of decisions; one that is not critical is not kept.
      readable: whether the screenshot of a name can be read.
    """
    pairs = run_pairs(runs)
    if not pairs:
        return MinedTask(without_pair(runs))
    labelled = [labels(pair.success, pair.localization) for pair in pairs]
    tried = [_replayed(one, verdicts or {}) for one in find_divergences(pairs, labelled, select, readable)]
    ranked = sorted(tried, key=lambda divergence: divergence.rank, reverse=True)
    choices: dict[tuple[str, str], MinedPair] = {}
    for divergence in ranked:
        if divergence.decision == KEPT:
            audit, pair = to_audit(divergence, tried), divergence.pair
            choice = MinedPair(audit, to_prompt(divergence), pair.kind, pair.localization.record.actor)
            choices.setdefault((audit.category, audit.site), choice)
    return MinedTask(to_audit(ranked[0], tried), tuple(choices.values()), len(tried))


def _balanced(results: Sequence[MinedTask], balancing: BalanceConfig) -> MiningResult:
    passed = [result.choices for result in results if result.choices]
    decided = choose([[choice.audit for choice in choices] for choices in passed], balancing)
    kept: list[MinedPair] = []
    audits = {result.audit.task_id: result.audit for result in results}
    for choices, (at, decision) in zip(passed, decided, strict=True):
        audit = choices[at].audit
        audits[audit.task_id] = audit.model_copy(update={"decision": decision})
        kept += [choices[at]] * (decision == KEPT)
    return MiningResult(
        [pair.prompt for pair in kept],
        list(audits.values()),
        dict(sorted(Counter(result.kind for result in kept).items())),
        dict(sorted(Counter(result.actor for result in kept).items())),
        sum(result.pairs for result in results),
    )


# --- Verdicts by replay ---


def read_verdicts(folder: AnyPath) -> Verdicts:
    """Reads the verdicts in a workdir of `experiments.verify_mined`.

    Raises:
      UserError: there are none.
    """
    found: dict[tuple[str, int], list[ReplayVerdict]] = {}
    for verdict in read_dataset(folder / VERDICTS, ReplayVerdict):
        found.setdefault((verdict.localization_id, verdict.localization_step), []).append(verdict)
    return found


def verdict_on(verdicts: Verdicts, success: tuple[str, int], failed: tuple[str, int]) -> ReplayVerdict | None:
    """Returns what is known about a decision, given by the run and the step of each side.

    That is the verdict on just this decision; or one on another success, if there the failed run's own action
    led to success: then it was no mistake, next to any success.
    """
    found = verdicts.get(failed, ())
    own = next((one for one in found if (one.success_id, one.success_step) == success), None)
    rates = ((one, one.with_failure) for one in found)
    return own or next((one for one, rate in rates if rate and 2 * rate.successes > rate.trials), None)


def _replayed(divergence: Divergence, verdicts: Verdicts) -> Divergence:
    """Adds the verdict of a replay; a decision that it shows not to be critical is not kept."""
    i, j, pair = divergence.success_at, divergence.localization_at, divergence.pair
    if divergence.decision != KEPT or i is None or j is None:
        return divergence
    ours, theirs = pair.success, pair.localization
    verdict = verdict_on(
        verdicts,
        (ours.record.trajectory_id, ours.steps[i].step.number),
        (theirs.record.trajectory_id, theirs.steps[j].step.number),
    )
    decision = "replay" if verdict and verdict.verdict == "not_critical" else KEPT
    return dataclasses.replace(divergence, decision=decision, replay=verdict)


# --- The report and what is written ---


def summarize(mined: MiningResult) -> dict:
    """Counts for the report: decisions, categories and the paper's shares, sites, kinds of pairs, labels."""
    decisions = Counter(audit.decision for audit in mined.audits)
    categories = Counter(prompt.category for prompt in mined.prompts)
    total = max(len(mined.prompts), 1)
    labelled = [audit for audit in mined.audits if audit.category]
    return {
        "tasks": len(mined.audits),
        "pairs": mined.pairs,
        "prompts": len(mined.prompts),
        "decisions": {name: decisions[name] for name in DECISIONS},
        "categories": {
            name: {
                "prompts": categories[name],
                "share": round(100 * categories[name] / total, 2),
                "paper_share": share,
            }
            for name, share in PAPER_SHARES.items()
        },
        "pair_kinds": mined.pair_kinds,
        "localization_actors": mined.localization_actors,
        "sites": dict(sorted(Counter(prompt.site for prompt in mined.prompts).items())),
        "label_sources": dict(sorted(Counter(audit.label_source for audit in labelled).items())),
        "unsure_labels": sum(audit.label_confidence < REVIEW_BELOW for audit in labelled),
    }


def pool_folders(pools: str) -> list[AnyPath]:
    """Splits `config.pools` at commas.

    Raises:
      UserError: none is named.
    """
    folders = [parse_path(name.strip(), "config.pools") for name in pools.split(",") if name.strip()]
    if not folders:
        raise UserError("config.pools is empty: give --config.pools=DIR1,DIR2 (made by experiments.collect)")
    return folders


def explain_task(workdir: Path, pools: Sequence[AnyPath], task_id: str) -> str:
    """Formats the stored decision about a task.

    Args:
      workdir: of `mine`.
      pools: that were mined.

    Raises:
      UserError: mining has not run here, or the task is unknown.
    """
    audit = next(
        (item for item in read_dataset(workdir / "audit", AuditPair) if item.task_id == task_id), None
    )
    if audit is None:
        raise UserError(f"{workdir / 'audit'}: no task {task_id!r}: see the task ids in the pools")
    runs = itertools.chain.from_iterable(read_dataset(frozen(pool, workdir), Trajectory) for pool in pools)
    task = next((run.task for run in runs if run.task.task_id == task_id), None)
    return explain(audit, task.objective if task else "")


def _write(mined: MiningResult, pools: Sequence[AnyPath], workdir: Path, settings: dict[str, Any]) -> None:
    provenance = {"pools": [address(pool) for pool in pools], "settings": settings}
    images = ImageStore(*pools)
    if mined.prompts:
        write_dataset(workdir / "prompts", mined.prompts, "rl_prompts", provenance, images=images)
    write_dataset(workdir / "audit", mined.audits, "audit_pairs", provenance, images=images)
