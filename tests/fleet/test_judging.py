"""Judging apart from the browsers: several episodes at a time, through deaths of its process."""

import dataclasses
import itertools
import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.fleet.journals import FOLDER, JournalIndex, append_record, load_histories, new_journal
from collection.fleet.judging import JudgeDied, JudgeProcess
from collection.fleet.rounds import Job
from collection.fleet.worker import RunFailure
from collection.judges.build import JudgeConfig
from collection.llm.config import ModelConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.journal import Journal
from tests.fleet.acting import config
from tests.judges.runs import run
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer

PATIENCE_S = 120.0


def judged_by(server, **changes):
    """A worker's settings, with our outcome judge at that server."""
    model = ModelConfig(kind="chat", model="judge", base_url=f"{server.url}/v1", calls=1, **changes).resolve()
    return dataclasses.replace(config(), judge=JudgeConfig(model, "own_outcome"))


def played(workdir, count):
    """Puts episodes without verdicts on disk, of a task each."""
    name, records = (
        new_journal(workdir),
        [run(1, f"web/shop.test/{n}", final_text=f"{n} EUR") for n in range(count)],
    )
    with Journal(workdir / FOLDER / name) as journal:
        return [append_record(_without_pictures(one), journal, name) for one in records]


def _without_pictures(trajectory):
    steps = [
        step.model_copy(update={"observation": step.observation.model_copy(update={"screenshot": None})})
        for step in trajectory.steps
    ]
    return trajectory.model_copy(update={"steps": tuple(steps)})


class Received:
    """The messages of a process, which are waited for."""

    def __init__(self, workdir, worker, concurrent=3):
        self._woken = threading.Event()
        self.judges = JudgeProcess(workdir, worker, concurrent, self._woken.set)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.judges.close()

    def next(self):
        """The messages that come first."""
        while not (messages := self.judges.receive()):
            assert self._woken.wait(PATIENCE_S)
            self._woken.clear()
        return messages


def test_episodes_are_judged_several_at_a_time(tmp_path):
    together = threading.Barrier(3)

    def reply(prompt):
        together.wait(PATIENCE_S)  # Nothing is answered before three ask.
        return completion("As asked.\nSUCCESS")

    index = JournalIndex(tmp_path, judged=True)
    with PromptServer(reply) as server, Received(tmp_path, judged_by(server)) as received:
        entries = played(tmp_path, 6)
        for entry in entries:
            assert index.add(entry) and index.awaits_verdict(entry)
            received.judges.submit(entry)
            received.judges.submit(entry)
        assert not index.entries, "what waits for a verdict is not published"
        while received.judges.waiting:
            for message in received.next():
                assert index.add(message) and received.judges.done(message) in entries
        assert len(server.calls) == 6
    assert [entry.round.fate for entry in index.entries] == ["solved"] * 6
    histories = load_histories(tmp_path)
    judges = {one.judge for history in histories.values() for one in history.trajectories.values()}
    assert judges == {"own_outcome (judge)"} and len(histories) == 6


def test_a_process_that_dies_loses_and_doubles_nothing(tmp_path):
    with (
        PromptServer(lambda _: completion("SUCCESS")) as server,
        Received(tmp_path, judged_by(server)) as got,
    ):
        server.hang_from = 3
        index = JournalIndex(tmp_path, judged=True)
        for entry in played(tmp_path, 5):
            index.add(entry)
            got.judges.submit(entry)
        for _ in range(2):
            assert server.hung.acquire(timeout=PATIENCE_S)
        os.killpg(got.judges._process.pid, signal.SIGKILL)
        server.hang_from = 0
        while got.judges.waiting:
            for message in got.next():
                if isinstance(message, JudgeDied):
                    found = index.scan(got.judges.journal)
                    for entry in found:
                        got.judges.done(entry)
                    got.judges.restart(judged=bool(found))
                else:
                    index.add(message)
                    got.judges.done(message)
    assert len(index.entries) == 5 and {entry.round.fate for entry in index.entries} == {"solved"}
    again = JournalIndex(tmp_path, judged=True)
    assert sorted(map(repr, again.entries)) == sorted(map(repr, index.entries))


