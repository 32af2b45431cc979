"""From pools of runs to decisions, one a task."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from collection.llm.config import ActorConfig, make_model
from collection.mining.audit import to_audit, to_prompt, without_pair
from collection.mining.balance import BalanceConfig, balance
from collection.mining.branch import Branch
from collection.mining.judging import JudgeConfig, JudgedLabels
from collection.mining.labels import PAPER_SHARES, Label, rule_label
from collection.mining.pairs import PairConfig, RunPair, by_task, run_pairs
from collection.mining.pool import Map, Place, Source, check_messages, find_sources, open_pool, read_runs
from collection.mining.select import GATES, KEPT, MiningConfig, cases
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Trajectory

Labels = Callable[[Sequence[RunPair]], Sequence[Label]]

DECISIONS = ("no_success", "no_contrast", *GATES, "runtime_gate", "obstruction_cap", "domain_cap", KEPT)
# Below this the recipe asks a second reader; the report counts such labels.
SURE = 0.70
# Tasks that a process mines before it is given others.
_BATCH = 8
# Pools below this are mined sooner than processes start.
_SMALL_BYTES = 32 * 2**20


@dataclasses.dataclass(frozen=True)
class Judging:
    """A model that names failures.

    Attributes:
      ledger, answers: files that all processes share: what was spent, and what was answered.
      threads: pairs at once, in each process.
    """

    actor: ActorConfig
    config: JudgeConfig
    ledger: Path
    answers: Path
    threads: int = 8


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides about a task; without `judging` the rules name its failure."""

    select: MiningConfig
    pairs: PairConfig
    judging: Judging | None = None


@dataclasses.dataclass(frozen=True)
class Finding:
    """What became of a task, before the corpus is balanced.

    Attributes:
      prompt: where every gate was passed.
      kind, actor: of the best pair and of its localization run; empty without one.
      pairs: how many were tried.
    """

    audit: AuditPair
    prompt: RlPrompt | None = None
    kind: str = ""
    actor: str = ""
    pairs: int = 0


@dataclasses.dataclass(frozen=True)
class Mined:
    """What mining found.

    Attributes:
      prompts: the RL corpus.
      audits: one record a task, kept or dropped.
      pair_kinds, localization_actors: of the kept prompts, counted.
      pairs: how many pairs of runs were tried.
    """

    prompts: list[RlPrompt]
    audits: list[AuditPair]
    pair_kinds: dict[str, int]
    localization_actors: dict[str, int]
    pairs: int


def mine(trajectories: Iterable[Trajectory], select: MiningConfig, balancing: BalanceConfig) -> Mined:
    """Mines one divergence a task and balances the corpus; all in memory."""
    settings = Settings(select, PairConfig())
    runs = by_task(trajectories).values()
    return _balanced([mine_task(some, settings, _by_rules) for some in runs], balancing)


def mine_pools(
    folders: Sequence[Path],
    settings: Settings,
    balancing: BalanceConfig,
    workers: int = 1,
    on_task: Callable[[int, int], None] = lambda done, total: None,
) -> Mined:
    """As `mine`, from data sets on disk and by several processes.

    Args:
      on_task: called with the number of tasks done and of all.

    Raises:
      UserError: a folder holds no finished data set of trajectories, or a file has changed.
    """
    sources = find_sources(folders)
    if sum(source.shard.bytes for source in sources) < _SMALL_BYTES:
        workers = 1
    with _processes(workers, settings.judging) as map_:
        pool = open_pool(sources, map_)
        tasks = list(pool.tasks.values())
        batches = [tasks[first : first + _BATCH] for first in range(0, len(tasks), _BATCH)]
        findings: list[Finding] = []
        for found in map_(functools.partial(_mine_batch, pool.sources, settings), batches):
            findings += found
            on_task(len(findings), len(tasks))
    return _balanced(findings, balancing)


def mine_task(runs: Sequence[Branch], settings: Settings, labels: Labels) -> Finding:
    """The last critical divergence among the runs of a task, or why there is none."""
    pairs = run_pairs(runs, settings.pairs)
    tried = cases(pairs, labels(pairs), settings.select)
    if not tried:
        return Finding(without_pair(runs))
    best = max(tried, key=lambda case: case.rank)
    prompt = to_prompt(best) if best.decision == KEPT else None
    return Finding(
        to_audit(best, tried), prompt, best.pair.kind, best.pair.localization.run.actor, len(tried)
    )


def _by_rules(pairs: Sequence[RunPair]) -> list[Label]:
    return [rule_label(pair.success, pair.localization) for pair in pairs]


# Of this process: a model's connections and threads go to no other.
_labels: Labels = _by_rules


@contextlib.contextmanager
def _naming(judging: Judging | None) -> Iterator[None]:
    """Who names the failures in this process."""
    global _labels
    if judging is None:
        yield
        return
    model = make_model(judging.actor, judging.ledger)
    with JudgedLabels(model, judging.answers, judging.config) as judged:
        _labels = functools.partial(judged.label_many, workers=judging.threads)
        try:
            yield
        finally:
            _labels = _by_rules


# What a process of the pool opens, it holds until it ends; answers are on disk as soon as they come.
_held = contextlib.ExitStack()


def _begin_process(judging: Judging | None) -> None:
    exit_with_parent()
    _held.enter_context(_naming(judging))


def _mine_batch(
    sources: Sequence[Source], settings: Settings, batch: Sequence[Sequence[Place]]
) -> list[Finding]:
    findings = []
    for places in batch:
        try:
            findings.append(mine_task(list(read_runs(sources, places)), settings, _labels))
        except ValueError:
            # Prompts are parsed where they are asked for, and then nobody knows whose they are.
            check_messages(sources, places)
            raise
    return findings


def _balanced(findings: Sequence[Finding], balancing: BalanceConfig) -> Mined:
    passed = [finding.audit for finding in findings if finding.prompt]
    decisions = balance(passed, balancing)
    kept = [finding for finding in findings if decisions.get(finding.audit.task_id) == KEPT]
    audits = [
        finding.audit.model_copy(
            update={"decision": decisions.get(finding.audit.task_id, finding.audit.decision)}
        )
        for finding in findings
    ]
    return Mined(
        [finding.prompt for finding in kept if finding.prompt],
        audits,
        dict(sorted(Counter(finding.kind for finding in kept).items())),
        dict(sorted(Counter(finding.actor for finding in kept).items())),
        sum(finding.pairs for finding in findings),
    )


@contextlib.contextmanager
def _processes(workers: int, judging: Judging | None) -> Iterator[Map]:
    """A `map` over processes, or the ordinary one."""
    if workers <= 1:
        with _naming(judging):
            yield map
        return
    # Forking a process that has read shards would copy their threads' locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin_process, initargs=(judging,)) as executor:
        try:
            yield executor.map
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def summarize(mined: Mined) -> dict:
    """Counts for the report: the funnel of decisions, categories beside the paper's, sites, pair kinds."""
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
        "unsure_labels": sum(audit.label_confidence < SURE for audit in labelled),
    }
