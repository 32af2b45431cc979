"""Any answer of an endpoint gives a reply or one line for the user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.llm.build import make_model
from collection.llm.config import ModelConfig
from rmsweb_jax.errors import UserError
from tests.llm.answers import TEXT
from tests.llm.playing import REQUEST
from tests.llm.server import Answer, ModelServer

KEYS = (
    *("candidates", "content", "parts", "text", "thought", "finishReason", "safetyRatings", "promptFeedback"),
    *("blockReason", "usageMetadata", "promptTokenCount", "functionCall", "inlineData", "error", "message"),
    *("details", "@type", "retryDelay", "violations", "code", "status", "choices", "usage", "finish_reason"),
    *("prompt_tokens", "refusal", "category", "blocked"),
)
WORDS = st.sampled_from(
    ("STOP", "SAFETY", "MAX_TOKENS", "length", "google.rpc.RetryInfo", "google.rpc.QuotaFailure", "9s", TEXT)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(0, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
# Close to a real answer, so that the error is deep inside.
GEMINI = st.fixed_dictionaries(
    {},
    optional={
        "candidates": st.lists(
            st.fixed_dictionaries(
                {}, optional={"content": JSON, "finishReason": WORDS | JSON, "safetyRatings": JSON}
            ),
            max_size=2,
        ),
        "usageMetadata": JSON,
        "promptFeedback": JSON,
    },
)
STATUS = st.sampled_from((200, 200, 200, 204, 301, 400, 401, 413, 429, 500, 503))


@pytest.fixture(scope="module")
def server():
    with ModelServer([Answer()]) as server:
        yield server


@pytest.fixture(scope="module", params=["gemini", "chat"])
def model(request, server):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "key")
        config = ModelConfig(kind=request.param, model="gem", timeout_s=5.0, calls=1, base_url=server.url)
        return make_model(config)


@given(STATUS, GEMINI | JSON | st.binary(max_size=20))
@pytest.mark.filterwarnings("ignore:.* is not a valid")
def test_any_answer_is_one_of_two(server, model, status, body):
    server.always = Answer(status, body)
    try:
        reply = model.complete(REQUEST)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert reply.text.strip() or reply.problem
        assert "\n" not in reply.problem and reply.usage.prompt_tokens >= 0
