"""The test call before a run: what is wrong with a model is one line, and no browser starts for it."""

import json

import pytest

from collection.fleet.collect import collect
from collection.fleet.pool import LocalPool
from collection.llm.calls import CALLS, Calls
from configs.collect import get_config
from rmsweb_jax.errors import user_message
from tests.llm.answers import GOOD, PER_DAY, WELL, gemini_error, openai_error, retry_info
from tests.llm.server import Answer, ModelServer

TASK = {"task_id": "shop-1", "website": "https://shop.example", "objective": "Buy tea."}
NO_CHROMIUM = "chromium not found"
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Returns a function: the line and the exit code of a collection whose machine has no browser."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")
    start, started = LocalPool._start, []

    def note(pool, slot):
        started.append(slot)
        return start(pool, slot)

    monkeypatch.setattr(LocalPool, "_start", note)

    def run(variant, **sections):
        config = get_config(variant)
        config.update({"tasks_file": str(tasks), "fleet": {"workers": 1}, **sections})
        with pytest.raises(Exception) as error:
            collect(config, tmp_path / "run")
        line, code = user_message(error.value) or pytest.fail(f"no line: {error.value!r}")
        assert "\n" not in line
        assert NO_CHROMIUM in line or not started, "a worker was started"
        return line, code

    return run


CHECK = "check config.actor.base_url and"
SPENT = "the quota is used up: raise it or wait"


@pytest.mark.parametrize(
    ("variant", "answer", "line"),
    [
        ("web_gpt", openai_error(401, "Incorrect API key provided: sk-x."), "status 401: Incorrect API key"),
        ("web_gpt", openai_error(404, "The model `gpt-9` does not exist", "model_not_found"), CHECK),
        ("web_gpt", openai_error(429, QUOTA, "insufficient_quota"), SPENT),
        ("web_gpt", openai_error(500, "image input is not supported"), "config.prompt.screenshot=False"),
        ("web_gpt", Answer(200, b"<html>"), "the answer is not a chat completion; check config.actor"),
        ("web", gemini_error(400, "API key not valid. Please pass a valid API key."), "check GEMINI_API_KEY"),
        ("web", gemini_error(404, "models/gem is not found", "NOT_FOUND"), CHECK),
        ("web", gemini_error(429, QUOTA, "RESOURCE_EXHAUSTED", PER_DAY, retry_info("9s")), SPENT),
    ],
    ids=["key", "model", "quota", "image", "address", "Gemini key", "Gemini model", "quota of the day"],
)
def test_a_model_that_cannot_be_asked(stopped, variant, answer, line):
    with ModelServer([answer]) as server:
        url = f"{server.url}/v1" if variant == "web_gpt" else server.url
        said, code = stopped(variant, actor={"base_url": url, "calls": 1})
        assert line in said and code == 2 and len(server.calls) == 1


def test_an_endpoint_that_is_down(stopped):
    said, code = stopped("web_gpt", actor={"base_url": "http://127.0.0.1:9/v1", "calls": 1})
    assert "ConnectError" in said and "no answer after 1 calls; check that it is up" in said and code == 2


@pytest.mark.parametrize("variant,key", [("web_gpt", "OPENAI_API_KEY"), ("web", "GEMINI_API_KEY")])
def test_without_a_key_nothing_is_asked(stopped, monkeypatch, variant, key):
    monkeypatch.delenv(key)
    with ModelServer([WELL]) as server:
        said, code = stopped(variant, actor={"base_url": server.url})
        assert key in said and code == 2 and not server.calls


def test_models_that_answer_are_asked_once_each_and_entered(stopped, tmp_path, capfd):
    cut = Answer(body=WELL.body | {"choices": [{"message": {"content": "{"}, "finish_reason": "length"}]})
    with ModelServer([cut]) as server, ModelServer([WELL]) as judge:
        own = {"kind": "chat", "base_url": f"{judge.url}/v1", "model": "gpt-4o"}
        said, _ = stopped("web_gpt", actor={"base_url": f"{server.url}/v1"}, judge=own)
        assert NO_CHROMIUM in said
        assert [len(one.calls) for one in (server, judge)] == [1, 1]
    assert "gpt-5.1: test call: the reply was cut off after 8192 tokens" in capfd.readouterr().err
    totals = Calls(tmp_path / "run" / CALLS).totals()
    assert totals["check"]["calls"] == 2 and totals["check"]["cost_usd"] > 0


def test_without_screenshots_the_test_call_has_none_and_finds_a_schema_that_is_not_kept(stopped, capfd):
    with ModelServer([WELL]) as server:
        sections = {"prompt": {"screenshot": False}, "judge": {"screenshots": False}}
        stopped("web_gpt", actor={"base_url": f"{server.url}/v1"}, **sections)
        (call,) = server.calls
    assert isinstance(call.body["messages"][0]["content"], str)
    assert call.body["response_format"]["type"] == "json_schema"
    assert "structured=schema does not work here" in capfd.readouterr().err


def test_a_gemini_that_answers_is_asked_with_the_schema_of_replies(stopped):
    with ModelServer([GOOD]) as server:
        thinking = {"thinking_config": {"thinking_level": "LOW"}}
        assert NO_CHROMIUM in stopped("web", actor={"base_url": server.url, "parameters": thinking})[0]
        # The judge is the actor's model, which has answered.
        assert len(server.calls) == 1
    config = server.calls[0].body["generationConfig"]
    assert config["responseJsonSchema"] and config["thinkingConfig"] == {"thinking_level": "LOW"}
