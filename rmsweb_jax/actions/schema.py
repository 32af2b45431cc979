"""The actions of the agent, one model per action (names and defaults of browser-use 0.6-0.7).

Extra parameters are refused, instances are immutable, and a parameter that equals its default counts as
absent. The docstrings of the actions are part of the system prompt.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticUndefined

# Actions of a reply that are executed; further ones are dropped.
MAX_ACTIONS = 10
# Longer waits are cut, so that they count as equal in the reward.
MAX_WAIT_S = 30
_NUMBER = re.compile(r"[+-]?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})")


def to_number(value: Any) -> Any:
    """Converts a number in a string to a number; returns everything else unchanged."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return value


def to_integer(value: Any) -> Any:
    """Converts as `to_number`, and whole numbers to integers."""
    value = to_number(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# The limits come before the validator: after it, they would be missing from JSON schemas.
Count = Annotated[int, Field(ge=0), BeforeValidator(to_integer)]
Index = Annotated[int, Field(ge=1), BeforeValidator(to_integer)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(to_number)]
Strings = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]
TabId = Annotated[str, Field(min_length=4, max_length=4)]


class ActionParams(BaseModel):
    """Base of all parameter models.

    Attributes:
      passive: the action only looks, waits or moves the view.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    passive: ClassVar[bool] = False


class Done(ActionParams):
    """Finish: give the answer and say whether everything requested was fulfilled."""

    text: str
    # Optional, so that the reward distinguishes a missing flag (0.3) from a wrong one (0).
    success: bool | None = None
    files_to_display: Strings = ()


class SearchEngine(ActionParams):
    """Open the search engine's result page for a query."""

    query: str
    engine: str = "duckduckgo"


class GoToUrl(ActionParams):
    """Open an address, in a new tab if asked."""

    url: str
    new_tab: bool = False


class GoBack(ActionParams):
    """Go back one page in the current tab."""

    passive: ClassVar[bool] = True


class Wait(ActionParams):
    """Wait for the page, at most 30 seconds."""

    passive: ClassVar[bool] = True
    seconds: Count = 3


class ClickElementByIndex(ActionParams):
    """Click an element; on a <select> this returns its options instead."""

    index: Index
    while_holding_ctrl: bool = False


class InputText(ActionParams):
    """Type text into an element (index 0: the focused one), replacing what it holds unless told otherwise."""

    index: Count
    text: str
    clear_existing: bool = True


class Scroll(ActionParams):
    """Scroll the page, or a scrollable element, by a number of its heights."""

    passive: ClassVar[bool] = True
    down: bool
    num_pages: Positive
    frame_element_index: Index | None = None


class SendKeys(ActionParams):
    """Press keys, for example Enter or Control+a."""

    keys: str


class ScrollToText(ActionParams):
    """Scroll to a piece of visible text."""

    passive: ClassVar[bool] = True
    text: str


class ExtractStructuredData(ActionParams):
    """Read the whole page, as Markdown, for what the query asks; links are left out unless asked for."""

    query: str
    extract_links: bool = False
    start_from_char: Count = 0


class SwitchTab(ActionParams):
    """Go to a tab by its four-character id."""

    tab_id: TabId


class CloseTab(ActionParams):
    """Close a tab by its four-character id."""

    tab_id: TabId


class GetDropdownOptions(ActionParams):
    """List the options of a dropdown."""

    passive: ClassVar[bool] = True
    index: Index


class SelectDropdownOption(ActionParams):
    """Choose a dropdown option by its visible text or value."""

    index: Index
    text: str


class UploadFileToElement(ActionParams):
    """Give a file to an upload field."""

    index: Index
    path: str


class WriteFile(ActionParams):
    """Write or append to a file of yours."""

    file_name: str
    content: str
    append: bool = False
    trailing_newline: bool = True
    leading_newline: bool = False


class ReplaceFileStr(ActionParams):
    """Replace text in a file of yours."""

    file_name: str
    old_str: str
    new_str: str


class ReadFile(ActionParams):
    """Read a file of yours."""

    passive: ClassVar[bool] = True
    file_name: str


class ExecuteJs(ActionParams):
    """Run JavaScript in the page."""

    code: str


class ClickCoordinates(ActionParams):
    """Click a point of the screenshot, in pixels from its left and top edge; twice if asked."""

    x: Count
    y: Count
    double: bool = False


class DragCoordinates(ActionParams):
    """Drag from a point of the screenshot to another one."""

    x: Count
    y: Count
    to_x: Count
    to_y: Count


class HoverCoordinates(ActionParams):
    """Move the mouse to a point of the screenshot."""

    passive: ClassVar[bool] = True
    x: Count
    y: Count


