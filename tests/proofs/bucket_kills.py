"""Publishers and trainers that write to a bucket are killed, and so are the store's connections."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.publish import publish_dataset
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.storage import StorePath, parse_path
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows
from tests.policies import save_random_policy, write_corpus
from tests.proofs.runs import Run, command, untimed
from tests.storage import publisher
from tests.storage.chain import last_lines, start
from tests.storage.faulty_proxy import Faults, FaultyProxy
from tests.storage.servers import variables

T = TypeVar("T")
# Each start of a publisher or trainer meets the store in the next of these states.
STATES = {
    "sound": Faults(),
    "5 % of requests refused": Faults(refused=0.05),
    "5 % of responses cut": Faults(cut=0.05, cut_after=40),
    "50 ms slower, 2 MB/s": Faults(delay_s=0.05, bytes_per_s=2e6),
}
STEPS, CHECKPOINT_EVERY, TRAINER_LEASE_S = 40, 2, 4.0
_TRIES = 5
_POLL_S = 0.01
_WAIT_S = 600.0


@dataclasses.dataclass
class Kills:
    """What was killed, and what was found after it.

    Attributes:
      kills: by what was killed.
      states: kills by the state of the store.
      readings: how often a reader looked.
      lost, doubled: records and rows.
      half_visible: readings that found something broken, or mixed.
      gave_up: starts that ended with a line, since the store did not answer for too long.
    """

    kills: Counter[str] = dataclasses.field(default_factory=Counter)
    states: Counter[str] = dataclasses.field(default_factory=Counter)
    readings: int = 0
    lost: int = 0
    doubled: int = 0
    half_visible: int = 0
    gave_up: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def count(self, what: str, state: str) -> None:
        self.kills[what] += 1
        self.states[state] += 1

    def note(self, text: str) -> None:
        print(text, flush=True)
        self.notes.append(text)


# --- Publishers ---


@dataclasses.dataclass
class Publishing:
    """Publishers of one data set, one after the other.

    Args:
      proxy, environment: of the running store.
      folder: for the publishers' disks, what they say, and the readers' caches.
    """

    target: str
    proxy: FaultyProxy
    environment: Mapping[str, str]
    folder: Path
    found: Kills
    rng: random.Random

    @property
    def said(self) -> Path:
        return self.folder / "said"

    def kill_one(self, number: int, state: str, cut: bool) -> None:
        """Starts a publisher and kills it.

        Args:
          state: of the store.
          cut: whether the store's connections are cut first, and the publisher has to get over that.
        """
        # Its children begin with all modules, and without threads or connections.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.storage.publisher", "gcsfs", "s3fs", "google.cloud.storage"])
        self.proxy.faults = STATES[state]
        before, begun = len(self.lines()), published(self.said)
        process = context.Process(
            target=publisher.publish_versions,
            args=(self.environment, self.folder / f"disk-{number}", self.target, begun + 1, self.said),
        )
        process.start()
        # The first version is whole before anything is killed.
        self._wait(process, lambda: published(self.said) > begun if not begun else len(self.lines()) > before)
        if self.rng.random() < 0.5:
            self.look(f"{number}-before")
        if cut:
            time.sleep(self.rng.uniform(0, 0.3))
            self.proxy.cut_all()
            self.found.count(f"connections of a publisher ({self.target[:2]})", state)
            done = published(self.said)
            self._wait(process, lambda: published(self.said) > done)
        time.sleep(self.rng.uniform(0, 0.5))
        process.kill()
        process.join()
        self.found.count(f"publisher ({self.target[:2]})", state)
        self.found.gave_up += any(line.startswith("error") for line in self.lines()[before:])
        self.look(str(number))

    def lines(self) -> list[str]:
        return self.said.read_text().splitlines()

    def look(self, name: str) -> None:
        look_at_records(self.target, self.said, self.folder / f"cache-{name}", self.found)

    def _wait(self, process: BaseProcess, condition: Callable[[], bool]) -> None:
        wait_until(
            lambda: condition() or not process.is_alive(), f"a publisher: {''.join(self.lines()[-1:])}"
        )


def kill_publishers(
    scheme: str, proxy: FaultyProxy, environment: Mapping[str, str], folder: Path, kills: int, found: Kills
) -> None:
    """Kills publishers of one data set `kills` times, a third of them after a cut of all connections."""
    folder.mkdir(parents=True)
    target, rng = f"{scheme}://runs/published", random.Random(scheme)
    publishing = Publishing(target, proxy, environment, folder, found, rng)
    publishing.said.touch()
    with variables(environment):
        for number in range(kills):
            publishing.kill_one(number, list(STATES)[number % len(STATES)], cut=number % 3 == 1)
        proxy.faults = Faults()


def published(said: Path) -> int:
    """The last version whose publisher said that it is published."""
    versions = [
        int(line.split()[1]) for line in said.read_text().splitlines() if line.startswith("published")
    ]
    return max(versions, default=0)


def look_at_records(target: str, said: Path, cache: Path, found: Kills) -> None:
    """Reads the data set as a machine that has nothing of it, and compares it with what was published."""
    at_least = published(said)
    found.readings += 1
    path = parse_path(target, "target")
    with variables({"RMSWEB_CACHE": str(cache)}):
        records = _patient(lambda: list(read_dataset(path, Trajectory)), found)
        problems = _patient(lambda: check_dataset(path).problems, found)
    if records is None or problems:
        found.half_visible += 1
        found.note(f"{target}: not readable: {problems}")
        return
    names = [one.trajectory_id for one in records]
    version = len(records) // publisher.RECORDS
    found.doubled += len(names) - len(set(names))
    found.lost += max(0, at_least - version) * publisher.RECORDS
    if records != publisher.version_records(version):
        found.half_visible += 1
        found.note(f"{target}: {len(records)} records are of no version")


def _patient(read: Callable[[], T], found: Kills) -> T | None:
    """What a reader gets that tries again where the store does not answer; None if something is broken."""
    for _ in range(_TRIES):
        try:
            return read()
        except UserError as error:
            if "try again" not in str(error):
                found.note(str(error))
                return None
    raise SystemExit("error: the store does not answer")


# --- Trainers ---


def kill_trainers(
    scheme: str,
    proxy: FaultyProxy,
    environment: Mapping[str, str],
    folder: Path,
    hosts: int,
    kills: int,
    found: Kills,
) -> dict[str, Any]:
    """Kills a training run whose workdir is in a bucket `kills` times; each start has new machines.

    Every second start also loses all of the store's connections. Of several hosts the last kill takes one
    alone, and the other ends by itself.

    Returns:
      What is equal to a run on disk that was not killed.
    """
    rng = random.Random(f"{scheme} trainer")
    folder.mkdir(parents=True)
    save_random_policy(folder / "policy")
    write_corpus(folder / "corpus", [1 + number % 3 for number in range(16)])
    straight = Run(folder, "straight", _training(folder / "policy", folder / "corpus", STEPS), hosts)
    straight.finish(hosts)
    rows = [untimed(row) for row in straight.rows()]
    root = parse_path(f"{scheme}://runs/killed", "root")
    assert isinstance(root, StorePath)
    with variables({**environment, "RMSWEB_CACHE": str(folder / "here")}):
        publish_dataset(folder / "corpus", root / "corpus")
        for path in (folder / "policy").iterdir():
            (root / "policy" / path.name).upload(path)
        training = ["tests.storage.short_lease", str(TRAINER_LEASE_S)]
        training += _training(root / "policy", root / "corpus", 2)[1:]
        training += [f"--workdir={root / 'sft'}"]
        if hosts > 1:
            training += [f"--config.mesh.data={hosts}", "--config.mesh.fsdp=1"]
        points = sorted(rng.sample(range(1, STEPS - 3), kills))
        for number, point in enumerate(points):
            state = list(STATES)[number % len(STATES)]
            proxy.faults = STATES[state]
            machines = folder / f"machines-{number}"
            processes = start(training, machines, environment, hosts)
            _reach(point, machines, processes)
            if number % 2:
                proxy.cut_all()
                found.count(f"connections of a trainer ({scheme})", state)
            time.sleep(rng.uniform(0, 1.0))
            if any(_ended(processes)):
                found.gave_up += 1
                found.note(last_lines(machines)[-600:])
            # The other one then ends by itself.
            alone = hosts > 1 and number == kills - 1
            for process in processes[-1:] if alone else processes:
                process.kill()
            codes = [process.wait() for process in processes]
            if alone and codes[0] != StoppedError.exit_code:
                found.note(f"the process that was left ended with {codes[0]}: {last_lines(machines)[-2000:]}")
            what = f"one of {hosts} trainers" if alone else f"{hosts} trainers" if hosts > 1 else "trainer"
            found.count(f"{what} ({scheme})", state)
            look_at_training(root / "sft", straight, rows, folder / f"look-{number}", found)
        proxy.faults = Faults()
        for _ in range(_TRIES):
            ends = [process.wait() for process in start(training, folder / "last", environment, hosts)]
            if not any(ends):
                break
        else:
            raise SystemExit(f"error: training does not end\n{last_lines(folder / 'last')}")
        return _compare(root / "sft", straight, rows, folder / "end", found)


def _reach(point: int, machines: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    wait_until(lambda: _logged(machines / "0") >= point or any(_ended(processes)), f"step {point}")


def _training(model: object, corpus: object, kept: int) -> list[str]:
    settings = {
        "model": model,
        "corpus": corpus,
        "max_length": 256,
        "max_pixels": 4096,
        "batch_size": 4,
        "epochs": STEPS // 4,
        "row_tokens": 256,
        "row_multiple": 128,
        "trainable": "lora",
        "lora.rank": 2,
        "checkpoint_every": CHECKPOINT_EVERY,
        "checkpoints_kept": kept,
    }
    return command("experiments.train_sft", "configs/sft.py:smoke", settings)


def _logged(machine: Path) -> int:
    steps = [read_rows(path)[-1:] for path in machine.glob(f"workdirs/*/{METRICS_FILE}")]
    return max((rows[0]["step"] for rows in steps if rows), default=0)


def _ended(processes: list[subprocess.Popen[bytes]]) -> list[bool]:
    return [process.poll() is not None for process in processes]


def look_at_training(
    workdir: StorePath, straight: Run, rows: list[dict[str, Any]], copies: Path, found: Kills
) -> None:
    """Reads the newest checkpoint and all rows of metrics as another machine would."""
    found.readings += 1
    there = _patient(lambda: segments(workdir), found)
    if there is None or there != rows[: len(there)]:
        found.half_visible += 1
        found.note(f"{workdir}: rows {[row['step'] for row in there or []]}")
    step = _patient(lambda: newest(workdir), found)
    if step is None:
        return
    fetched = _patient(lambda: fetch(workdir, step, copies), found)
    if fetched is None or state_digest(fetched) != state_digest(straight.workdir / "checkpoints" / str(step)):
        found.half_visible += 1
        files = sorted(str(path.relative_to(copies)) for path in copies.rglob("*") if path.is_file())
        found.note(f"{workdir}: checkpoint {step} differs; files {files}")
    if there is not None and len(there) < step:
        found.lost += step - len(there)
        found.note(f"{workdir}: {len(there)} rows for checkpoint {step}")


def segments(workdir: StorePath) -> list[dict[str, Any]]:
    """All rows of metrics in a bucket, untimed."""
    return [
        untimed(row)
        for path in sorted((workdir / "metrics").iterdir())
        for row in (json.loads(line) for line in path.read_bytes().splitlines())
    ]


def newest(workdir: StorePath) -> int | None:
    """The newest checkpoint that says that it is whole: Orbax's mark on `gs://`, ours on `s3://`."""
    # Orbax's mark is also among the files that are copied to `s3://`, where it says nothing about the others.
    mark = "commit_success.txt" if workdir.scheme == "gs" else "committed"
    skip = len((workdir / "checkpoints").key) + 1
    parts = [entry.key[skip:].split("/") for entry in (workdir / "checkpoints").entries()]
    return max((int(part[0]) for part in parts if len(part) == 2 and part[1] == mark), default=None)