def test_a_process_that_only_dies_stops_the_run(tmp_path):
    with (
        PromptServer(lambda _: completion("SUCCESS")) as server,
        Received(tmp_path, judged_by(server)) as got,
    ):
        server.hang_from = 1
        (entry,) = played(tmp_path, 1)
        got.judges.submit(entry)
        with pytest.raises(UserError, match=r"config\.judge: its process died 3 times in a row"):
            for _ in range(3):
                assert server.hung.acquire(timeout=PATIENCE_S)
                os.killpg(got.judges._process.pid, signal.SIGKILL)
                (message,) = got.next()
                assert isinstance(message, JudgeDied)
                got.judges.restart(judged=False)


def test_an_episode_that_cannot_be_read_does_not_leave_the_run_waiting(tmp_path):
    with (
        PromptServer(lambda _: completion("SUCCESS")) as server,
        Received(tmp_path, judged_by(server)) as got,
    ):
        (entry,) = played(tmp_path, 1)
        got.judges.submit(dataclasses.replace(entry, journal="lost.jsonl"))
        (message,) = got.next()
        assert isinstance(message, JudgeDied)


def test_a_judge_that_cannot_work_is_one_line(tmp_path):
    with PromptServer(lambda _: completion("SUCCESS")) as server:
        worker = judged_by(server)
        settings = worker.settings.model_copy(update={"secrets": ("RMSWEB_NOT_SET",)})
        worker = dataclasses.replace(worker, settings=settings)
        with Received(tmp_path, worker) as got:
            got.judges.submit(played(tmp_path, 1)[0])
            (failure,) = got.next()
    assert isinstance(failure, RunFailure) and failure.exit_code == UserError.exit_code
    assert failure.reason.startswith("config.secrets: the environment variable RMSWEB_NOT_SET")


ENDED = {"outcome": "unreachable", "judge_text": "", "declared_success": None, "detail": "down"}
VERDICT = {"judge": "j", "judge_text": "SUCCESS", "success": True}
UNREAD = {"judge_text": "?"}


@given(st.permutations(["ended", "ended again", "played", "unread", "judged"]))
def test_the_record_that_says_most_counts_in_any_order(tmp_path_factory, order):
    """Journals are read by number, and not in the order in which they were written."""
    folder = tmp_path_factory.mktemp("journals")
    changes = {"ended": ENDED, "ended again": ENDED, "played": {}, "unread": UNREAD, "judged": VERDICT}
    entries = {}
    for number, name in enumerate(changes):
        journal = new_journal(folder)
        with Journal(folder / FOLDER / journal) as file:
            record = run(1, **changes[name]).model_copy(update={"seconds": float(number)})
            entries[name] = append_record(record, file, journal)
    ranks = {"ended": 0, "ended again": 1, "played": 2, "unread": 3, "judged": 4}
    index, best = JournalIndex(folder / "empty", judged=True), -1
    for name in order:
        assert index.add(entries[name]) == (ranks[name] > best), name
        best = max(best, ranks[name])
        (known,) = index.rounds(entries[name].task_id)
        assert known == entries[list(ranks)[best]]


@pytest.mark.parametrize("replays", [0, 1, 2])
def test_what_ended_without_a_result_is_played_again_so_often(tmp_path, replays):
    task = run(1).task.task_id
    for times in itertools.count(1):
        name = new_journal(tmp_path)
        with Journal(tmp_path / FOLDER / name) as journal:
            append_record(run(1, **ENDED).model_copy(update={"attempt": 1}), journal, name)
        index = JournalIndex(tmp_path)
        again = index.reopen(task, replays)
        assert again == (times <= replays) and len(index.entries) == 1 - again
        assert Job(run(1).task, attempts=1).is_over(index.successes(task)) == (not again)
        if not again:
            assert times == replays + 1
            return
