"""Replies as text: strict parsing, aliases, the canonical rendering, and repair for collection."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import json_repair
from pydantic import ValidationError

from rmsweb_jax.actions.schema import ACTIONS, Action, Reply, to_integer, to_number

_TEXT_KEYS = ("evaluation_previous_goal", "memory", "next_goal")
_KEYS = frozenset(("thinking", *_TEXT_KEYS, "action"))
_SPACE = re.compile(r"[ \t\n\r]*")
# Older agents scrolled by pixels, newer ones by pages: larger amounts than this are pixels.
_LARGEST_PAGE_AMOUNT = 20
_PIXELS_PER_PAGE = 1000.0


class ReplyError(ValueError):
    """The reply cannot be used; the message is one line that may be shown to the agent."""


def parse_reply(text: str) -> Reply:
    """Parses a reply strictly.

    Raises:
      ReplyError: not one JSON object, duplicate or unknown keys, NaN, an empty action list, an
        unknown action, or parameters that are missing, unknown or of the wrong type.
    """
    raw = _load(text)
    if not isinstance(raw, dict):
        raise ReplyError("the reply is not a JSON object")
    return _build(raw)


def repair_reply(text: str) -> tuple[Reply, bool]:
    """Parses a reply, and repairs its JSON if necessary; for episodes only.

    A repair may invent the end of a truncated reply, so repaired replies are marked.

    Returns:
      The reply, and True if its JSON had to be repaired.

    Raises:
      ReplyError: the text is valid JSON but not a valid reply, or cannot be repaired into one.
    """
    try:
        return parse_reply(text), False
    except ReplyError as error:
        strict_error = error
    # Models write prose or a code fence before the object; without an object there is nothing to repair.
    start = text.find("{")
    if start < 0:
        raise strict_error
    try:
        repaired = json_repair.repair_json(text[start:], return_objects=True)
        again = json.dumps(repaired, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise strict_error from error
    # Parsed strictly again: the repaired object must still have the keys and types of a reply.
    return parse_reply(again), True


def render_reply(reply: Reply) -> str:
    """Renders the canonical text of a reply, which is also the training target."""
    head = {"thinking": reply.thinking} if reply.thinking is not None else {}
    body = {key: getattr(reply, key) for key in _TEXT_KEYS}
    return _dump(head | body | {"action": [action.to_json() for action in reply.actions]})


def render_actions(actions: Iterable[Action]) -> str:
    """Renders the canonical text of an action list."""
    return _dump([action.to_json() for action in actions])


def action_span(text: str) -> tuple[int, int]:
    """Returns the span of the value of the top-level key `action`, from its `[` to after its `]`.

    Raises:
      ReplyError: the text is not a JSON object with such a key.
    """
    # By walking the top-level keys: a search for "action" could find the word inside another text.
    decoder = json.JSONDecoder()
    try:
        at = _skip(text, _skip(text, 0, "{"))
        while True:
            key, at = decoder.raw_decode(text, at)
            start = _skip(text, _skip(text, at, ":"))
            _, end = decoder.raw_decode(text, start)
            if key == "action" and text[start] == "[":
                return start, end
            at = _skip(text, _skip(text, end, ","))
    except (ValueError, RecursionError, IndexError) as error:
        raise ReplyError("the reply has no action list") from error


def normalize_action(raw: Any) -> Action:
    """Converts an action object to its canonical form: resolves aliases, drops nulls and defaults.

    Args:
      raw: a JSON object with exactly one key, for example `{"click": {"index": "3"}}`.

    Raises:
      ReplyError: unknown action or wrong parameters.
    """
    if not isinstance(raw, dict) or len(raw) != 1:
        raise ReplyError("each action must be an object with exactly one key, the action's name")
    ((name, params),) = raw.items()
    if params is not None and not isinstance(params, dict):
        raise ReplyError(f"action {name!r}: its parameters must be an object")
    # Models write null for parameters that they leave out.
    params = {key: value for key, value in (params or {}).items() if value is not None}
    if name in ALIASES:
        name, change = ALIASES[name]
        params = change(params)
    if name not in ACTIONS:
        raise ReplyError(f"unknown action {name!r}")
    params = _rename(params, PARAMETER_ALIASES.get(name, {}), name)
    try:
        return Action(name, ACTIONS[name].model_validate(params))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "parameters"
        where = where if where.isprintable() else repr(where)
        raise ReplyError(f"action {name!r}: {where}: {first['msg']}") from error


def _build(raw: dict[str, Any]) -> Reply:
    if not raw.keys() <= _KEYS:
        raise ReplyError(f"unknown key {min(raw.keys() - _KEYS)!r} in the reply")
    for key in _TEXT_KEYS:
        if not isinstance(raw.get(key), str):
            raise ReplyError(f"{key} must be text" if key in raw else f"the reply lacks the key {key!r}")
    thinking = raw.get("thinking")
    if thinking is not None and not isinstance(thinking, str):
        raise ReplyError("thinking must be text")
    actions = raw.get("action")
    if not isinstance(actions, list) or not actions:
        raise ReplyError("action must be a list of at least one action")
    return Reply(
        thinking=thinking,
        evaluation_previous_goal=raw["evaluation_previous_goal"],
        memory=raw["memory"],
        next_goal=raw["next_goal"],
        actions=tuple(normalize_action(action) for action in actions),
    )


def _load(text: str) -> Any:
    try:
        value = DECODER.decode(text)
        # A lone surrogate is valid JSON but cannot be stored or tokenized, literal or escaped.
        text.encode()
        if "\\u" in text:
            _dump(value).encode()
    except ReplyError:
        raise
    except RecursionError as error:
        raise ReplyError("the reply is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ReplyError("the reply holds half a surrogate pair") from error
    except ValueError as error:
        raise ReplyError(f"the reply is not valid JSON: {error}") from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ReplyError("the reply repeats a key")
    return result


def _refuse(constant: str) -> Any:
    raise ReplyError(f"{constant} is not a JSON value")


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _skip(text: str, at: int, mark: str = "") -> int:
    """Returns the position after optional white space and then `mark`."""
    match = _SPACE.match(text, at)
    at = match.end() if match else at
    if not text.startswith(mark, at):
        raise ValueError(f"expected {mark!r} at {at}")
    return at + len(mark)


def _rename(params: dict[str, Any], names: dict[str, str], action: str) -> dict[str, Any]:
    renamed = {}
    for key, value in params.items():
        key = names.get(key, key)
        if key in renamed:
            raise ReplyError(f"action {action!r}: {key} is given twice")
        renamed[key] = value
    return renamed


_Change = Callable[[dict[str, Any]], dict[str, Any]]


def _same(params: dict[str, Any]) -> dict[str, Any]:
    return params


def _open_tab(params: dict[str, Any]) -> dict[str, Any]:
    return params | {"new_tab": True}


def _append(params: dict[str, Any]) -> dict[str, Any]:
    return params | {"append": True}


def _pages(amount: float) -> float:
    try:
        return amount / _PIXELS_PER_PAGE if amount > _LARGEST_PAGE_AMOUNT else float(amount)
    except OverflowError as error:
        raise ReplyError("action 'scroll': amount is too large") from error


def _scrolled(down: bool) -> _Change:
    def change(params: dict[str, Any]) -> dict[str, Any]:
        rest = params | {"down": down}
        amount: Any = to_number(rest.pop("amount", None))
        if amount is not None and {"num_pages", "pages"} & rest.keys():
            raise ReplyError("action 'scroll': amount and num_pages are both given")
        if isinstance(amount, (int, float)) and not isinstance(amount, bool):
            amount = _pages(amount)
        if not {"num_pages", "pages"} & rest.keys():
            rest["num_pages"] = 1.0 if amount is None else amount
        return rest

    return change


def _tab(params: dict[str, Any]) -> dict[str, Any]:
    """Converts an integer `page_id` to the four-character form of tab ids."""
    page = to_integer(params.get("page_id"))
    if not isinstance(page, int) or isinstance(page, bool) or page < 0 or "tab_id" in params:
        return params
    return {key: value for key, value in params.items() if key != "page_id"} | {"tab_id": f"{page:04d}"}


ALIASES: dict[str, tuple[str, _Change]] = {
    "search_google": ("search_engine", _same),
    "search": ("search_engine", _same),
    "navigate": ("go_to_url", _same),
    "open_tab": ("go_to_url", _open_tab),
    "click": ("click_element_by_index", _same),
    "input": ("input_text", _same),
    "scroll_down": ("scroll", _scrolled(True)),
    "scroll_up": ("scroll", _scrolled(False)),
    "switch": ("switch_tab", _tab),
    "switch_tab": ("switch_tab", _tab),
    "close": ("close_tab", _tab),
    "close_tab": ("close_tab", _tab),
    "extract": ("extract_structured_data", _same),
    "extract_content": ("extract_structured_data", _same),
    "find_text": ("scroll_to_text", _same),
    "dropdown_options": ("get_dropdown_options", _same),
    "select_dropdown": ("select_dropdown_option", _same),
    "upload_file": ("upload_file_to_element", _same),
    "replace_file": ("replace_file_str", _same),
    "append_file": ("write_file", _append),
    "evaluate": ("execute_js", _same),
}
PARAMETER_ALIASES: dict[str, dict[str, str]] = {
    "click_element_by_index": {"ctrl": "while_holding_ctrl"},
    "input_text": {"clear": "clear_existing"},
    "scroll": {"pages": "num_pages"},
    "extract_structured_data": {"goal": "query"},
}
