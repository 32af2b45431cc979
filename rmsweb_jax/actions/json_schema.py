"""JSON schemas for models, made from the pydantic models that their answers are parsed with."""

from __future__ import annotations

import functools
from typing import Any, Literal

from rmsweb_jax.actions.schema import ACTIONS, MAX_ACTIONS, ActionParams, Done

# How a model is held to a schema: by its decoder; to some JSON only; or by the prompt alone.
Structured = Literal["schema", "json", "off"]

# What Gemini's response_json_schema knows (https://ai.google.dev/api/generate-content); of the rest, which
# it may refuse, our own parser takes care.
_KNOWN = frozenset(
    (
        *("type", "description", "enum", "items", "minItems", "maxItems", "minimum", "maximum", "anyOf"),
        *("properties", "additionalProperties", "required"),
    )
)
_OFF_BY_DEFAULT = frozenset(("execute_js",))


@functools.cache
def reply_schema(actions: tuple[str, ...] = ()) -> dict[str, Any]:
    """JSON schema of a reply.

    Args:
      actions: names of those that it may hold; empty: all but `execute_js`.
    """
    names = actions or tuple(name for name in ACTIONS if name not in _OFF_BY_DEFAULT)
    text = {"type": "string"}
    # The order is the order in which a model writes; the action list comes last.
    properties = {
        "thinking": text,
        "evaluation_previous_goal": text,
        "memory": text,
        "next_goal": text,
        "action": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_ACTIONS,
            "items": {"anyOf": [_object({name: _params(ACTIONS[name])}, [name]) for name in names]},
        },
    }
    return _object(properties, [name for name in properties if name != "thinking"])


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _params(type_: type[ActionParams]) -> dict[str, Any]:
    schema = plain_schema(type_.model_json_schema())
    if type_ is Done:
        # Optional to the parser, which tells a missing flag from a wrong one; no model is to leave it out.
        schema["required"] = ["text", "success"]
    return schema


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of pydantic's (without references) with only what decoders know.

    A parameter that may be null may be left out as well.
    """
    given = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(given) == 1:
        return plain_schema(given[0])
    kept = {key: value for key, value in schema.items() if key in _KNOWN}
    if "properties" in kept:
        kept["properties"] = {name: plain_schema(one) for name, one in kept["properties"].items()}
    if "anyOf" in kept:
        kept["anyOf"] = [plain_schema(one) for one in kept["anyOf"]]
    if isinstance(kept.get("items"), dict):
        kept["items"] = plain_schema(kept["items"])
    return kept
