"""Writers of journals and data sets that are killed at drawn disk operations. Two minutes."""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.records.tools import check_dataset
from tests.proofs.page import publish, table
from tests.records.crash import Disk, Point
from tests.records.kills import die, in_child, measure
from tests.records.sets import png, samples, trajectory

KILLS, TASKS = 80, 25
RECORDS, SHARD_RECORDS, IMAGES = 2000, 25, 40
# Of a shard: its rows and those of its images.
_OPERATIONS = SHARD_RECORDS + IMAGES
ABOUT = f"""
**No baseline, no control:** a run that is not killed is the reference. Nothing is damaged on purpose here
(`tests/records/test_check.py` does that), and no plainer writer is killed, so the page does not say that one
would lose records.

One writer writes {RECORDS:,} samples, of {IMAGES} screenshots, in shards of {SHARD_RECORDS}, and is killed
{KILLS} times at a drawn row of a shard. The same call goes on.

{TASKS} trajectories with screenshots are appended to a journal and written as a data set; an SFT corpus is
made of it. Each run is a process that sends itself SIGKILL at a drawn disk operation: before it, after a
part of its bytes, or after it. The same run is started (and may be killed) again until it finishes. Then
its records, screenshots and files are compared with those of a run that was not killed, and everything is
read as by `experiments.records verify`.

SIGKILL does not lose the write cache of the system, so these kills do not cover power cuts.
`tests/records/test_power_cuts.py` does: it cuts at every operation and keeps only data synced to disk.
"""


def _samples() -> Iterator[SftSample]:
    shown = [png(number) for number in range(IMAGES)]
    for number in range(RECORDS):
        yield from samples([trajectory(number, shown[number % IMAGES])])


def _write(tell: Any, root: Path, point: Point | None) -> None:
    with Disk(root, point, die).watched():
        write_dataset(root / "corpus", _samples(), "sft_samples", {}, SHARD_RECORDS, images=root / "source")
    tell("written")


def _look(tell: Any, root: Path) -> None:
    found = list(read_dataset(root / "corpus", SftSample))
    in_order = sum(one == wanted for one, wanted in zip(found, _samples(), strict=False))
    tell((in_order, len(found), check_dataset(root / "corpus")))


def one_writer(root: Path, seed: int = 0) -> dict[str, Any]:
    """Kills the writer of one data set in nearly each of its shards."""
    for number in range(IMAGES):
        ImageStore(root / "source").put(png(number))
    rng, kills = random.Random(seed), 0
    while kills < KILLS:
        point = Point(rng.randrange(_OPERATIONS), rng.choice(("before", "after")), "shard")
        kills += in_child(_write, root, point)[1] == -signal.SIGKILL
        # A reader sees no part of it.
        assert not (root / "corpus/manifest.json").exists() or kills == KILLS
    in_child(_write, root, None)
    in_order, records, check = in_child(_look, root)[0]
    left = [path.name for path in (root / "corpus").iterdir() if path.suffix != ".array_record"]
    return {
        "kills": kills,
        "records": records,
        "in_order": in_order,
        "problems": check.problems,
        "other_files": left,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = one_writer(Path(folder))
    found: dict[str, Any] = {**measure(KILLS, TASKS), "one_writer": one}
    faults = [found[name] for name in ("lost", "doubled", "unreadable")]
    publish(
        "kill",
        "Kills while records are written",
        ABOUT,
        found,
        [
            (
                f"{RECORDS:,} records of one writer that is killed {KILLS} times are there once and in order",
                f"{one['in_order']:,} of {one['records']:,} after {one['kills']} kills; "
                f"{len(one['problems'])} problems; besides shards {', '.join(one['other_files'])}",
                one["in_order"] == one["records"] == RECORDS
                and (one["problems"], one["other_files"]) == ([], ["manifest.json"]),
            ),
            (
                "No record is lost, doubled or unreadable",
                f"{found['records_compared']:,} records after {found['kills']} kills: "
                "{} lost, {} doubled, {} unreadable".format(*faults),
                not any(faults),
            ),
            (
                "A killed and resumed run ends with the files of one that was not killed",
                f"{found['different_runs']} of {found['finished_runs']} runs differ",
                not found["different_runs"],
            ),
        ],
        table(found["phases"]),
    )


if __name__ == "__main__":
    main()
