"""The table of fields in docs/serve.md says what the protocol does."""

import json
import re
import sys
import typing
from pathlib import Path

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from rmsweb_jax.serve.protocol import (
    IGNORED,
    ApiError,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    parse_body,
)

PAGE = Path(__file__).parents[2] / "docs/serve.md"
# No field takes this.
NONSENSE = [[{}]]
KINDS: dict[str, tuple[type[GenerationRequest], dict]] = {
    "chat": (ChatRequest, {"messages": [{"role": "user", "content": "go"}]}),
    "text": (CompletionRequest, {"prompt": "go"}),
}


def table() -> dict[str, dict[str, str]]:
    """What is said of each field, by kind of request."""
    rows = PAGE.read_text().partition("## Fields")[2].splitlines()
    found = {}
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            for name in re.findall(r"`(\w+)`", cells[0]):
                assert name not in found
                found[name] = dict(zip(KINDS, cells[1:3], strict=True))
    return found


def problem(kind: str, change: dict) -> str | None:
    """The field that is to blame if a request is refused."""
    model, body = KINDS[kind]
    try:
        parse_body(model, json.dumps(body | change).encode())
    except ApiError as error:
        return error.body["error"]["param"] or "?"
    return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "said"), table().items())
def test_each_field_is_treated_as_the_page_says(kind, name, said):
    refused = problem(kind, {name: NONSENSE})
    if said[kind] == "ignored":
        assert refused is None
        model, body = KINDS[kind]
        plain, more = (parse_body(model, json.dumps(one).encode()) for one in (body, body | {name: NONSENSE}))
        assert plain == more
        return
    assert refused is not None and refused.partition(".")[0] == name
    known = name in KINDS[kind][0].model_fields
    if said[kind].startswith("only "):
        value = json.loads(said[kind].removeprefix("only ").strip("`"))
        assert known and problem(kind, {name: value}) is None
        other = {False: True, True: False}.get(value, "other") if isinstance(value, bool) else "other"
        assert problem(kind, {name: other}) is not None
    else:
        assert said[kind] == ("honoured" if known else "refused")


def test_the_page_has_every_field():
    """Those of the protocol, and those of OpenAI's own client."""
    listed = set(table())
    assert set(IGNORED) == {name for name, said in table().items() if said["chat"] == "ignored"}
    assert set(ChatRequest.model_fields) | set(CompletionRequest.model_fields) <= listed
    for module in (chat_params, text_params):
        names = vars(sys.modules[module.__name__])
        assert set(typing.get_type_hints(module.CompletionCreateParamsBase, names)) <= listed
