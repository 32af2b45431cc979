"""An answer is paid for once: over runs, threads and a spent budget."""

import pytest

from collection.llm.calls import CALLS, BudgetError, Calls
from collection.llm.model import ModelRequest, content_key
from collection.mining.judging import FailureLabeler
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, Message, TextPart
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.mining.label_server import REVIEW, chat_model, in_turn, kept_in, user_of, verdict
from tests.mining.runs import WANDERS, pair_of

NAMES = ("ui_navigation", "filter_context", "target_discovery")


def by_user(prompt):
    """Each task has a category of its own; every third is named by a review."""
    user = user_of(prompt)
    unsure = user % 3 == 0 and REVIEW not in prompt
    return completion(verdict(NAMES[user % 3], 0.5 if unsure else 0.9))


def question(text, **changes):
    message = Message(role="user", content=(TextPart(text=text),))
    return ModelRequest(**({"messages": (message,), "purpose": "judge", "seed": 1} | changes))


def test_a_second_run_makes_no_call_and_gives_the_same_labels(tmp_path):
    pairs = [pair_of(number) for number in range(1, 7)]
    with PromptServer(by_user) as server:
        labels = FailureLabeler(chat_model(server, price=(1.0, 0.0, 0.0), file=tmp_path / CALLS))
        first = labels.label_many(pairs)
        assert labels.requests == {"asked": 8, "cache_hits": 0} and len(server.calls) == 8
        labels = FailureLabeler(chat_model(server, price=(1.0, 0.0, 0.0), file=tmp_path / CALLS))
        again = labels.label_many(pairs, workers=3)
        assert labels.requests == {"asked": 0, "cache_hits": 8} and len(server.calls) == 8
    assert again == first and [label.source for label in first].count("review") == 2
    # The calls' own cost stays known, but is not paid again.
    assert sum(label.usage.cost for label in first) == pytest.approx(0.008)
    assert all(label.usage == CallUsage() for label in again)
    assert again[0].answers[0].usage == first[0].answers[0].usage != CallUsage()


def test_answers_that_cannot_be_used_are_kept_too(tmp_path):
    with PromptServer(in_turn("prose", completion('{"a', "length"))) as server:
        for _ in range(2):
            labels = FailureLabeler(chat_model(server, file=tmp_path / CALLS))
            pair = pair_of(1)
            label = labels.label(pair.success, pair.localization)
            assert label.source == "rule"
            assert [(answer.fault, answer.text) for answer in label.answers] == [
                ("not_json", "prose"),
                ("no_answer", '{"a'),
            ]
        assert len(server.calls) == 2


def test_another_question_model_or_schema_is_asked(tmp_path):
    key = content_key("m", question("x"))
    assert key == content_key("m", question("x", seed=2))
    assert key != content_key("m", question("y"))
    assert key != content_key("other", question("x"))
    assert key != content_key("m", question("x", schema={"type": "object"}))
    with PromptServer(by_user) as server:
        labels = FailureLabeler(chat_model(server, file=tmp_path / CALLS))
        labels.label_many([pair_of(1), pair_of(1, *WANDERS)])
        assert labels.requests == {"asked": 2, "cache_hits": 0}
        labels = FailureLabeler(chat_model(server, model="judge-2", file=tmp_path / CALLS))
        labels.label_many([pair_of(1)])
        assert labels.requests == {"asked": 1, "cache_hits": 0}


def test_threads_label_in_order_and_ask_each_question_once(tmp_path):
    pairs = [pair_of(number % 20) for number in range(60)]
    done = []
    with PromptServer(by_user) as server:
        labels = FailureLabeler(chat_model(server, file=tmp_path / CALLS))
        found = labels.label_many(pairs, workers=8, on_label=lambda *counts: done.append(counts))
        assert [label.category for label in found] == [NAMES[number % 20 % 3] for number in range(60)]
        # 20 first judgments and the reviews of 0, 3, ..., 18.
        assert len(server.calls) == len(set(server.prompts)) == 27 == labels.requests["asked"]
    assert labels.requests["cache_hits"] == 2 * 27
    assert done == [(number, 60) for number in range(1, 61)]
    assert kept_in(tmp_path / CALLS) == 27
    with pytest.raises(UserError, match="workers=0"):
        labels.label_many(pairs, workers=0)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_spent_budget_keeps_answers(tmp_path, workers):
    pairs = [pair_of(number) for number in range(1, 31)]
    settings = {"file": tmp_path / CALLS, "price": (1.0, 0.0, 1.0)}
    with PromptServer(by_user) as server:
        # A call costs 0.0011 $.
        capped = chat_model(server, cap_usd=0.011, **settings)
        labels = FailureLabeler(capped)
        with pytest.raises(BudgetError, match=r"raise config\.actor\.cap_usd") as error:
            labels.label_many(pairs, workers)
        assert error.value.exit_code == 4
        kept = kept_in(tmp_path / CALLS)
        assert kept == len(server.calls) and 5 <= kept <= 10
        assert Calls(tmp_path / CALLS).spent() == pytest.approx(0.0011 * kept)
        labels = FailureLabeler(chat_model(server, **settings))
        found = labels.label_many(pairs, workers)
        assert labels.requests == {"asked": 40 - kept, "cache_hits": kept}
        assert len(server.calls) == len(set(server.prompts)) == 40
    assert [label.category for label in found] == [NAMES[number % 3] for number in range(1, 31)]


def test_after_an_error_no_pair_is_begun(tmp_path):
    def refuses(prompt):
        return Answer(401, {"error": {"message": "no such key"}}) if user_of(prompt) == 4 else by_user(prompt)

    with PromptServer(refuses) as server:
        labels = FailureLabeler(chat_model(server))
        with pytest.raises(UserError, match="check the API key"):
            labels.label_many([pair_of(number) for number in (1, 2, 4, 5, 7, 8)])
        assert [user_of(prompt) for prompt in server.prompts] == [1, 2, 4]
        assert labels.requests["asked"] == 2
