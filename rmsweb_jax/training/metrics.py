"""Metrics and sampled replies as JSON lines and in TensorBoard; a resumed run continues both.

Objects of a bucket cannot be appended to. There the files are written whole at each checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import logging
import math
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import AnyPath, StorePath, folder_on_disk

METRICS_FILE = "metrics.jsonl"
REPLIES_FILE = "replies.jsonl"
GROUPS_FILE = "groups.jsonl"
_BOARD = "tensorboard"
# Replies of an evaluation that TensorBoard and the log show; the file has all of them.
_BOARD_REPLIES, _LOG_REPLIES = 8, 2
# Seconds between two copies of TensorBoard's file to a bucket: it goes there whole.
_BOARD_S = 600.0


@dataclasses.dataclass(frozen=True)
class SampledReply:
    """A policy's reply to a held-out prompt.

    Attributes:
      reply: the sampled text.
      target: the verified text.
      reward: reward of the reply, in [0, 1].
    """

    sample_id: str
    reply: str
    target: str
    reward: float


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows of `folder/metrics.jsonl`, one for each step."""
    return read_rows(folder / METRICS_FILE)


def read_rows(path: AnyPath) -> list[dict[str, Any]]:
    """Reads a file that `MetricWriter` wrote; leaves out a torn last line, which a crash may leave."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


class MetricWriter:
    """Writes one row for each step; a resumed run first removes the rows of steps that it repeats.

    In a multi-host run only the first process writes.

    Args:
      workdir: gets `metrics.jsonl`, `tensorboard/` and, if there are any, `replies.jsonl` and `groups.jsonl`.
        Where it is in a bucket, they are in its folder on disk, and `publish` copies them.
      resume_step: the last step whose rows are kept; 0 starts with empty files.
    """

    def __init__(self, workdir: AnyPath, resume_step: int = 0):
        self._active = jax.process_index() == 0
        if not self._active:
            return
        folder = folder_on_disk(workdir)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._bucket = folder, workdir if isinstance(workdir, StorePath) else None
        self._board_due = 0.0
        self._replies, self._groups = folder / REPLIES_FILE, folder / GROUPS_FILE
        for name in (METRICS_FILE, REPLIES_FILE, GROUPS_FILE):
            if self._bucket and resume_step and (self._bucket / name).exists():
                (self._bucket / name).download(folder / name)
            if name == METRICS_FILE or (folder / name).exists():
                _cut(folder / name, resume_step)
        self._metrics = open(folder / METRICS_FILE, "ab")  # noqa: SIM115 - closed by close()
        self._board = _Board(folder / _BOARD, resume_step + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends the row {step, time, **values}; array scalars become floats, and non-finite values null."""
        if not self._active:
            return
        plain = plain_values(values)
        numbers = {key: value for key, value in plain.items() if isinstance(value, int | float)}
        with _named(self._metrics.name):
            self._metrics.write(_line({"step": step, "time": round(time.time(), 3), **plain}))
            # A kill after a step must not lose its row: resuming reads the file.
            self._metrics.flush()
        self._board.add_scalars(numbers, step)

    def write_replies(self, step: int, replies: Sequence[SampledReply]) -> None:
        """Appends the replies of one evaluation; TensorBoard and the log show the first few."""
        if not self._active or not replies:
            return
        rows = [{"step": step, **dataclasses.asdict(reply)} for reply in replies]
        with _named(self._replies), open(self._replies, "ab") as file:
            file.write(b"".join(map(_line, rows)))
        shown = "\n\n".join(map(_markdown, replies[:_BOARD_REPLIES]))
        self._board.add_text("eval/replies", shown, step)
        for reply in replies[:_LOG_REPLIES]:
            logging.info("step %d, %s: reward %.2f for %r", step, reply.sample_id, reply.reward, reply.reply)

    def write_groups(self, step: int, groups: Sequence[Mapping[str, Any]]) -> None:
        """Appends groups of rollouts for people to read, as a row {step, **group} each."""
        if self._active and groups:
            with _named(self._groups), open(self._groups, "ab") as file:
                file.write(b"".join(_line({"step": step, **group}) for group in groups))

    def publish(self) -> None:
        """Copies the files to the bucket; to be called before a checkpoint is saved."""
        if not self._active or not self._bucket:
            return
        paths = [self._folder / name for name in (METRICS_FILE, REPLIES_FILE, GROUPS_FILE)]
        if time.monotonic() >= self._board_due:
            self._board_due = time.monotonic() + _BOARD_S
            self._board.flush()
            paths += (self._folder / _BOARD).iterdir()
        for path in paths:
            if path.exists():
                (self._bucket / path.relative_to(self._folder).as_posix()).upload(path)

    def close(self) -> None:
        if self._active:
            with _named(self._metrics.name):
                self._metrics.close()
            self._board.close()

    def __enter__(self) -> MetricWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Gives an error of an open file, such as that of a full disk, the file's name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Has imports of a package fail, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # pyright: ignore[reportArgumentType]  # Documented: its import fails.
    try:
        yield
    finally:
        del sys.modules[package]


class _Board:
    """The file of TensorBoard.

    tensorboardX's own `SummaryWriter` has a thread write it. That ends with the first error, such as that of
    a full disk, and who adds more waits for it without end.

    Args:
      first: TensorBoard hides points from this step on that an earlier run of the folder wrote.
    """

    _FLUSH_S = 60.0

    def __init__(self, folder: Path, first: int):
        with _hidden("torch"):  # tensorboardX imports it where it is installed, which takes seconds.
            from tensorboardX import summary
            from tensorboardX.event_file_writer import EventsWriter

            events: Any = importlib.import_module("tensorboardX.proto.event_pb2")
        self._summary, self._event = summary, events.Event
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._flushed = folder, time.monotonic()
        with _named(folder):
            self._file = EventsWriter(str(folder / "events"))
        self._write(first, session_log=events.SessionLog(status=events.SessionLog.START))

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._write(step, summary=self._summary.scalar(name, value))
        if time.monotonic() > self._flushed + self._FLUSH_S:
            self.flush()

    def add_text(self, name: str, text: str, step: int) -> None:
        self._write(step, summary=self._summary.text(name, text))

    def _write(self, step: int, **content: Any) -> None:
        with _named(self._name):
            self._file.write_event(self._event(step=step, wall_time=time.time(), **content))

    def flush(self) -> None:
        with _named(self._name):
            self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        with _named(self._name):
            self._file.close()


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metrics as JSON: array scalars as floats, and non-finite values as null."""
    return {key: _plain(value) for key, value in values.items()}


def _cut(path: Path, last_step: int) -> None:
    kept = [row for row in read_rows(path) if row["step"] <= last_step]
    write_atomic(path, b"".join(map(_line, kept)))


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | bool) or value is None:
        return value
    number = float(value)
    # NaN and Infinity are not JSON.
    return number if math.isfinite(number) else None


def _markdown(reply: SampledReply) -> str:
    texts = "\n\n".join(textwrap.indent(text, "    ") for text in (reply.reply, reply.target))
    return f"**{reply.sample_id}**: {reply.reward:.2f}\n\n{texts}"