def fetch(workdir: StorePath, step: int, copies: Path) -> Path:
    """Copies a checkpoint to disk."""
    folder = workdir / "checkpoints" / str(step)
    for entry in folder.entries():
        path = copies / entry.key.removeprefix(f"{folder.key}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        workdir.store.download(entry.key, path)
    return copies


def state_digest(checkpoint: Path) -> str | None:
    """SHA-256 of all arrays of a checkpoint on disk, and of its other values but for times; None without."""
    reader, folder = ocp.StandardCheckpointer(), (checkpoint / "state").resolve()
    stored = reader.metadata(folder).item_metadata
    if stored is None:
        return None
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), stored.tree)
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(reader.restore(folder, wanted)):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode() + array.tobytes())
    extra = json.loads((checkpoint / "extra" / "metadata").read_text())
    digest.update(json.dumps([untimed(extra["metrics"]), extra["data"]], sort_keys=True).encode())
    return digest.hexdigest()


def _compare(
    workdir: StorePath, straight: Run, rows: list[dict[str, Any]], copies: Path, found: Kills
) -> dict[str, Any]:
    there = segments(workdir)
    steps = Counter(row["step"] for row in there)
    found.lost += sum(row["step"] not in steps for row in rows)
    found.doubled += sum(steps.values()) - len(steps)
    export = resolve_model(str(workdir / "export"))
    return {
        "metrics": there == rows,
        "checkpoint": newest(workdir) == STEPS
        and state_digest(fetch(workdir, STEPS, copies))
        == state_digest(straight.workdir / "checkpoints" / str(STEPS)),
        "export": model_digest(export) == model_digest(straight.workdir / "export"),
        "steps": json.loads((workdir / "report.json").read_bytes())["steps"] == STEPS,
    }


def model_digest(folder: Path) -> str:
    """SHA-256 of a model folder's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"error: waited {_WAIT_S:.0f} s for {what}")
        time.sleep(_POLL_S)
