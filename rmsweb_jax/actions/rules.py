"""Scores one action against another: the levels, and one rule per action type (RMSWeb, section 3.4).

1.0 exact    0.7 core-correct    0.3 right type, wrong key parameter    0.0 wrong

A point (`click_coordinates` and its like, beyond the paper's actions) is exact if it is in the box of the
element that the target's point is in, where that box is known; core-correct if it is at most 2 % of the
window's width and height away, or 5 pixels where these are more or the window is not known; else another
point. Both ends of a drag count, and the worse decides.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Any

import rmsweb_jax.actions.schema as schema
from rmsweb_jax.actions.formatting import plain
from rmsweb_jax.actions.schema import Action, points_of
from rmsweb_jax.actions.similarity import same_but_formatting, same_page, similar
from rmsweb_jax.records.schema import Window

EXACT, CORE, TYPE, WRONG = 1.0, 0.7, 0.3, 0.0

# A level, and the field that decided it.
Verdict = tuple[float, str]
Point = tuple[int, int]

_KEY_NAMES = {
    "ctrl": "control",
    "cmd": "meta",
    "command": "meta",
    "option": "alt",
    "return": "enter",
    "esc": "escape",
    "del": "delete",
    "up": "arrowup",
    "down": "arrowdown",
    "left": "arrowleft",
    "right": "arrowright",
    "arrow up": "arrowup",
    "arrow down": "arrowdown",
    "arrow left": "arrowleft",
    "arrow right": "arrowright",
    "page up": "pageup",
    "page down": "pagedown",
}
# Points this close together are one for a user: pixels, or a share of the window's side if that is more. Half
# of a button is some 2 % of a window's height.
_NEAR_PX, _NEAR_SHARE = 5, 0.02
# A string literal; an unterminated one ends with its line.
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|\'(?:[^\'\\\n]|\\.)*+\'?')
_SPACES_OR_STRING = re.compile(rf"({_STRING.pattern})|[ \t]+")


UNKNOWN = Window(width=0, height=0)


def point_level(point: Point, target: Point, window: Window) -> float:
    """Returns the level of a point against another one."""
    around = [box for box in window.boxes if inside(box, target)]
    if point == target or (around and inside(min(around, key=_area), point)):
        return EXACT
    sides = zip(point, target, (window.width, window.height), strict=True)
    near = all(abs(one - other) <= max(_NEAR_PX, _NEAR_SHARE * side) for one, other, side in sides)
    return CORE if near else TYPE


def inside(box: tuple[int, int, int, int], point: Point) -> bool:
    """Returns True if a point is in a box; its right and bottom edges are not."""
    return box[0] <= point[0] < box[2] and box[1] <= point[1] < box[3]


def _area(box: tuple[int, int, int, int]) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def compare_actions(predicted: Action, target: Action, window: Window = UNKNOWN) -> Verdict:
    """Returns the level of one action against another, and the field that decided it."""
    if predicted.name != target.name:
        return WRONG, "action"
    if predicted.params == target.params:
        return EXACT, ""
    if target.name not in schema.POINT_ACTIONS:
        return RULES[target.name](predicted.params, target.params)
    pairs = list(zip(points_of(predicted), points_of(target), strict=True))
    levels = [point_level(*pair, window) for pair in pairs]
    worst = levels.index(min(levels))
    ours, theirs = pairs[worst]
    verdict = levels[worst], ("to_" if worst else "") + ("x" if ours[0] != theirs[0] else "y")
    return min(verdict, RULES[target.name](predicted.params, target.params))


# One rule per action type, called only when some parameter differs. `p` is predicted, `t` the target.


def _done(p: schema.Done, t: schema.Done) -> Verdict:
    if p.success == t.success:
        return CORE, "text" if p.text != t.text else "files_to_display"
    return (TYPE if p.success is None or t.success is None else WRONG), "success"


def _search_engine(p: schema.SearchEngine, t: schema.SearchEngine) -> Verdict:
    if p.query == t.query:
        return EXACT, "query"
    return (CORE if similar(p.query, t.query) else TYPE), "query"


def _go_to_url(p: schema.GoToUrl, t: schema.GoToUrl) -> Verdict:
    return (CORE if same_page(p.url, t.url) else TYPE), "new_tab" if p.url == t.url else "url"


def _wait(p: schema.Wait, t: schema.Wait) -> Verdict:
    same = min(p.seconds, schema.MAX_WAIT_S) == min(t.seconds, schema.MAX_WAIT_S)
    return (EXACT if same else CORE), "seconds"


def _click(p: schema.ClickElementByIndex, t: schema.ClickElementByIndex) -> Verdict:
    return (CORE, "while_holding_ctrl") if p.index == t.index else (TYPE, "index")


def _input_text(p: schema.InputText, t: schema.InputText) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    if p.text == t.text:
        return CORE, "clear_existing"
    return (CORE if similar(p.text, t.text) else TYPE), "text"


def _scroll(p: schema.Scroll, t: schema.Scroll) -> Verdict:
    if p.down != t.down:
        return TYPE, "down"
    if p.frame_element_index != t.frame_element_index:
        return TYPE, "frame_element_index"
    return CORE, "num_pages"


def _send_keys(p: schema.SendKeys, t: schema.SendKeys) -> Verdict:
    # Key names are case-insensitive and have aliases; a single character is typed literally.
    same = min(len(p.keys.strip()), len(t.keys.strip())) > 1 and _chord(p.keys) == _chord(t.keys)
    return (CORE if same else TYPE), "keys"


def _chord(keys: str) -> list[str]:
    """Returns the keys of a chord by canonical name, modifiers sorted; "Control++" ends with a plus."""
    names = re.split(r"(?<=[^+\s])\s*\+\s*(?=\S)", plain(keys))
    names = [_KEY_NAMES.get(name, name) for name in names]
    return [*sorted(names[:-1]), names[-1]]


def _scroll_to_text(p: schema.ScrollToText, t: schema.ScrollToText) -> Verdict:
    return (CORE if similar(p.text, t.text) else TYPE), "text"


def _extract(p: schema.ExtractStructuredData, t: schema.ExtractStructuredData) -> Verdict:
    if p.query == t.query:
        return CORE, "start_from_char" if p.extract_links == t.extract_links else "extract_links"
    return (CORE if similar(p.query, t.query) else TYPE), "query"


def _tab(p: Any, t: Any) -> Verdict:
    return TYPE, "tab_id"


def _index_only(p: Any, t: Any) -> Verdict:
    return TYPE, "index"


def _select_option(p: schema.SelectDropdownOption, t: schema.SelectDropdownOption) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    # Options of one list may differ by little, so a similar text may be another option.
    return (CORE if same_but_formatting(p.text, t.text) else TYPE), "text"


def _upload(p: schema.UploadFileToElement, t: schema.UploadFileToElement) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    return (CORE if _same_file(p.path, t.path) else TYPE), "path"


def _write_file(p: schema.WriteFile, t: schema.WriteFile) -> Verdict:
    if not _same_file(p.file_name, t.file_name):
        return TYPE, "file_name"
    if p.append != t.append:  # Appending keeps the content that overwriting destroys.
        return TYPE, "append"
    if p.content == t.content:
        return CORE, "file_name" if p.file_name != t.file_name else "newline"
    return (CORE if similar(p.content, t.content) else TYPE), "content"


def _replace_str(p: schema.ReplaceFileStr, t: schema.ReplaceFileStr) -> Verdict:
    if not _same_file(p.file_name, t.file_name):
        return TYPE, "file_name"
    if p.old_str != t.old_str:  # Searched for literally.
        return TYPE, "old_str"
    return (CORE if similar(p.new_str, t.new_str) else TYPE), "new_str"


def _read_file(p: schema.ReadFile, t: schema.ReadFile) -> Verdict:
    return (CORE if _same_file(p.file_name, t.file_name) else TYPE), "file_name"


def _execute_js(p: schema.ExecuteJs, t: schema.ExecuteJs) -> Verdict:
    return (CORE if _code_lines(p.code) == _code_lines(t.code) else TYPE), "code"


def _click_coordinates(p: schema.ClickCoordinates, t: schema.ClickCoordinates) -> Verdict:
    return (EXACT, "") if p.double == t.double else (TYPE, "double")


def _scroll_coordinates(p: schema.ScrollCoordinates, t: schema.ScrollCoordinates) -> Verdict:
    if p.down != t.down:
        return TYPE, "down"
    return (EXACT, "") if p.num_pages == t.num_pages else (CORE, "num_pages")


def _drag(p: schema.DragElement, t: schema.DragElement) -> Verdict:
    return TYPE, "index" if p.index != t.index else "onto_index"


def _code_lines(code: str) -> list[str]:
    """Splits a script into lines, with white space normalized where that cannot change its meaning.

    Spaces in string literals stay, and so do line ends that could end a statement. A script that may contain
    comments, regular expressions or templates keeps everything but its indentation.
    """
    bare = _STRING.sub("", code)
    if "/" not in bare and "`" not in bare:
        code = re.sub(r"(?<=[;{,])\s*\n\s*", " ", code)
        code = _SPACES_OR_STRING.sub(lambda match: match[1] or " ", code)
    return [line.strip() for line in code.splitlines() if line.strip()]


def _same_file(first: str, second: str) -> bool:
    return posixpath.normpath(first.strip()) == posixpath.normpath(second.strip())


def _no_parameters(p: Any, t: Any) -> Verdict:
    return EXACT, ""


# Of actions that name points: what is compared apart from these.
RULES: dict[str, Callable[[Any, Any], Verdict]] = {
    "done": _done,
    "search_engine": _search_engine,
    "go_to_url": _go_to_url,
    "go_back": _no_parameters,
    "wait": _wait,
    "click_element_by_index": _click,
    "input_text": _input_text,
    "scroll": _scroll,
    "send_keys": _send_keys,
    "scroll_to_text": _scroll_to_text,
    "extract_structured_data": _extract,
    "switch_tab": _tab,
    "close_tab": _tab,
    "get_dropdown_options": _index_only,
    "select_dropdown_option": _select_option,
    "upload_file_to_element": _upload,
    "write_file": _write_file,
    "replace_file_str": _replace_str,
    "read_file": _read_file,
    "execute_js": _execute_js,
    "click_coordinates": _click_coordinates,
    "drag_coordinates": _no_parameters,
    "hover_coordinates": _no_parameters,
    "scroll_coordinates": _scroll_coordinates,
    "double_click_element": _index_only,
    "drag_element": _drag,
    "hover_element": _index_only,
}
