"""The mining stage, killed and run again, in processes that have read no shard before.

    python -m tests.mining.kill_mine last WORKDIR POOL
    python -m tests.mining.kill_mine workers WORKDIR POOL

`last` kills runs in the middle of the last change of each kind of file, and at one read, and prints as JSON
the files that differ from an uninterrupted run's. `workers` starts two processes, prints their process ids
and kills itself when the first tasks are mined.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collection.mining import mine, pool
from rmsweb_jax import progress
from rmsweb_jax.records import shards
from tests.mining.disk_pools import mine_pools_at, outcome
from tests.records.crash import Disk, Point
from tests.records.kills import Tell, die, in_child
from tests.records.sets import stable


def run(tell: Tell, workdir: Path, folder: Path, point: Point | None, readings: int | None) -> None:
    """Reports the paths of all operations and the number of reads, or is killed."""
    # The number of writes of progress depends on time.
    progress._INTERVAL_S = 1e9
    workdir.mkdir(exist_ok=True)
    seen = Counter()
    read = shards.read_rows

    def reading(*arguments: Any) -> list[bytes]:
        seen["read"] += 1
        return die() if seen["read"] == readings else read(*arguments)

    shards.read_rows = pool.read_rows = reading
    disk = Disk(workdir, point, die)
    with disk.watched():
        mine_pools_at(workdir, folder)
    tell(([(one.path, one.parted) for one in disk.operations], seen["read"]))


def last(root: Path, folder: Path) -> dict[str, Any]:
    """Kills runs in the middle of the last change of each kind of file, and at one read.

    Returns:
      Kills by the kind of file that was being written, and the files that differ from an uninterrupted run's.
    """
    (operations, readings), _ = in_child(run, root / "whole", folder, None, None)
    wanted, names = outcome(root / "whole"), _names(root / "whole")
    parted = [path for path, parted in operations if parted]
    points = [
        Point(at, "middle") for at in sorted({_phase(path): at for at, path in enumerate(parted)}.values())
    ]
    moments = [(point, None) for point in points] + [(None, readings)]
    kills, different = Counter(), []
    for number, (point, reading) in enumerate(moments):
        workdir = root / f"run-{number}"
        _, code = in_child(run, workdir, folder, point, reading)
        assert code
        kills[_phase(parted[point.number]) if point else "reading"] += 1
        in_child(run, workdir, folder, None, None)
        found = outcome(workdir)
        if found != wanted or _names(workdir) != names:
            wrong = {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)}
            left = _names(workdir)
            different.append([str((point, reading)), sorted(wrong | (left - names | names - left).keys())])
        shutil.rmtree(workdir)
    return {"kills": kills, "different": different}


def _names(workdir: Path) -> Counter[str]:
    return Counter(stable(str(path.relative_to(workdir))) for path in workdir.rglob("*"))


def _phase(path: str) -> str:
    """The file or folder of the stage to which a path belongs: `prompts`, `audit`, `report`, ..."""
    inside = path.partition("/whole/")[2]
    return inside.split("/")[0].lstrip(".").split(".")[0] or "workdir"


def workers(workdir: Path, folder: Path) -> None:
    """Never returns."""
    mine._SMALL_BYTES = 0

    def update(*_: Any, **__: Any) -> None:
        print(json.dumps([child.pid for child in multiprocessing.active_children()]), flush=True)
        die()

    mine.Progress.update = update
    mine_pools_at(workdir, folder, workers=2)


COMMANDS: dict[str, Callable[[Path, Path], Any]] = {"last": last, "workers": workers}

if __name__ == "__main__":
    command, *names = sys.argv[1:]
    print(json.dumps(COMMANDS[command](*map(Path, names))))