class ScrollCoordinates(ActionParams):
    """Turn the mouse wheel at a point of the screenshot, by a number of heights of the window."""

    passive: ClassVar[bool] = True
    x: Count
    y: Count
    down: bool
    num_pages: Positive


class DoubleClickElement(ActionParams):
    """Click an element twice, for example to edit a cell of a table."""

    index: Index


class DragElement(ActionParams):
    """Drag an element onto another one."""

    index: Index
    onto_index: Index


class HoverElement(ActionParams):
    """Move the mouse over an element, for example to open a menu."""

    passive: ClassVar[bool] = True
    index: Index


ACTIONS: dict[str, type[ActionParams]] = {
    "done": Done,
    "search_engine": SearchEngine,
    "go_to_url": GoToUrl,
    "go_back": GoBack,
    "wait": Wait,
    "click_element_by_index": ClickElementByIndex,
    "input_text": InputText,
    "scroll": Scroll,
    "send_keys": SendKeys,
    "scroll_to_text": ScrollToText,
    "extract_structured_data": ExtractStructuredData,
    "switch_tab": SwitchTab,
    "close_tab": CloseTab,
    "get_dropdown_options": GetDropdownOptions,
    "select_dropdown_option": SelectDropdownOption,
    "upload_file_to_element": UploadFileToElement,
    "write_file": WriteFile,
    "replace_file_str": ReplaceFileStr,
    "read_file": ReadFile,
    "execute_js": ExecuteJs,
    "click_coordinates": ClickCoordinates,
    "drag_coordinates": DragCoordinates,
    "hover_coordinates": HoverCoordinates,
    "scroll_coordinates": ScrollCoordinates,
    "double_click_element": DoubleClickElement,
    "drag_element": DragElement,
    "hover_element": HoverElement,
}
# Beyond the paper's action space; each is off until a setting names it.
POINT_ACTIONS = ("click_coordinates", "drag_coordinates", "hover_coordinates", "scroll_coordinates")
EXTRA_ACTIONS = ("execute_js", *POINT_ACTIONS, "double_click_element", "drag_element", "hover_element")


@dataclasses.dataclass(frozen=True)
class Action:
    """One action by its canonical name."""

    name: str
    params: ActionParams

    def to_json(self) -> dict[str, dict[str, Any]]:
        """`{name: parameters}` with default-valued parameters left out."""
        return {self.name: self.params.model_dump(mode="json", exclude_defaults=True)}


class Reply(BaseModel):
    """An agent's reply to one observation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    thinking: str | None = None
    evaluation_previous_goal: str
    memory: str
    next_goal: str
    actions: tuple[Action, ...] = Field(min_length=1)

    @property
    def executable(self) -> tuple[Action, ...]:
        """The actions to execute: at most `MAX_ACTIONS`, and only those before a `done` that is not first."""
        kept = self.actions[:MAX_ACTIONS]
        for position, action in enumerate(kept):
            if action.name == "done":
                return kept[: max(position, 1)]
        return kept


def points_of(action: Action) -> tuple[tuple[int, int], ...]:
    """Returns the points that an action names: none, one, or the ends of a drag."""
    if action.name not in POINT_ACTIONS:
        return ()
    given: Any = action.params
    end = ((given.to_x, given.to_y),) if isinstance(given, DragCoordinates) else ()
    return ((given.x, given.y), *end)


def composition(actions: Iterable[Action]) -> tuple[str, ...]:
    """Describes actions for comparison between steps: `name {parameters}` in order."""
    return tuple(f"{action.name} {action.params.model_dump(exclude_defaults=True)}" for action in actions)


def action_catalogue(exclude: Collection[str] = EXTRA_ACTIONS) -> list[dict[str, str]]:
    """Returns `name`, `parameters` and `summary` of every action, for the full system prompt."""
    return [
        {"name": name, "parameters": _signature(params), "summary": (params.__doc__ or "").strip()}
        for name, params in ACTIONS.items()
        if name not in exclude
    ]


def _signature(params: type[ActionParams]) -> str:
    kinds = {"tuple": "list of strings", "bool": "true|false", "int": "integer", "float": "number"}
    parts = []
    for name, field in params.model_fields.items():
        text = str(field.annotation)
        kind = next((shown for key, shown in kinds.items() if re.search(rf"\b{key}\b", text)), "string")
        default = field.default
        if default is PydanticUndefined:
            parts.append(f"{name}: {kind}")
        elif default is None or default == ():
            parts.append(f"{name}: {kind}, optional" if name != "success" else f"{name}: {kind}")
        else:
            parts.append(f"{name}: {kind} = {str(default).lower() if isinstance(default, bool) else default}")
    return ", ".join(parts)
