"""The table of fields in docs/serve.md says what the protocol does."""

import json
import re
import sys
import typing
from pathlib import Path

import pytest
from openai.types.chat import completion_create_params as params

from rmsweb_jax.serve.protocol import IGNORED, ApiError, ChatRequest, parse_body

PAGE = Path(__file__).parents[2] / "docs/serve.md"
# No field takes this.
NONSENSE = [[{}]]
BODY = {"messages": [{"role": "user", "content": "go"}]}


def table() -> dict[str, str]:
    """What is said of each field."""
    rows = PAGE.read_text().partition("## Fields")[2].splitlines()
    found = {}
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            for name in re.findall(r"`(\w+)`", cells[0]):
                assert name not in found
                found[name] = cells[1]
    return found


def parse(change: dict) -> ChatRequest:
    return parse_body(ChatRequest, json.dumps(BODY | change).encode())


def problem(change: dict) -> str | None:
    """The field that is to blame if a request is refused."""
    try:
        parse(change)
    except ApiError as error:
        return error.body["error"]["param"] or "?"
    return None


@pytest.mark.parametrize(("name", "said"), table().items())
def test_each_field_is_treated_as_the_page_says(name, said):
    refused = problem({name: NONSENSE})
    if said == "ignored":
        assert refused is None and parse({name: NONSENSE}) == parse({})
        return
    assert refused is not None and refused.partition(".")[0] == name
    known = name in ChatRequest.model_fields
    if said.startswith("only "):
        value = json.loads(said.removeprefix("only ").strip("`"))
        assert known and problem({name: value}) is None
        other = not value if isinstance(value, bool) else value + 0.5 if isinstance(value, int) else "other"
        assert problem({name: other}) is not None
    else:
        assert said == ("honoured" if known else "refused")


def test_the_page_has_every_field():
    """Those of the protocol, and those of OpenAI's own client."""
    listed = set(table())
    assert set(IGNORED) == {name for name, said in table().items() if said == "ignored"}
    assert set(ChatRequest.model_fields) <= listed
    names = vars(sys.modules[params.__name__])
    assert set(typing.get_type_hints(params.CompletionCreateParamsBase, names)) <= listed
