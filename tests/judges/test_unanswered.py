"""An endpoint that times out, refuses or is broken: unjudged runs, or the end of the run, never a pass."""

import pytest

from collection.agent.loop import EpisodeLimits, EpisodeRunner
from collection.agent.prompt import PromptConfig
from collection.judges.base import unjudged
from collection.llm.ledger import LEDGER, CallLedger
from collection.llm.model import BudgetError
from rmsweb_jax.errors import UserError
from tests.agent.plain_episode import DONE, TASK, Lines, Page, reply
from tests.judges.runs import run
from tests.judges.server import Pictures, judge_at, says
from tests.llm.answers import PER_DAY, completion, gemini_error
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer


def episode(judge):
    """One episode on a live page whose agent says that it is done."""
    runner = EpisodeRunner(
        Page(reward=None),
        Lines(reply(DONE)),
        Pictures(),
        "teacher",
        PromptConfig("compact"),
        EpisodeLimits(),
        judge,
    )
    return runner.run_episode(TASK.model_copy(update={"environment": "web"}), attempt=1)


@pytest.mark.parametrize("api", ["chat", "gemini"])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(silent=True), "ReadTimeout"),
        (Answer(reset=True), "ReadError"),
        (Answer(429, {"error": {"message": "slow down"}}), "status 429: slow down"),
        (Answer(503, {"error": {"message": "overloaded"}}), "status 503: overloaded"),
    ],
    ids=["timeout", "reset", "rate limit", "overload"],
)
def test_no_answer_in_all_attempts_is_an_unjudged_episode(api, answer, reason):
    settings = {"kind": api, "timeout_s": 0.2 if answer.silent else 30.0}
    with PromptServer(lambda _: answer) as server, judge_at(server, "outcome", **settings) as judge:
        trajectory = episode(judge)
    assert (trajectory.success, trajectory.judge) == (False, "") and unjudged(trajectory)
    assert trajectory.judge_text.startswith("[no answer: ") and reason in trajectory.judge_text
    assert "no answer after 1 calls" in trajectory.judge_text


@pytest.mark.parametrize(
    ("words", "success", "named", "open_"),
    [
        ("SUCCESS", True, True, False),
        ("NOT SUCCESS", False, True, False),
        ("UNKNOWN", False, False, True),
        ("unsuccessful", False, False, True),
        ("I can't help with that.", False, False, True),
        ("成功", False, False, True),
    ],
)
def test_a_judges_words_in_an_episode(words, success, named, open_):
    with PromptServer(says(outcome=words)) as server, judge_at(server, "outcome") as judge:
        trajectory = episode(judge)
        assert (trajectory.success, bool(trajectory.judge)) == (success, named)
        assert unjudged(trajectory) is open_ and trajectory.judge_text.startswith(words)
        assert trajectory.judge_usage.prompt_tokens == 1000 and trajectory.judge_score is None


@pytest.mark.parametrize(
    ("api", "answer", "reason"),
    [
        ("chat", Answer(401, {"error": {"message": "no such key"}}), "check the API key"),
        ("chat", Answer(404, {"error": {"message": "no such model"}}), "config.actor.model"),
        ("chat", Answer(429, {"error": {"message": "insufficient_quota"}}), "quota is used up"),
        ("chat", Answer(503, {"error": {"message": "down"}}, {"Retry-After": "7200"}), "asks to wait 7200 s"),
        ("gemini", gemini_error(400, "API key not valid."), "check GEMINI_API_KEY"),
        ("gemini", gemini_error(429, "quota", "", PER_DAY), "the quota is used up: continue tomorrow"),
    ],
    ids=["key", "model", "quota", "wait of hours", "Gemini key", "Gemini quota"],
)
def test_errors_that_affect_every_call_end_the_run(api, answer, reason):
    with (
        PromptServer(lambda _: answer) as server,
        judge_at(server, "outcome", kind=api) as judge,
        pytest.raises(UserError, match=reason),
    ):
        judge.judge(run(), Pictures())


def test_the_money_cap_ends_the_run(tmp_path):
    prices = {"price_prompt": 100.0, "price_response": 100.0, "cap_usd": 0.2, "ledger": tmp_path / LEDGER}
    with (
        PromptServer(says(status="Status: success")) as server,
        judge_at(server, "webjudge", **prices) as judge,
    ):
        with pytest.raises(BudgetError):
            judge.judge(run(), Pictures())
        assert 0 < len(server.calls) < 4
    assert CallLedger(tmp_path / LEDGER).spent() <= 0.2


def test_after_an_overload_the_same_question_is_asked_again_and_after_a_refusal_not(tmp_path):
    answers = [Answer(503, {"error": {"message": "overloaded"}}), completion("", "content_filter")]
    asked = []
    with PromptServer(lambda _: answers[min(len(asked), 1)]) as server:
        for _ in range(3):
            with judge_at(server, "outcome", path=tmp_path / "replies.sqlite") as judge:
                assert judge.judge(run(), Pictures()).success is None
            asked.append(len(server.calls))
    assert asked == [1, 2, 2]
