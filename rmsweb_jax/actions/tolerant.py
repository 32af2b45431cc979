"""Replies of models that know the form of a reply but miss it: read where only one reading is possible.

Collection alone reads like this. What is scored or trained goes through `parse_reply`, which takes the
canonical text that these replies are recorded for.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import json_repair

from rmsweb_jax.actions.parse import (
    ALIASES,
    DECODER,
    PARAMETER_ALIASES,
    ReplyError,
    normalize_action,
    parse_reply,
    render_reply,
    repair_reply,
)
from rmsweb_jax.actions.schema import ACTIONS, ActionParams, Reply

_TEXT_KEYS = ("evaluation_previous_goal", "memory", "next_goal")
_LISTS = ("action", "actions")
_NAMES = ACTIONS.keys() | ALIASES.keys()
# Keys of tool calls: the action's name, and its parameters.
_CALLED = ("name", "action", "action_name", "tool", "function", "type")
_GIVEN = ("arguments", "parameters", "params", "args")
# Parameters that only older agents or this module know.
_OLDER = {"amount", "direction", "page_id"}
# Thoughts of models that think aloud; the first tag may be part of the prompt.
_THOUGHTS = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_START = re.compile(r"""\{\s*["'}]|\[\s*\{""")
# What JSON consists of, also as Python and JavaScript write it.
_TOKEN = re.compile(
    r"""\s*(?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | [{}\[\]:,] | \w+(?=\s*:)
    | (?: -?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)? | true|false|null|True|False|None )(?![\w.+-]) )""",
    re.DOTALL | re.VERBOSE,
)
_KEY = re.compile(r"""["']?(\w+)["']?\s*:""")
_INDEX = re.compile(r"\[(\d+)\]")


def read_reply(text: str) -> tuple[Reply, bool]:
    """Reads a reply, also one in a form that differs from the exact one but can mean one thing only.

    These are broken JSON; thoughts, prose and code fences around it; missing, null or unknown texts;
    one action outside a list, several in one object, actions without the rest of a reply, and tool calls;
    booleans, indices and numbers as text; a scroll without a distance, or with a direction in words.

    Returns:
      The reply, and True if it was not in the exact form.

    Raises:
      ReplyError: the text is no reply, or can be read in more than one way.
    """
    try:
        return parse_reply(text), False
    except ReplyError as error:
        strict_error = error
    try:
        found: list[tuple[Any, str]] = []
        said = _THOUGHTS.sub("", text)
        if "<think" in said.lower():
            raise ReplyError("the reply is within a thought that does not end")
        for value, broken in _values(said):
            if _is_reply(value) and all(value != other for other, _ in found):
                found.append((value, broken))
        if not found:
            raise strict_error
        if len(found) > 1:
            raise ReplyError("there is more than one reply")
        value, broken = found[0]
        reply = _reply(value)
        if broken:
            _check_repair(reply, broken)
        render_reply(reply).encode()  # Half a surrogate pair cannot be stored.
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, ReplyError) else strict_error from error
    return reply, True


def recorded_reply(text: str) -> tuple[Reply, bool]:
    """Reads a recorded reply, which was carried out either as `read_reply` or as `repair_reply` reads it."""
    try:
        return read_reply(text)
    except ReplyError:
        return repair_reply(text)


def _values(text: str) -> Iterator[tuple[Any, str]]:
    """Yields the JSON objects and lists of a text, and in the end what a repair makes of a broken one.

    With that comes the broken text, with others an empty one.
    """
    at = 0
    while match := _START.search(text, at):
        try:
            value, at = DECODER.raw_decode(text, match.start())
        except ReplyError:
            raise
        except ValueError:
            broken = text[match.start() :].rstrip().removesuffix("```").rstrip()
            yield _repaired(broken), broken
            return
        yield value, ""


def _repaired(text: str) -> Any:
    # A repair would keep the last of two replies, and drop a key that is repeated.
    value = DECODER.decode(json.dumps(json_repair.repair_json(text, return_objects=True), allow_nan=False))
    if _named(text) > _named(json.dumps(value)):
        raise ReplyError("the reply is not valid JSON, and its actions are not clear")
    return value


def _check_repair(reply: Reply, text: str) -> None:
    """Refuses a reply whose values, or their end, a repair may have invented."""
    if not text.endswith(("}", "]")):
        raise ReplyError("the reply is not valid JSON: it ends too early")
    at, strings = 0, set[str]()
    while match := _TOKEN.match(text, at):
        at = match.end()
        if match.lastindex:
            with contextlib.suppress(ValueError):
                strings.add(json.loads(f'"{match[match.lastindex]}"', strict=False))
    if at < len(text):
        raise ReplyError(f"the reply is not valid JSON from {text[at : at + 20]!r} on")
    for action in reply.actions:
        for value in action.params.model_dump(exclude_defaults=True).values():
            texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
            if not strings.issuperset(texts):
                raise ReplyError("the reply is not valid JSON, and a text in it is not clear")


def _named(text: str) -> int:
    """Counts the actions in a JSON text."""
    return sum(key in _NAMES for key in _KEY.findall(text))


