"""Tool calls in Qwen3's form: signatures in the system message, calls and results as tagged JSON.

Source: the chat template of Qwen3-VL-Instruct.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
    "<args-json-object>}\n</tool_call>"
)
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(rf"\s*{OPEN}\s*(.*?)\s*{CLOSE}", re.DOTALL)


def signatures(tools: Sequence[Mapping[str, Any]]) -> str:
    """Writes the part of the system message that lists the tools."""
    return _HEAD + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + _TAIL


def call_text(name: str, arguments: str) -> str:
    """Writes a call as the model does; `arguments` is JSON."""
    return f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'


def result_text(content: str) -> str:
    """Writes the result of a call as a part of a user's message."""
    return f"<tool_response>\n{content}\n</tool_response>"


def parse_calls(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Takes the calls out of a reply.

    Returns:
      The text without them, and for each call the name and its arguments as JSON. A call that is not valid
      stays in the text.
    """
    calls = []

    def take(match: re.Match[str]) -> str:
        try:
            call = json.loads(match[1])
            calls.append((str(call["name"]), json.dumps(call.get("arguments", {}), ensure_ascii=False)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return match[0]
        return ""

    rest = _CALL.sub(take, text)
    return (rest.strip() if calls else rest), calls


def closed(schema: Any) -> Any:
    """Forbids properties that a schema does not name, unless it says something of them.

    JSON Schema allows any others, and a weak model would write them without end. What is left is a part of
    what the schema allows. Parts of an `allOf` stay as they are, since each would forbid the others'.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in ("properties", "$defs", "definitions"):
        if isinstance(inner := found.get(name), dict):
            found[name] = {key: closed(value) for key, value in inner.items()}
    for name in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(inner := found.get(name), list):
            found[name] = [closed(value) for value in inner]
    found |= {name: closed(found[name]) for name in ("items", "additionalProperties") if name in found}
    about_others = {"additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "$ref"}
    if "properties" in found and not about_others & found.keys():
        found["additionalProperties"] = False
    return found


def call_grammar(tools: Sequence[Mapping[str, Any]], are_tokens: bool) -> str:
    """Makes a Lark grammar (of llguidance) of exactly one call of one of the tools.

    Args:
      are_tokens: the tags are tokens of the vocabulary, as in Qwen3's.
    """
    options = []
    for tool in tools:
        function = tool["function"]
        schema = {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": closed(function.get("parameters") or {"type": "object"}),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        options.append(schema)
    schema: dict[str, Any] = options[0] if len(options) == 1 else {"anyOf": options}
    # A model could emit white space without end.
    schema["x-guidance"] = {"whitespace_flexible": False}
    begin, end = (OPEN, CLOSE) if are_tokens else (json.dumps(OPEN), json.dumps(CLOSE))
    return f'start: {begin} "\\n" call "\\n" {end}\ncall: %json {json.dumps(schema)}\n'
