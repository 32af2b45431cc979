"""Judging in the parent: several episodes at a time, apart from the browsers, and again after a kill."""

import contextlib
import itertools
import threading

import pytest

from collection.fleet.journal import RunJournal
from collection.fleet.rounds import Job
from collection.judges.build import JudgeConfig
from collection.llm.config import ModelConfig
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.records.journal import read_journal
from tests.fleet.acting import Act, config, run
from tests.judges import runs
from tests.judges.verdicts import outcome
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer

PATIENCE_S = 120.0


def judged_by(server):
    """Our outcome judge at that server."""
    model = ModelConfig(kind="chat", model="judge", base_url=f"{server.url}/v1", calls=1).resolve()
    return JudgeConfig(model, "own_outcome")


def episode(number, **changes):
    """An episode of a task of its own, without a verdict."""
    played = runs.run(1, f"web/shop.test/{number}", final_text=f"{number} EUR", **changes)
    steps = [
        step.model_copy(update={"observation": step.observation.model_copy(update={"screenshot": None})})
        for step in played.steps
    ]
    return played.model_copy(update={"steps": tuple(steps)})


def job(number, **rules):
    return Job(episode(number).task, **({"attempts": 1} | rules))


def script(task, number):
    return Act(played=episode(task.rpartition("/")[2]))


def rounds(workdir):
    with contextlib.closing(RunJournal(workdir)) as journal:
        return [one for of in journal.rounds.values() for one in of.values()]


def test_episodes_are_judged_several_at_a_time(tmp_path):
    together = threading.Barrier(3)

    def reply(prompt):
        together.wait(PATIENCE_S)  # Nothing is answered before three ask.
        return completion(outcome("success"))

    jobs = [job(number) for number in range(6)]
    with PromptServer(reply) as server:
        _, played = run(jobs, tmp_path, script, config(judgements=3, workers=6), judge=judged_by(server))
        assert len(server.calls) == 6
    status = played.status()
    assert (status.rounds, status.successes, status.judging, status.tasks_done) == (6, 6, 0, 6)
    assert [one.fate for one in rounds(tmp_path)] == ["solved"] * 6
    with contextlib.closing(RunJournal(tmp_path)) as journal:
        assert {journal.read(one).judge for one in rounds(tmp_path)} == {"own_outcome (judge)"}
        assert len(read_journal(journal.path)) == 12, "as it was played, and with its verdict"


def test_a_round_that_needs_a_verdict_waits_for_it(tmp_path):
    """The second verdict is a success, which ends the task."""
    answers = iter([outcome("failure"), outcome("success")])

    def twice(task, number):
        assert [one.awaits_verdict for one in rounds(tmp_path)] == [False] * number
        changes = {"attempt": number + 1, "final_text": f"{number} EUR"}
        return Act(played=episode(0).model_copy(update=changes))

    with PromptServer(lambda _: completion(next(answers))) as server:
        task = job(0, attempts=5, stop_after=1, reflective=True)
        pool, _ = run([task], tmp_path, twice, config(), judge=judged_by(server))
    assert len(pool.begun) == 2 and [one.success for one in rounds(tmp_path)] == [False, True]


def test_episodes_that_a_stopped_run_has_not_judged_are_judged_by_the_next(tmp_path):
    settings = config(drain_seconds=0.0)
    with PromptServer(lambda _: completion(outcome("success"))) as server:
        run([job(0)], tmp_path, script, settings)  # Without a judge.
        assert [one.fate for one in rounds(tmp_path)] == ["unjudged"]
        with pytest.raises(StoppedError):
            run([job(0), job(1)], tmp_path, script, settings, lambda now: True, judge=judged_by(server))
        pool, _ = run([job(0)], tmp_path, script, settings, judge=judged_by(server))
    assert not pool.begun and [one.fate for one in rounds(tmp_path)] == ["solved"]


def test_a_judge_that_cannot_work_is_one_line(tmp_path):
    settings = config().model_copy(update={"secrets": ("RMSWEB_NOT_SET",)})
    with (
        PromptServer(lambda _: completion(outcome("success"))) as server,
        pytest.raises(UserError, match=r"config\.secrets: the environment variable RMSWEB_NOT_SET") as error,
    ):
        run([job(0)], tmp_path, script, settings, judge=judged_by(server))
    assert error.value.exit_code == 2


def test_an_error_of_a_judge_ends_the_run_and_is_no_verdict(tmp_path, capfd):
    with (
        PromptServer(lambda _: completion(outcome("success"))) as server,
        pytest.raises(UserError, match="unexpected ValueError; see the log"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("collection.fleet.run.with_verdict", lambda *_, **__: int("x"))
        run([job(0)], tmp_path, script, config(), judge=judged_by(server))
    assert "invalid literal" in capfd.readouterr().err
    assert [one.fate for one in rounds(tmp_path)] == ["unjudged"]


ENDED = {"outcome": "unreachable", "judge_text": "", "declared_success": None, "detail": "down"}


@pytest.mark.parametrize("replays", [0, 1, 2])
def test_what_ended_without_a_result_is_played_again_so_often(tmp_path, replays):
    task = job(0, replays=replays)
    for times in itertools.count(1):
        pool, played = run([task], tmp_path, lambda *_: Act(played=episode(0, **ENDED)), config())
        if not pool.begun:
            assert times == replays + 2
            break
        assert played.status().rounds == 1
    # A result is not played again.
    run([job(1)], tmp_path, script, config())
    assert not run([job(1, replays=9)], tmp_path, script, config())[0].begun
