"""JSON schemas of replies, made from the pydantic models that parse them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from rmsweb_jax.actions.schema import ACTIONS, EXTRA_ACTIONS, MAX_ACTIONS, ActionParams, Done

# Keywords of Gemini's response_json_schema (https://ai.google.dev/api/generate-content). It may refuse
# others, which our parser checks.
_KNOWN = frozenset(
    (
        *("type", "description", "enum", "items", "minItems", "maxItems", "minimum", "maximum", "anyOf"),
        *("properties", "additionalProperties", "required"),
    )
)
# Further keywords that a grammar decoder supports.
_KNOWN_TO_GRAMMARS = _KNOWN | {"minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum"}
# Limits that make every text of a bounded schema finite.
_MAX_INTEGER = 999_999
_MAX_ITEMS = 10


@functools.cache
def reply_schema(actions: tuple[str, ...] = ()) -> dict[str, Any]:
    """Makes the JSON schema of a reply for hosted models.

    Args:
      actions: names of the allowed actions; empty: all but `EXTRA_ACTIONS`.
    """
    return _reply(actions, MAX_ACTIONS, _KNOWN)


def bounded_reply_schema(
    actions: tuple[str, ...] = (), *, max_actions: int = MAX_ACTIONS, max_chars: int = 4000
) -> dict[str, Any]:
    """Makes the JSON schema of a reply for constrained decoding.

    `parse_reply` accepts every text of this schema, and every text is finite: strings, numbers and lists have
    limits here that the parser does not have.

    Args:
      actions: as for `reply_schema`.
      max_chars: limit for each string.
    """
    return _bounded(_reply(actions, max_actions, _KNOWN_TO_GRAMMARS), max_chars)


def _reply(actions: tuple[str, ...], max_actions: int, known: Collection[str]) -> dict[str, Any]:
    names = actions or tuple(name for name in ACTIONS if name not in EXTRA_ACTIONS)
    text = {"type": "string"}
    # Models write keys in this order; the action list comes last, after the reasoning.
    properties = {
        "thinking": text,
        "evaluation_previous_goal": text,
        "memory": text,
        "next_goal": text,
        "action": {
            "type": "array",
            "minItems": 1,
            "maxItems": max_actions,
            "items": {"anyOf": [_object({name: _params(ACTIONS[name], known)}, [name]) for name in names]},
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


def _params(type_: type[ActionParams], known: Collection[str]) -> dict[str, Any]:
    schema = plain_schema(type_.model_json_schema(), known)
    if type_ is Done:
        # Optional for the parser, which distinguishes a missing flag from a wrong one; required in schemas.
        schema["required"] = ["text", "success"]
    return schema


def plain_schema(schema: dict[str, Any], known: Collection[str] = _KNOWN) -> dict[str, Any]:
    """Reduces a pydantic schema (without references) to the keywords that decoders know.

    Drops null as an alternative, since such a parameter may be omitted.
    """
    given = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(given) == 1:
        return plain_schema(given[0], known)
    kept = {key: value for key, value in schema.items() if key in known}
    return _inside(kept, lambda part: plain_schema(part, known))


def _inside(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Applies `change` to the schemas within a schema."""
    changed = dict(schema)
    if "properties" in schema:
        changed["properties"] = {name: change(one) for name, one in schema["properties"].items()}
    if "anyOf" in schema:
        changed["anyOf"] = [change(one) for one in schema["anyOf"]]
    if isinstance(schema.get("items"), dict):
        changed["items"] = change(schema["items"])
    return changed


def _bounded(schema: dict[str, Any], max_chars: int) -> dict[str, Any]:
    limits = {
        "string": {"maxLength": max_chars},
        "integer": {"maximum": _MAX_INTEGER},
        # Without it a number may have any number of decimals.
        "number": {"maximum": _MAX_INTEGER, "multipleOf": 0.01},
        "array": {"maxItems": _MAX_ITEMS},
    }
    own = limits.get(schema.get("type", ""), {})
    return own | _inside(schema, lambda part: _bounded(part, max_chars))
