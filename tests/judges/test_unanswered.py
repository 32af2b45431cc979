"""An endpoint that times out, refuses or is broken: unjudged runs, or the end of the run, never a pass."""

import pytest

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.judges.base import unjudged, with_verdict
from collection.llm.calls import CALLS
from rmsweb_jax.errors import UserError
from tests.agent.plain_episode import DONE, TASK, Lines, Page, reply
from tests.judges.runs import run
from tests.judges.server import Pictures, judge_at, says
from tests.judges.verdicts import outcome
from tests.llm.answers import PER_DAY, completion, gemini_error
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer


def episode(judge, done=DONE, constraints=()):
    """One episode on a live page whose agent says that it is done, and its verdict."""
    runner = EpisodeRunner(
        Page(reward=None),
        Lines(reply(done)),
        Pictures(),
        "teacher",
        PromptConfig(style="compact"),
        EpisodeLimits(),
    )
    task = TASK.model_copy(update={"environment": "web", "constraints": constraints})
    return with_verdict(runner.run_episode(task, attempt=1), judge, Pictures())


YES, NO = outcome("success"), outcome("failure")


@pytest.mark.parametrize(("constraints", "calls"), [(("If none is free, say so.",), 1), ((), 0)])
def test_a_right_answer_that_says_no_is_a_success(constraints, calls):
    no = {"done": {"text": "No table is free.", "success": False}}
    with PromptServer(says(outcome=YES)) as server, judge_at(server, "own_outcome") as judge:
        assert episode(judge, no, constraints).success is bool(calls) and len(server.calls) == calls


@pytest.mark.parametrize("api", ["chat", "gemini"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(silent=True), "ReadTimeout"),
        (Answer(503, {"error": {"message": "overloaded"}}), "status 503: overloaded"),
    ],
    ids=["timeout", "overload"],
)
def test_no_answer_in_all_attempts_is_an_unjudged_episode(api, answer, reason):
    settings = {"kind": api, "timeout_s": 0.2 if answer.silent else 30.0}
    with PromptServer(lambda _: answer) as server, judge_at(server, "own_outcome", **settings) as judge:
        trajectory = episode(judge)
    assert (trajectory.success, trajectory.judge) == (False, "") and unjudged(trajectory)
    assert trajectory.judge_text.startswith("[no answer: ") and reason in trajectory.judge_text
    assert "no answer after 1 calls" in trajectory.judge_text


@pytest.mark.parametrize(
    ("words", "success", "named", "calls"),
    [
        (YES, True, True, 1),
        (NO, False, True, 1),
        (outcome("unknown"), False, False, 1),
        ("unsuccessful", False, False, 2),
    ],
)
def test_a_judges_words_in_an_episode(words, success, named, calls):
    with PromptServer(says(outcome=words)) as server, judge_at(server, "own_outcome") as judge:
        trajectory = episode(judge)
        assert (trajectory.success, bool(trajectory.judge)) == (success, named)
        assert unjudged(trajectory) is not named and trajectory.judge_text.startswith(words)
        assert trajectory.judge_usage.prompt_tokens == calls * 1000 and trajectory.judge_score is None


@pytest.mark.parametrize(
    ("api", "answer", "reason"),
    [
        ("chat", Answer(401, {"error": {"message": "no such key"}}), "check the API key"),
        ("gemini", gemini_error(429, "quota", "", PER_DAY), "the quota is used up"),
    ],
    ids=["key", "quota"],
)
def test_errors_that_affect_every_call_end_the_run(api, answer, reason):
    with (
        PromptServer(lambda _: answer) as server,
        judge_at(server, "own_outcome", kind=api) as judge,
        pytest.raises(UserError, match=reason),
    ):
        judge.judge(run(), Pictures())


def test_after_an_overload_the_same_question_is_asked_again_and_after_two_refusals_not(tmp_path):
    answers = [Answer(503, {"error": {"message": "overloaded"}}), completion("", "content_filter")]
    asked = []
    with PromptServer(lambda _: answers[min(len(asked), 1)]) as server:
        for _ in range(3):
            with judge_at(server, "own_outcome", file=tmp_path / CALLS) as judge:
                assert judge.judge(run(), Pictures()).success is None
            asked.append(len(server.calls))
    assert asked == [1, 3, 3]
