"""API clients against endpoints in this process."""

import base64
import json

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from collection.llm.base import Prices, ReflectionRequest, TeacherRequest
from collection.llm.chat import ChatTeacher
from collection.llm.gemini import GeminiTeacher
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import ImagePart, Message, TextPart

PNG = b"not really a png"
PATH = "/v1/chat/completions"
GEMINI = "/v1beta/models/gem:generateContent"


class Images:
    def get(self, sha256):
        assert sha256 == "ab"
        return PNG


MESSAGES = (
    Message(role="system", content=(TextPart(text="Be short."),)),
    Message(role="user", content=(TextPart(text="Look:"), ImagePart(sha256="ab"))),
)
SUMMARY = "1. http://a.test/ |  | goal: Go | 1 actions"
REFLECTION = ReflectionRequest("t", 1, "Buy it.", SUMMARY, "failed", "Old.")


def request(step=1):
    return TeacherRequest("t", 1, step, MESSAGES, Images())


def completion(text):
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }


@pytest.fixture
def chat(httpserver: HTTPServer):
    def make(**options):
        settings = {"api_key": "key", "first_wait_s": 0.0, "attempts": 3, **options}
        return ChatTeacher(httpserver.url_for("/v1"), "model", **settings)

    return make


def sent(httpserver: HTTPServer) -> list[dict]:
    return [json.loads(request.data) for request, _ in httpserver.log]


def test_reply_sends_the_whole_chat(httpserver, chat):
    httpserver.expect_request(PATH, method="POST").respond_with_json(completion("{}"))
    reply = chat(prices=Prices(2.0, 10.0), json_mode=True, temperature=0.3).reply(request())
    assert reply.text == "{}"
    assert (reply.usage.prompt_tokens, reply.usage.response_tokens) == (1000, 100)
    assert reply.usage.cost == pytest.approx(0.003)
    (body,) = sent(httpserver)
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    image = body["messages"][1]["content"][1]["image_url"]["url"]
    assert base64.b64decode(image.removeprefix("data:image/png;base64,")) == PNG
    assert body["temperature"] == 0.3 and body["response_format"] == {"type": "json_object"}
    assert httpserver.log[0][0].headers["Authorization"] == "Bearer key"


def test_seeds_depend_on_the_decision_alone(httpserver, chat):
    httpserver.expect_request(PATH).respond_with_json(completion("{}"))
    for teacher, step in ((chat(), 1), (chat(), 2), (chat(), 1)):
        teacher.reply(request(step))
    first, second, again = (body["seed"] for body in sent(httpserver))
    assert first == again != second and 0 <= first < 2**31


def test_reflection_prompt_tells_round_outcome_and_earlier_guidance(httpserver, chat):
    httpserver.expect_request(PATH).respond_with_json(completion("Do better."))
    assert chat().reflect(REFLECTION).text == "Do better."
    text = sent(httpserver)[0]["messages"][0]["content"]
    for part in (REFLECTION.objective, REFLECTION.summary, REFLECTION.outcome, REFLECTION.guidance):
        assert part in text


def test_transient_errors_are_retried(httpserver, chat):
    for status in (429, 503):
        busy = httpserver.expect_ordered_request(PATH)
        busy.respond_with_data("busy", status, headers={"Retry-After": "0"})
    httpserver.expect_ordered_request(PATH).respond_with_json(completion("{}"))
    assert chat().reply(request()).text == "{}"


@pytest.mark.parametrize(
    "status,body,message",
    [
        (401, {"error": {"message": "bad\nkey"}}, "status 401: bad key; check the API key"),
        (404, {"error": "no such model"}, "check config.actor.base_url and config.actor.model"),
        (429, {"error": {"message": "paid out", "code": "insufficient_quota"}}, "the quota is used up"),
        (400, "nonsense", "status 400"),
    ],
)
def test_lasting_errors_are_one_line_and_not_retried(httpserver, chat, status, body, message):
    httpserver.expect_request(PATH).respond_with_json(body, status=status)
    with pytest.raises(UserError) as error:
        chat().reply(request())
    assert message in str(error.value) and "\n" not in str(error.value)
    assert len(httpserver.log) == 1


def test_an_endpoint_that_stays_down(chat, httpserver):
    httpserver.expect_request(PATH).respond_with_data("busy", 503)
    with pytest.raises(UserError, match=r"no answer after 3 calls .*status 503: busy"):
        chat().reply(request())
    with pytest.raises(UserError, match="ConnectError"):
        ChatTeacher("http://127.0.0.1:9/v1", "m", attempts=2, first_wait_s=0.0).reply(request())


def test_an_answer_that_is_no_completion(httpserver, chat):
    httpserver.expect_request(PATH).respond_with_data("<html>")
    with pytest.raises(UserError, match="no chat completion"):
        chat().reply(request())


@pytest.fixture
def gemini(httpserver: HTTPServer):
    return GeminiTeacher(
        "key", "gem", attempts=3, prices=Prices(2.0, 10.0), base_url=httpserver.url_for("/"), first_wait_s=0.0
    )


def test_gemini_speaks_json_with_images_and_counts_thinking(httpserver, gemini):
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "{}"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 60, "thoughtsTokenCount": 40},
    }
    httpserver.expect_request(GEMINI, method="POST").respond_with_json(answer)
    reply = gemini.reply(request())
    assert reply.text == "{}" and reply.usage.response_tokens == 100
    assert reply.usage.cost == pytest.approx(0.003)
    (body,) = sent(httpserver)
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    assert body["systemInstruction"]["parts"][0]["text"] == "Be short."
    (content,) = body["contents"]
    assert base64.b64decode(content["parts"][1]["inlineData"]["data"]) == PNG
    assert gemini.reflect(REFLECTION).text == "{}"


def test_gemini_waits_as_long_as_it_is_told(httpserver, gemini):
    calls = []

    def answer(_: Request) -> Response:
        calls.append(1)
        if len(calls) < 3:
            details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}]
            error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
            return Response(json.dumps({"error": error}), 429, content_type="application/json")
        return Response(
            json.dumps({"candidates": [{"content": {"parts": [{"text": "{}"}]}}]}),
            content_type="application/json",
        )

    httpserver.expect_request(GEMINI).respond_with_handler(answer)
    assert gemini.reply(request()).text == "{}" and len(calls) == 3


@pytest.mark.parametrize(
    "status,text,message",
    [
        (400, "API key not valid. Please pass a valid API key.", "check GEMINI_API_KEY"),
        (404, "models/gem is not found", "check config.actor.model"),
    ],
)
def test_gemini_refusals_are_one_line(httpserver, gemini, status, text, message):
    error = {"code": status, "message": text, "status": "INVALID_ARGUMENT"}
    httpserver.expect_request(GEMINI).respond_with_json({"error": error}, status=status)
    with pytest.raises(UserError, match=message):
        gemini.reply(request())
    assert len(httpserver.log) == 1
