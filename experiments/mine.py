"""Finds the decisions that failed runs got wrong and successful runs got right.

    python -m experiments.mine --config=configs/mine.py:demo \
        --config.pools=runs/demo/collect,runs/demo/collect_policy --workdir=runs/demo/mine

With `--explain=TASK_ID` the stored decision about one task is printed instead.
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from collection.mining.config import MineSettings
from experiments import cli

_EXPLAIN = flags.DEFINE_string("explain", "", "Print the decision about this task and stop.")


def main(settings: MineSettings, workdir: Path) -> None:
    from collection.mining.mine import explain_task, mine, pool_folders  # It takes half a second.

    if _EXPLAIN.value:
        print(explain_task(workdir, pool_folders(settings.pools), _EXPLAIN.value))
    else:
        mine(settings, workdir)


if __name__ == "__main__":
    cli.run(main, "configs/mine.py:demo", MineSettings)