def _is_reply(value: Any) -> bool:
    """Returns True for what is meant as a reply or as actions, usable or not."""
    if isinstance(value, list):
        return any(map(_is_reply, value))
    return isinstance(value, dict) and (
        not value.keys().isdisjoint({*_LISTS, *_NAMES}) or _call(value) is not None
    )


def _reply(value: Any) -> Reply:
    if isinstance(value, list):
        whole = len(value) == 1 and isinstance(value[0], dict) and not value[0].keys().isdisjoint(_LISTS)
        value = value[0] if whole else {"action": value}
    listed = [value[key] for key in _LISTS if key in value]
    bare = {key: one for key, one in value.items() if key in _NAMES}
    call = _call(value)
    if call is not None and listed[:1] == list(call):
        listed = []  # The list has been the name of a flat call.
    given = [*listed, *([bare] if bare else []), *([call] if call is not None else [])]
    if len(given) != 1:
        raise ReplyError("actions must stand in the list action, and nowhere else")
    # Older agents put these texts into an object of their own.
    state = value.get("current_state")
    texts = {**state, **value} if isinstance(state, dict) else value
    actions = _actions(given[0])
    if call is None:
        for (name,) in actions:
            _refuse_outside(value.keys(), name)
    return Reply(
        thinking=_text(texts.get("thinking")) or None,
        **{key: _text(texts.get(key)) for key in _TEXT_KEYS},
        actions=tuple(map(normalize_action, actions)),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _actions(value: Any) -> list[dict[str, Any]]:
    """Returns action objects of one key each."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        value = DECODER.decode(value)
    items = value if isinstance(value, list) else [value]
    found: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, str):
            item = {item: {}}
        if not isinstance(item, dict) or not item:
            raise ReplyError("each action must be an object with exactly one key, the action's name")
        item = _call(item) or item
        found += [_action(name, params) for name, params in item.items()]
    if not found:
        raise ReplyError("action must be a list of at least one action")
    return found


def _call(value: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the action of a tool call, `{"name": ..., "arguments": {...}}` or flat; None if it is none."""
    named = [key for key in _CALLED if isinstance(value.get(key), str) and value[key] in _NAMES]
    if len(named) != 1:
        return None
    given = [key for key in _GIVEN if key in value]
    rest = {key: one for key, one in value.items() if key not in (*named, *_TEXT_KEYS, "thinking")}
    if not given:
        return {value[named[0]]: rest}
    _refuse_outside(rest.keys(), value[named[0]])
    params = value[given[0]]
    if isinstance(params, str) and params.lstrip().startswith("{"):
        params = DECODER.decode(params)
    return {value[named[0]]: params} if len(given) == 1 else None


def _refuse_outside(keys: Collection[str], name: str) -> None:
    """Refuses parameters next to the action that they are meant for, where they would be dropped."""
    canonical = _canonical(name)
    known = ACTIONS[canonical].model_fields.keys() | PARAMETER_ALIASES.get(canonical, {}).keys() | _OLDER
    if outside := known & set(keys):
        raise ReplyError(f"action {name!r}: its parameter {min(outside)!r} stands outside it")


def _canonical(name: str) -> str:
    return ALIASES[name][0] if name in ALIASES else name


def _action(name: str, params: Any) -> dict[str, Any]:
    """Returns an action whose parameters have the types that the parser asks for."""
    canonical = _canonical(name)
    if canonical not in ACTIONS:
        raise ReplyError(f"unknown action {name!r}")
    type_ = ACTIONS[canonical]
    if not isinstance(params, dict) and params is not None:
        params = _only(type_, name, params)
    params = {key: value for key, value in (params or {}).items() if value is not None}
    if canonical == "scroll":
        name, params = _scroll(name, params)
    return {name: {key: _value(type_, key, value) for key, value in params.items()}}


def _only(type_: type[ActionParams], name: str, value: Any) -> dict[str, Any]:
    """Returns the parameters of an action that was given a value in their place."""
    fields = type_.model_fields
    names = [key for key, field in fields.items() if field.is_required()] or list(fields)
    if not fields and value in (True, ""):
        return {}
    if type_ is ACTIONS["scroll"] and isinstance(value, str):
        return {"direction": value}
    if len(names) != 1 or isinstance(value, (dict, list)):
        raise ReplyError(f"action {name!r}: its parameters must be an object")
    return {names[0]: value}


def _scroll(name: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    direction = params.get("direction")
    if name == "scroll" and direction in ("down", "up") and "down" not in params:
        name = f"scroll_{direction}"  # An alias that takes a distance in pixels, too.
        params = {key: value for key, value in params.items() if key != "direction"}
    if name == "scroll" and params.keys().isdisjoint({"num_pages", "pages"}):
        params = params | {"num_pages": 1.0}
    return name, params


def _value(type_: type[ActionParams], key: str, value: Any) -> Any:
    field = type_.model_fields.get(key)
    kind = str(field.annotation) if field else ""
    if "bool" in kind and isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if "int" in kind and isinstance(value, str) and (index := _INDEX.fullmatch(value.strip())):
        return int(index[1])
    if isinstance(value, int) and not isinstance(value, bool):
        if key == "tab_id":
            return f"{value:04d}"
        if "str" in kind and "tuple" not in kind:
            return str(value)
    return value
