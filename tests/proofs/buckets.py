"""Data sets in buckets: writers that are killed, cut off and taken over. Five minutes.

A bucket of fake-gcs-server (`gs://`) and one of moto (`s3://`), on loopback, are reached by the real clients
through a proxy that refuses, cuts and slows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from rmsweb_jax.errors import TakenOverError, UnreachableError
from rmsweb_jax.records.bucket import publish_dataset
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.staging import staged
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.storage import AnyPath, StorePath, parse_path
from tests.proofs.page import publish, table
from tests.records.sets import png, trajectories
from tests.storage.faulty_proxy import Faults, FaultyProxy
from tests.storage.servers import serve, variables

# Each start meets the store in the next of these states.
STATES = {
    "sound": Faults(),
    "5 % of requests refused": Faults(refused=0.05),
    "5 % of responses cut": Faults(cut=0.05, cut_after=40),
    "50 ms slower, 2 MB/s": Faults(delay_s=0.05, bytes_per_s=2e6),
}
# By so many records a data set grows from one publish to the next.
GROWTH, SHARD_RECORDS = 4, 4
RUNS = trajectories(400)
KILLS, PAIRS = 12, 6
_CONTEXT = multiprocessing.get_context("forkserver")
_SPEED_S = 120.0


@dataclasses.dataclass
class Found:
    """Counts over both services.

    Attributes:
      events: kills, cuts and takeovers, by what was done and the state of the store.
      readings: how often a reader with an empty cache read the whole data set.
      lost: records of a publish that had returned, and were not there.
      half_visible: readings that found something missing, damaged or mixed.
      unreachable: readings and publishes that ended with a line, as the store did not answer.
    """

    events: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    readings: int = 0
    records: int = 0
    lost: int = 0
    half_visible: int = 0
    unreachable: int = 0
    owners: Counter[str] = dataclasses.field(default_factory=Counter)


def grow(variables_: Mapping[str, str], disk: Path, target: str, said: Path) -> None:
    """Publishes the data set again and again, each time with more records."""
    os.environ |= variables_
    published = len(said.read_text().split())
    while True:
        published += 1
        make(disk, published * GROWTH, {})
        try:
            publish_dataset(disk, path_of(target))
        except UnreachableError:
            say(said.with_name("unreachable"))
            sys.exit(UnreachableError.exit_code)
        say(said)


def make(folder: Path, count: int, provenance: dict[str, str]) -> None:
    for number in range((count + 1) // 2):
        ImageStore(folder).put(png(number))
    write_dataset(folder, RUNS[:count], "trajectories", provenance, SHARD_RECORDS)


def say(file: Path) -> None:
    with open(file, "a") as out:
        out.write("1\n")


def path_of(target: str) -> StorePath:
    path = parse_path(target, "target")
    assert isinstance(path, StorePath)
    return path


def own(variables_: Mapping[str, str], target: str, count: int, seconds: float) -> None:
    """A stage with its workdir in the bucket; exits with 75 if another one takes the workdir over."""
    os.environ |= variables_
    try:
        with staged(path_of(target)) as folder:
            if (folder / "report.json").exists():
                sys.exit(0)
            make(folder, count, {"by": str(count)})
            time.sleep(seconds)
            (folder / "report.json").write_text("{}")
    except (TakenOverError, UnreachableError) as error:
        sys.exit(error.exit_code if isinstance(error, TakenOverError) else 1)


@dataclasses.dataclass
class Service:
    """A running store."""

    scheme: str
    proxy: FaultyProxy
    variables_: Mapping[str, str]
    folder: Path
    found: Found
    rng: random.Random

    def start(self, function: object, *arguments: object) -> BaseProcess:
        process = _CONTEXT.Process(target=function, args=(dict(self.variables_), *arguments))  # type: ignore[arg-type]
        process.start()
        return process

    def read(self, target: AnyPath) -> list[str] | None:
        """Reads all of a data set with an empty cache; None if the store did not answer."""
        self.found.readings += 1
        with tempfile.TemporaryDirectory(dir=self.folder) as cache, variables({"RMSWEB_CACHE": cache}):
            try:
                ids = [one.trajectory_id for one in read_dataset(target)]
                problems = check_dataset(target).problems
            except UnreachableError:
                self.found.unreachable += 1
                return None
        # The data set may have grown between the two.
        if problems and not all("did not answer" in problem for problem in problems):
            self.found.half_visible += 1
            print(self.scheme, *problems[:3], flush=True)
        self.found.records += len(ids)
        return ids

    def kill_publishers(self, kills: int) -> None:
        target, said = f"{self.scheme}://runs/growing", self.folder / "said"
        said.touch()
        for number in range(kills):
            state = list(STATES)[number % len(STATES)]
            self.proxy.faults = STATES[state]
            before = len(said.read_text())
            # Every second one starts on another machine, whose disk is empty.
            disk = self.folder / f"disk-{number // 2}"
            process = self.start(grow, disk, target, said)
            wait(process, lambda before=before: len(said.read_text()) > before)
            what = "killed"
            if number % 3 == 2:
                self.proxy.cut_all()
                what = "all connections cut, then killed"
            time.sleep(self.rng.uniform(0, 0.6))
            self.look(path_of(target), said)  # While it publishes.
            process.kill()
            process.join()
            self.found.events[f"publisher {what}", state] += 1
            self.look(path_of(target), said)

    def look(self, target: AnyPath, said: Path) -> None:
        wanted = len(said.read_text().split()) * GROWTH
        ids = self.read(target)
        if ids is None:
            return
        self.found.lost += max(0, wanted - len(ids))
        if len(ids) % GROWTH or ids != [one.trajectory_id for one in RUNS[: len(ids)]]:
            self.found.half_visible += 1
            print(self.scheme, "mixed", len(ids), flush=True)

    def take_over(self, pairs: int) -> None:
        """Two machines run the same stage; the second starts while the first works."""
        for number in range(pairs):
            state = list(STATES)[number % len(STATES)]
            self.proxy.faults = STATES[state]
            target = f"{self.scheme}://runs/owned-{number}"
            processes = []
            for machine, count in (("first", 8), ("second", 12)):
                cache = {"RMSWEB_CACHE": str(self.folder / f"{machine}-{number}")}
                with variables_of(self, cache):
                    processes.append(self.start(own, target, count, 0.5 if machine == "first" else 1.0))
                time.sleep(self.rng.uniform(0.1, 1.2))
            for process in processes:
                process.join()
            codes = tuple(process.exitcode for process in processes)
            ids = self.read(path_of(target))
            self.found.events["workdir taken over", state] += 1
            # One had ended before the other began, or the one whose name came last owns the workdir.
            ends = {
                (0, 0): "one had ended, or nearly",
                (75, 0): "the second owns it",
                (0, 75): "the first, whose name came later, owns it",
            }
            wanted = {(75, 0): (12,), (0, 75): (8,)}.get(codes, (8, 12))
            self.found.owners[ends.get(codes, f"exit codes {codes}")] += 1
            if ids is not None and len(ids) not in wanted:
                self.found.half_visible += 1
                print(self.scheme, "owned", codes, len(ids), flush=True)


@contextlib.contextmanager
def variables_of(service: Service, more: Mapping[str, str]):
    before = service.variables_
    service.variables_ = {**before, **more}
    try:
        yield
    finally:
        service.variables_ = before


def wait(process: BaseProcess, done) -> None:
    deadline = time.monotonic() + _SPEED_S
    while process.is_alive() and not done():
        if time.monotonic() > deadline:
            raise SystemExit("error: a publisher was not done in time")
        time.sleep(0.01)


def main() -> None:
    found, started = Found(), time.monotonic()
    _CONTEXT.set_forkserver_preload(["rmsweb_jax.records.staging", "gcsfs", "s3fs"])
    for scheme in ("gs", "s3"):
        with (
            tempfile.TemporaryDirectory() as folder,
            FaultyProxy() as proxy,
            serve(scheme, Path(folder) / "log", proxy) as environment,
            variables(environment),
        ):
            service = Service(scheme, proxy, environment, Path(folder), found, random.Random(7))
            service.kill_publishers(KILLS)
            service.take_over(PAIRS)
    publish(
        "buckets",
        "Data sets in buckets, killed, cut off and taken over",
        ABOUT,
        {**vars(found), "events": [[*key, count] for key, count in found.events.items()]},
        [
            (
                "What was published is there, once and in order",
                f"{found.records:,} records in {found.readings} readings with an empty cache: "
                f"{found.lost} lost; {found.unreachable} times the store did not answer at all",
                not found.lost,
            ),
            ("No reader sees a part or a mixture", f"{found.half_visible}", not found.half_visible),
            (
                "Of two machines with one workdir, one owns it",
                ", ".join(f"{name}: {count}" for name, count in found.owners.items()),
                not any(name.startswith("exit codes") for name in found.owners),
            ),
        ],
        table(
            {"what was done": what, "state of the store": state, "times": count}
            for (what, state), count in sorted(found.events.items())
        ),
        f"It took {time.monotonic() - started:.0f} s.",
    )


ABOUT = f"""
**No baseline, no control:** what a publisher has put there is the reference. Nothing is lost or damaged on
purpose here (`tests/storage/test_published.py` does that), and no other way to write is killed, so the page
does not say that one would lose records.

A bucket of fake-gcs-server (`gs://`) and one of moto (`s3://`) on loopback are reached by the real clients
through a proxy. A publisher writes a data set of trajectories with screenshots, and publishes it again with
{GROWTH} more records, until it is killed by SIGKILL; every third time all connections are cut first. Every
second publisher starts with an empty disk. While it publishes, and after each kill, a reader with an empty
cache reads all records and screenshots; what a publish that had returned has put there must be there. Then
two machines run the same stage in one workdir of the bucket, the second starting while the first works.
"""


if __name__ == "__main__":
    main()
