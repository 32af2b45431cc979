"""BrowserGym's calls as our actions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from rmsweb_jax.actions import Action, ReplyError
from rmsweb_jax.actions.parse import normalize_action

# Pixels of a scroll by one height of the page, where BrowserGym counts pixels.
_PAGE = 720
_MILLISECONDS = 1000


# What Python raises for text that is no call with plain values, such as endless brackets.
_UNREADABLE = (SyntaxError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)


# Characters of a text that an error repeats: a model may write pages of brackets.
_SHOWN = 80


def parse_actions(text: str, tabs: Sequence[str] = (), active: str = "") -> list[Action]:
    """Reads BrowserGym's calls as our actions.

    Args:
      tabs: ids of the tabs, in the order in which `tab_focus` counts them.
      active: id of the tab that `tab_close` closes.

    Raises:
      ReplyError: it is no call with plain values, or there is no such action.
    """
    try:
        body = ast.parse(text.strip()).body
    except _UNREADABLE as error:
        raise ReplyError(f"{text[:_SHOWN]!r} is no action: write calls such as click('3')") from error
    if not body:
        raise ReplyError("no action: write calls such as click('3')")
    actions: list[Action] = []
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ReplyError(f"{text[:_SHOWN]!r} is no action: write calls such as click('3')")
        if call.func.id not in _ACTIONS:
            raise ReplyError(f"there is no action {call.func.id!r}: use {', '.join(_ACTIONS)}")
        try:
            values = [ast.literal_eval(value) for value in call.args]
            named = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
            made = _ACTIONS[call.func.id](*values, **named)
            for one in made if isinstance(made, list) else [made]:
                if one.get("switch_tab"):
                    one = {"switch_tab": {"tab_id": _tab_id(one["switch_tab"]["index"], tabs)}}
                elif "close_tab" in one:
                    one = {"close_tab": {"tab_id": active}}
                actions.append(normalize_action(one))
        except _UNREADABLE as error:
            raise ReplyError(f"{call.func.id}: {error}") from error
    if not actions:
        raise ReplyError(f"{text[:_SHOWN]!r} has nothing to do")
    return actions


def _tab_id(place: Any, tabs: Sequence[str]) -> str:
    if not isinstance(place, int) or not 0 <= place < len(tabs):
        raise ReplyError(f"there is no tab {place!r}: there are {len(tabs)}")
    return tabs[place]


def _click(bid: str, button: str = "left", modifiers: Sequence[str] = ()) -> Any:
    if button != "left":
        raise ValueError("only the left button can be used")
    ctrl = any(key in ("Control", "ControlOrMeta", "Meta") for key in modifiers)
    return {"click_element_by_index": {"index": bid, "while_holding_ctrl": ctrl}}


def _fill(bid: str, value: str, enable_autocomplete_menu: bool = False) -> Any:
    return {"input_text": {"index": bid, "text": value}}


def _select(bid: str, options: str | list[str]) -> Any:
    chosen = [options] if isinstance(options, str) else options
    return [{"select_dropdown_option": {"index": bid, "text": one}} for one in chosen]


def _press(bid: str, key_comb: str) -> Any:
    return [{"click_element_by_index": {"index": bid}}, {"send_keys": {"keys": key_comb}}]


def _scroll(delta_x: float, delta_y: float) -> Any:
    return {"scroll": {"down": delta_y > 0, "num_pages": abs(delta_y) / _PAGE}}


_ACTIONS: dict[str, Callable[..., Any]] = {
    "noop": lambda wait_ms=1000: {"wait": {"seconds": round(wait_ms / _MILLISECONDS)}},
    "click": _click,
    "dblclick": lambda bid: {"double_click_element": {"index": bid}},
    "hover": lambda bid: {"hover_element": {"index": bid}},
    "fill": _fill,
    "clear": lambda bid: {"input_text": {"index": bid, "text": ""}},
    "press": _press,
    "keyboard_press": lambda key: {"send_keys": {"keys": key}},
    "keyboard_type": lambda text: {"input_text": {"index": 0, "text": text, "clear_existing": False}},
    "select_option": _select,
    "drag_and_drop": lambda from_bid, to_bid: {"drag_element": {"index": from_bid, "onto_index": to_bid}},
    "upload_file": lambda bid, file: {"upload_file_to_element": {"index": bid, "path": file}},
    "scroll": _scroll,
    "mouse_click": lambda x, y: {"click_coordinates": {"x": round(x), "y": round(y)}},
    "goto": lambda url: {"go_to_url": {"url": url}},
    "go_back": lambda: {"go_back": {}},
    "new_tab": lambda: {"go_to_url": {"url": "about:blank", "new_tab": True}},
    "tab_focus": lambda index: {"switch_tab": {"index": index}},
    "tab_close": lambda: {"close_tab": {}},
    "send_msg_to_user": lambda text: {"done": {"text": text, "success": True}},
    "report_infeasible": lambda reason: {"done": {"text": reason, "success": False}},
}
