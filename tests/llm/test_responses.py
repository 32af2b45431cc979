"""google-genai's and openai's own clients against a local server: what the wrapper makes of each answer."""

import base64
import dataclasses

import pytest

from collection.llm.build import make_model
from collection.llm.config import ModelConfig
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.errors import UserError
from tests.llm.answers import GOOD, Case
from tests.llm.chat_cases import chat_cases
from tests.llm.gemini_cases import gemini_cases
from tests.llm.playing import MAX_TOKENS, PNG, PRICES, REQUEST, play
from tests.llm.server import ModelServer

CASES = (*gemini_cases(), *(dataclasses.replace(case, api="chat") for case in chat_cases()))


@pytest.mark.filterwarnings("ignore:NEW_REASON is not a valid FinishReason")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.api}: {case.name}")
def test_the_wrapper_behaves_as_the_table_expects(case):
    played = play(case)
    assert played.fits(case), played
    if played.error:
        assert "\n" not in str(played.error)
    if played.reply and played.totals["prompt_tokens"]:
        # Thinking is billed as the answer is.
        assert played.reply.usage.response_tokens == 100
        assert played.totals["cost_usd"] == pytest.approx(PRICES.cost(1000, 100))
        assert played.reply.usage.cost == played.totals["cost_usd"]


def test_gemini_is_asked_for_structured_output_without_streaming():
    (call,) = play(Case("", "", (GOOD,), 1, "")).calls
    assert call.path == "/v1beta/models/gem:generateContent"
    config = call.body["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"] == reply_schema()
    assert (config["seed"], config["maxOutputTokens"], config["temperature"]) == (7, MAX_TOKENS, 1.0)
    assert "thinkingConfig" not in config
    assert call.body["systemInstruction"]["parts"] == [{"text": "Be short."}]
    (content,) = call.body["contents"]
    text, image = content["parts"]
    assert text == {"text": "Look:"} and "image/png" in image["inlineData"].values()
    assert base64.urlsafe_b64decode(image["inlineData"]["data"]) == PNG


def test_parameters_of_gemini_are_sent_as_they_are(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    given = {"thinking_config": {"thinking_level": "LOW"}, "top_k": 5, "seed": None}
    with ModelServer([GOOD]) as server:
        model = make_model(ModelConfig(model="gemini-3-pro", base_url=server.url, parameters=given))
        # 60 tokens of the answer and 40 of thoughts: both are billed as the response.
        assert model.complete(REQUEST).usage.response_tokens == 100
        sent = server.calls[0].body["generationConfig"]
        # The API takes the names of the fields in either spelling; this client sends them with underscores.
        assert (sent["thinkingConfig"], sent["topK"], "seed" in sent) == ({"thinking_level": "LOW"}, 5, False)
        with pytest.raises(UserError, match=r"config\.actor\.parameters: topp: Gemini has no such parameter"):
            make_model(ModelConfig(base_url=server.url, parameters={"topp": 1})).complete(REQUEST)
