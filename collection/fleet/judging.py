"""Judging of played episodes, several at a time, in a process of its own: no browser waits for a verdict."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from collection.browser.guard.redaction import Redactor
from collection.browser.processes import reap_orphans
from collection.fleet.browser_pool import read_secrets
from collection.fleet.build import FleetConfig
from collection.fleet.journals import FOLDER, JournalEntry, append_record, new_journal, read_entry
from collection.fleet.worker import RunFailure, run_failure
from collection.judges.base import with_verdict
from collection.judges.build import make_judge
from collection.llm.calls import Calls, connect
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Trajectory

# Deaths of the process in a row, without a verdict between them, that stop the run.
_MAX_DEATHS = 3
_STOP_S = 10.0


class JudgeDied:
    """The process has ended; what it had finished is in its journal."""


JudgeMessage = JournalEntry | RunFailure | JudgeDied


class JudgeProcess:
    """Judges episodes that are on disk, and appends them with their verdicts to a journal of its own.

    The process starts with the first episode. One that dies is replaced.

    Args:
      config: with a judge.
      concurrent: number of episodes that are judged at a time.
      wake: called from another thread when there is something to receive.
    """

    def __init__(self, workdir: Path, config: FleetConfig, concurrent: int, wake: Callable[[], None]):
        self._workdir, self._config, self._concurrent, self._wake = workdir, config, concurrent, wake
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._link: Connection | None = None
        self._received: queue.SimpleQueue[JudgeMessage] = queue.SimpleQueue()
        # What is judged, by task and attempt.
        self._waiting: dict[tuple[str, int], JournalEntry] = {}
        self._deaths = 0
        self._reader = threading.Thread()
        self.journal = ""

    @property
    def waiting(self) -> int:
        """Number of episodes whose verdict has not been received."""
        return len(self._waiting)

    def submit(self, entry: JournalEntry) -> None:
        """Lets an episode be judged; one that is waiting already is judged once."""
        if (entry.task_id, entry.attempt) in self._waiting:
            return
        self._waiting[entry.task_id, entry.attempt] = entry
        if self._process is None:
            self._start()
        self._send(entry)

    def receive(self) -> list[JudgeMessage]:
        """Returns what has come: episodes with their verdicts, and errors; never waits."""
        messages: list[JudgeMessage] = []
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self._received.get_nowait())
        for message in messages:
            if isinstance(message, JournalEntry):
                self._deaths = 0
        return messages

    def done(self, judged: JournalEntry) -> JournalEntry:
        """Takes note of a verdict; returns the entry that was submitted."""
        return self._waiting.pop((judged.task_id, judged.attempt), judged)

    def restart(self, judged: bool) -> None:
        """Replaces a process that has died, and lets it judge what its predecessor had not.

        Args:
          judged: it had judged something that it had not reported.

        Raises:
          UserError: it has died several times without a verdict.
        """
        self._end()
        self._deaths = 0 if judged else self._deaths + 1
        if self._deaths >= _MAX_DEATHS:
            raise UserError(
                f"config.judge: its process died {self._deaths} times in a row; see the log, then run again"
            )
        if self._waiting:
            self._start()
            for entry in self._waiting.values():
                self._send(entry)

    def close(self) -> None:
        """Ends the process; episodes that wait are judged when the run is resumed."""
        if self._link is not None and not self._waiting:
            self._send(None)
            self._process.join(_STOP_S)
        self._end()

    def _start(self) -> None:
        self.journal = new_journal(self._workdir)
        self._link, theirs = self._context.Pipe()
        arguments = (theirs, self._workdir, self.journal, self._config, self._concurrent)
        self._process = self._context.Process(target=judge_episodes, args=arguments, name="judge")
        self._process.start()
        theirs.close()
        self._reader = threading.Thread(target=self._read, args=(self._link,), name="verdicts", daemon=True)
        self._reader.start()

    def _send(self, entry: JournalEntry | None) -> None:
        assert self._link is not None
        # `JudgeDied` follows.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._link.send(entry)

    def _read(self, link: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._received.put(link.recv())
                self._wake()
        if link is self._link:
            self._received.put(JudgeDied())
            self._wake()

    def _end(self) -> None:
        # Its end is no news.
        link, self._link = self._link, None
        if self._process is None:
            return
        if self._process.is_alive():
            # Official judges run processes of their own.
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()  # It has not created its process group yet.
        self._process.join()
        self._process.close()
        self._process = None
        self._reader.join(_STOP_S)  # It has met the end of the link.
        if link is not None:
            link.close()
        reap_orphans()


def judge_episodes(
    link: Connection, workdir: Path, journal: str, config: FleetConfig, concurrent: int
) -> None:
    """Judges the episodes whose entries come from `link` until None comes; the target of the process."""
    os.setpgrp()
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        return  # The parent ended before `die_with_parent`.
    sending = threading.Lock()

    def answer(message: JournalEntry | RunFailure) -> None:
        with sending, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.send(message)

    try:
        assert config.judge is not None
        # A run whose verdict cannot be read is judged again when the run is resumed.
        calls = connect(config.calls) if config.calls else Calls()
        judge = make_judge(config.judge, calls, keep_rejected=False)
        redactor = Redactor(read_secrets(config.settings.secrets)[0], cards=True)
    except UserError as error:
        answer(RunFailure(str(error), error.exit_code))
        with contextlib.suppress(EOFError, ConnectionResetError):
            while link.recv() is not None:
                pass
        return
    images, writing = ImageStore(workdir), threading.Lock()

    def one(entry: JournalEntry) -> None:
        try:
            played = read_entry(workdir, entry)
            assert isinstance(played, Trajectory)
            judged = with_verdict(played, judge, images, redactor.text)
            with writing:
                written = append_record(judged, records, journal)
            answer(written)
        except BaseException as error:
            try:
                answer(run_failure(error, workdir))
            except BaseException:
                # A judge with an error of its own must not leave the run waiting.
                traceback.print_exc()
                os._exit(1)

    with (
        Journal(workdir / FOLDER / journal) as records,
        ThreadPoolExecutor(concurrent, thread_name_prefix="judge") as pool,
        contextlib.suppress(EOFError, ConnectionResetError),
    ):
        while (entry := link.recv()) is not None:
            pool.submit(one, entry)
