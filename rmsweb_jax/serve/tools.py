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
# What is around the result of a call, which is a part of a user's message.
RESULT_OPEN, RESULT_CLOSE = "<tool_response>\n", "\n</tool_response>"
_CALL = re.compile(rf"\s*{OPEN}\s*(.*?)\s*{CLOSE}", re.DOTALL)


def signatures(tools: Sequence[Mapping[str, Any]]) -> str:
    """Writes the part of the system message that lists the tools."""
    return _HEAD + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + _TAIL


def call_text(name: str, arguments: str) -> str:
    """Writes a call as the model does; `arguments` is JSON."""
    return f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'


def parse_calls(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Takes the calls out of a reply.

    Returns:
      The text without them, and for each call the name and its arguments as JSON. A call that is not valid
      stays in the text.
    """
    calls = []

    def take(match: re.Match[str]) -> str:
        written = match[1]
        try:
            call = json.loads(written)
            name, arguments = call["name"], call.get("arguments", {})
            if not (isinstance(name, str) and isinstance(arguments, dict)):
                return match[0]
            # Half of a surrogate pair, which JSON can escape, is no text.
            name.encode()
            text = json.dumps(arguments, ensure_ascii="\\u" in written, allow_nan=False)
            calls.append((name, text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return match[0]
        return ""

    rest = _CALL.sub(take, text)
    return (rest.rstrip() if calls else rest), calls


def closed(schema: Any) -> Any:
    """Forbids properties that a schema does not name, unless it says something of them.

    JSON Schema allows any others, and a weak model would write them without end. What is left is a part of
    what the schema allows. Parts of an `allOf`, or of an `anyOf` next to properties, stay as they are, since
    each would forbid the others'.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in ("properties", "$defs", "definitions"):
        if isinstance(inner := found.get(name), dict):
            found[name] = {key: closed(value) for key, value in inner.items()}
    alternatives = () if "properties" in found else ("anyOf", "oneOf")
    for name in (*alternatives, "prefixItems"):
        if isinstance(inner := found.get(name), list):
            found[name] = [closed(value) for value in inner]
    found |= {name: closed(found[name]) for name in ("items", "additionalProperties") if name in found}
    about_others = {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref"}
    about_others |= {"allOf", "anyOf", "oneOf"}
    if "properties" in found and not about_others & found.keys():
        found["additionalProperties"] = False
    return found


def write_grammar(
    schema: Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]], are_tokens: bool
) -> str:
    """Makes a Lark grammar (of llguidance) of a text that follows the schema, or is one call of a tool.

    Args:
      are_tokens: the tags are tokens of the vocabulary, as in Qwen3's.
    """
    begin, end = (OPEN, CLOSE) if are_tokens else (json.dumps(OPEN), json.dumps(CLOSE))
    starts, rules = [], []
    if schema is not None:
        starts.append("reply")
        rules.append(f"reply: {_json_rule(schema)}")
    for number, tool in enumerate(tools):
        function = tool["function"]
        head = f'\n{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": '
        starts.append(f'{begin} {json.dumps(head)} arguments{number} "}}\\n" {end}')
        # A root of its own, to which its references are relative.
        rules.append(f"arguments{number}: {_json_rule(function.get('parameters') or {'type': 'object'})}")
    return "\n".join([f"start: {' | '.join(starts)}", *rules])


def _json_rule(schema: Mapping[str, Any]) -> str:
    # Training replies have no white space between keys and values, and a model could emit it without end.
    return "%json " + json.dumps({**closed(schema), "x-guidance": {"whitespace_flexible": False}})
