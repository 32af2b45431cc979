"""An answer is paid for once: over runs, threads, a spent budget and a broken file."""

import contextlib
import multiprocessing
import sqlite3

import pytest

from collection.llm.build import make_model
from collection.llm.cached import CachedModel, content_key
from collection.llm.config import ModelConfig
from collection.llm.ledger import LEDGER, CallLedger
from collection.llm.model import BudgetError, ModelRequest
from collection.mining.judging import ANSWERS, FailureLabeler
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, Message, TextPart
from tests.llm.answers import candidate, completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.mining.label_server import REVIEW, chat_model, in_turn, kept_in, user_of, verdict
from tests.mining.runs import WANDERS, label_users, pair_of

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
        with FailureLabeler(chat_model(server, price=(1.0, 0.0, 0.0)), tmp_path / ANSWERS) as labels:
            first = labels.label_many(pairs)
            assert labels.requests == {"asked": 8, "cache_hits": 0} and len(server.calls) == 8
        with FailureLabeler(chat_model(server, price=(1.0, 0.0, 0.0)), tmp_path / ANSWERS) as labels:
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
            with FailureLabeler(chat_model(server), tmp_path / ANSWERS) as labels:
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
        with FailureLabeler(chat_model(server), tmp_path / ANSWERS) as labels:
            labels.label_many([pair_of(1), pair_of(1, *WANDERS)])
            assert labels.requests == {"asked": 2, "cache_hits": 0}
        with FailureLabeler(chat_model(server, model="judge-2"), tmp_path / ANSWERS) as labels:
            labels.label_many([pair_of(1)])
            assert labels.requests == {"asked": 1, "cache_hits": 0}


def test_threads_label_in_order_and_ask_each_question_once(tmp_path):
    pairs = [pair_of(number % 20) for number in range(60)]
    done = []
    with PromptServer(by_user) as server:
        with FailureLabeler(chat_model(server), tmp_path / ANSWERS) as labels:
            found = labels.label_many(pairs, workers=8, on_label=lambda *counts: done.append(counts))
        assert [label.category for label in found] == [NAMES[number % 20 % 3] for number in range(60)]
        # 20 first judgments and the reviews of 0, 3, ..., 18.
        assert len(server.calls) == len(set(server.prompts)) == 27 == labels.requests["asked"]
    assert labels.requests["cache_hits"] == 2 * 27
    assert done == [(number, 60) for number in range(1, 61)]
    assert kept_in(tmp_path / ANSWERS) == 27
    with pytest.raises(UserError, match="workers=0"):
        labels.label_many(pairs, workers=0)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_spent_budget_keeps_answers(tmp_path, workers):
    pairs = [pair_of(number) for number in range(1, 31)]
    settings = {"ledger": tmp_path / LEDGER, "price": (1.0, 0.0, 1.0)}
    with PromptServer(by_user) as server:
        # A call costs 0.0011 $.
        capped = chat_model(server, cap_usd=0.011, **settings)
        with FailureLabeler(capped, tmp_path / ANSWERS) as labels:
            with pytest.raises(BudgetError, match=r"raise config\.actor\.cap_usd") as error:
                labels.label_many(pairs, workers)
            assert error.value.exit_code == 4
        kept = kept_in(tmp_path / ANSWERS)
        assert kept == len(server.calls) and 5 <= kept <= 10
        assert CallLedger(tmp_path / LEDGER).spent() == pytest.approx(0.0011 * kept)
        with FailureLabeler(chat_model(server, **settings), tmp_path / ANSWERS) as labels:
            found = labels.label_many(pairs, workers)
            assert labels.requests == {"asked": 40 - kept, "cache_hits": kept}
        assert len(server.calls) == len(set(server.prompts)) == 40
    assert [label.category for label in found] == [NAMES[number % 3] for number in range(1, 31)]


def test_after_an_error_no_pair_is_begun(tmp_path):
    def refuses(prompt):
        return Answer(401, {"error": {"message": "no such key"}}) if user_of(prompt) == 4 else by_user(prompt)

    with PromptServer(refuses) as server, FailureLabeler(chat_model(server), tmp_path / ANSWERS) as labels:
        with pytest.raises(UserError, match="check the API key"):
            labels.label_many([pair_of(number) for number in (1, 2, 4, 5, 7, 8)])
        assert [user_of(prompt) for prompt in server.prompts] == [1, 2, 4]
        assert labels.requests["asked"] == 2


def test_processes_share_a_cache(tmp_path):
    path = tmp_path / ANSWERS
    users = [(1, 2, 4, 5), (7, 8, 10, 11)]
    with PromptServer(by_user) as server:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.starmap(label_users, [(server.url, path, some) for some in users])
        assert found == [[NAMES[user % 3] for user in some] for some in users]
        # Each takes over what the other one asked.
        assert kept_in(path) == len(server.calls) == 8
        assert label_users(server.url, path, [8, 5]) == [NAMES[2], NAMES[2]] and len(server.calls) == 8


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / ANSWERS
    with PromptServer(by_user) as server:
        model = chat_model(server)
        path.write_bytes(b"no database, but long enough to be read as one " * 100)
        with pytest.raises(UserError, match=r"answers\.sqlite: not a reply cache .*use another --workdir"):
            CachedModel(model, path)
        path.unlink()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE replies (key TEXT, text TEXT)")
        with pytest.raises(UserError, match="not a reply cache"):
            CachedModel(model, path)
        path.unlink()
        with CachedModel(model, path) as cached:
            cached.ask(question("as user 1"))
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("""UPDATE replies SET reply = '{"text": ""}'""")
            with pytest.raises(UserError, match="not a reply cache of this version"):
                cached.ask(question("as user 1"))


def test_every_part_of_a_reply_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    # Half a surrogate pair has no UTF-8.
    with PromptServer(lambda _: candidate([{"text": "half \ud800\n"}], "MAX_TOKENS")) as server:
        model = make_model(ModelConfig(kind="gemini", base_url=server.url, calls=1).resolve())
        with CachedModel(model, tmp_path / ANSWERS) as cached:
            given, known = cached.ask(question("x"))
            assert not known and given.text == "half \ud800\n" and "cut off" in given.problem
            assert given.usage.seconds > 0 and given.usage.prompt_tokens == 1000
        with CachedModel(model, tmp_path / ANSWERS) as cached:
            assert cached.ask(question("x")) == (given, True)
        assert len(server.calls) == 1
