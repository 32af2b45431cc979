"""Finds the decisions that failed runs got wrong and successful runs got right.

    python -m experiments.mine --config=configs/mine.py:demo \
        --config.pools=runs/demo/collect,runs/demo/collect_policy --workdir=runs/demo/mine

The workdir gets `prompts/` (what RL trains on), `audit/` (one record a task, with both sides) and
`report.json`. Where a model names the failures (`paper`), `calls.sqlite` holds what was spent and
`answers.sqlite` what was answered, so that the same command asks nothing twice. With `--explain=TASK_ID`
the stored decision about one task is printed instead.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from collection.llm.config import ActorConfig
from collection.llm.ledger import LEDGER
from collection.mining.audit import explain
from collection.mining.balance import BalanceConfig
from collection.mining.judging import ANSWERS, JudgeConfig
from collection.mining.pairs import PairConfig
from collection.mining.pipeline import DECISIONS, Judging, Mined, Settings, mine_pools, summarize
from collection.mining.select import MiningConfig
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import is_temporary, write_atomic
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import AuditPair, Trajectory
from rmsweb_jax.records.shards import read_dataset, write_dataset

SAFE_KEYS = (
    *("workers", "threads", "actor.timeout_s", "actor.calls", "actor.cap_usd"),
    *("actor.requests_per_minute", "actor.tokens_per_minute"),
)

_EXPLAIN = flags.DEFINE_string("explain", "", "Print the decision about this task and stop.")


def main(config: ConfigDict, workdir: Path) -> None:
    """Writes prompts and audit and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    for path in filter(is_temporary, workdir.iterdir()):
        path.unlink()  # A run that was killed has left it.
    start = time.monotonic()
    pools = pool_folders(config)
    progress = Progress(workdir, "mine", 1)
    settings = config.to_dict()
    mined = mine_pools(
        pools,
        Settings(
            MiningConfig(**settings["select"]), PairConfig(**settings["pairs"]), _judging(settings, workdir)
        ),
        BalanceConfig(**settings["balance"]),
        settings["workers"] or os.cpu_count() or 1,
        lambda done, total: progress.update(done, total=total),
    )
    summary = summarize(mined)
    if not mined.prompts:
        dropped = ", ".join(
            f"{name} {summary['decisions'][name]}" for name in DECISIONS if summary["decisions"][name]
        )
        raise UserError(
            f"{config.pools}: no prompt could be mined ({dropped}): add runs that fail where others succeed"
        )
    _write(mined, pools, workdir, settings)
    progress.close()
    report = {"stage": "mine", "seconds": time.monotonic() - start, "pools": [str(pool) for pool in pools]}
    write_atomic(workdir / "report.json", json.dumps(report | summary, indent=1).encode())


def _judging(settings: dict[str, Any], workdir: Path) -> Judging | None:
    if settings["actor"]["kind"] == "none":
        return None
    return Judging(
        ActorConfig(**settings["actor"]).resolve(),
        JudgeConfig(**settings["judging"]),
        workdir / LEDGER,
        workdir / ANSWERS,
        settings["threads"],
    )


def pool_folders(config: ConfigDict) -> list[Path]:
    """The folders named by `config.pools`.

    Raises:
      UserError: none is named.
    """
    folders = [Path(name.strip()) for name in str(config.pools).split(",") if name.strip()]
    if not folders:
        raise UserError("config.pools is empty: give --config.pools=DIR1,DIR2 (made by experiments.collect)")
    return folders


def explained(config: ConfigDict, workdir: Path, task_id: str) -> str:
    """The stored decision about a task, in words.

    Raises:
      UserError: mining has not run here, or knows no such task.
    """
    audit = next(
        (item for item in read_dataset(workdir / "audit", AuditPair) if item.task_id == task_id), None
    )
    if audit is None:
        raise UserError(f"{workdir / 'audit'}: no task {task_id!r}: see the task ids in the pools")
    runs = itertools.chain.from_iterable(read_dataset(pool, Trajectory) for pool in pool_folders(config))
    task = next((run.task for run in runs if run.task.task_id == task_id), None)
    return explain(audit, task.objective if task else "")


def _write(mined: Mined, pools: list[Path], workdir: Path, settings: dict) -> None:
    provenance = {"pools": [str(pool) for pool in pools], "settings": settings}
    for prompt in mined.prompts:
        _link(pools, workdir / "prompts", image_names(prompt.messages))
    write_dataset(workdir / "prompts", mined.prompts, "rl_prompts", provenance)
    for audit in mined.audits:
        names = (audit.success_screenshot, audit.localization_screenshot)
        _link(pools, workdir / "audit", (name for name in names if name))
    write_dataset(workdir / "audit", mined.audits, "audit_pairs", provenance)


def _link(pools: list[Path], folder: Path, names: Iterator[str] | list[str]) -> None:
    stores, target = [ImageStore(pool) for pool in pools], ImageStore(folder)
    for name in names:
        target.link_from(next((store for store in stores if name in store), stores[0]), name)


def _entry(config: ConfigDict, workdir: Path) -> None:
    if _EXPLAIN.value:
        print(explained(config, workdir, _EXPLAIN.value))
    else:
        main(config, workdir)


if __name__ == "__main__":
    cli.run(_entry, "configs/mine.py:demo", SAFE_KEYS)
