"""A Gymnasium environment whose observations and actions have the names of BrowserGym's.

    env = WebEnv("miniwob/click-button")
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step("click('3')")

An element's id (`bid`) is its number in the text of the page. An action is one call or several, a line each.
Observations are a function of seed and actions, so that `elapsed_time` is not among them.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

from collection.browser.config import BrowserConfig
from collection.environments.base import View
from collection.gym.session import Session, find
from rmsweb_jax.actions import Action, ReplyError
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.schema import Task

# Pixels of a scroll by one height of the page, where BrowserGym counts pixels.
_PAGE = 720
_MILLISECONDS = 1000


# What Python raises for text that is no call with plain values, such as endless brackets.
_UNREADABLE = (SyntaxError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)


class AnyText(spaces.Space[str]):
    """Any text."""

    def __init__(self) -> None:
        super().__init__((), str)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "noop()"

    @property
    def is_np_flattenable(self) -> bool:
        return False


class WebEnv(gymnasium.Env[dict[str, Any], str]):
    """Tasks of one kind, with a page or a template; the seed of `reset` chooses among them.

    Args:
      task: `miniwob/PAGE`, or `APPLICATION/TEMPLATE` of an installed application.
      max_steps: an episode is truncated after so many steps.
      browser: its window is the screenshot's size.
      apps: folder in which applications are installed; "" is the user's cache.

    Raises:
      UserError: there is no such task, or its application is not installed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, task: str, max_steps: int = 20, browser: BrowserConfig | None = None, apps: str = ""):
        config = browser or BrowserConfig()
        find(task, 0, apps)
        self._name, self._max_steps, self._apps = task, max_steps, apps
        self._session = Session(config, apps=apps)
        self._task: Task | None = None
        self._tabs, self._active = tuple[str, ...](), ""
        self._steps = 0
        self.action_space = AnyText()
        many = spaces.Sequence(AnyText(), stack=False)
        self.observation_space = spaces.Dict(
            {
                "goal": AnyText(),
                "url": AnyText(),
                "open_pages_urls": many,
                "open_pages_titles": many,
                "active_page_index": spaces.Box(0, 255, (1,), np.int64),
                "screenshot": spaces.Box(0, 255, (config.height, config.width, 3), np.uint8),
                "axtree_txt": AnyText(),
                "last_action": AnyText(),
                "last_action_error": AnyText(),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins the episode of a seed; without one, of a random one."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._task, view = self._session.reset(find(self._name, seed, self._apps))
        self._steps = 0
        return self._observation(view), {"task_info": {"task_id": self._task.task_id}}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Carries out an action; one that cannot be read is an error of the observation."""
        self._steps += 1
        info: dict[str, Any] = {"task_info": {"task_id": self._task.task_id if self._task else ""}}
        try:
            actions = parse_actions(action, self._tabs, self._active)
        except ReplyError as error:
            view = self._session.look()
            return self._observation(view, action, str(error)), 0.0, False, self._is_over, info
        stepped = self._session.step(actions)
        last = stepped.results[-1] if stepped.results else None
        error = last.text if last is not None and last.error else ""
        observation = self._observation(stepped.view, action, error)
        return observation, stepped.reward, stepped.ended, not stepped.ended and self._is_over, info

    def close(self) -> None:
        self._session.close()

    @property
    def _is_over(self) -> bool:
        return self._steps >= self._max_steps

    def _observation(self, view: View, action: str = "", error: str = "") -> dict[str, Any]:
        page = view.observation
        self._tabs, self._active = tuple(tab.tab_id for tab in page.tabs), page.current_tab
        active = self._tabs.index(page.current_tab) if page.current_tab in self._tabs else 0
        return {
            "goal": self._task.objective if self._task else "",
            "url": page.url,
            "open_pages_urls": tuple(tab.url for tab in page.tabs),
            "open_pages_titles": tuple(tab.title for tab in page.tabs),
            "active_page_index": np.asarray([active]),
            "screenshot": self._pixels(page.screenshot),
            "axtree_txt": page.page_text,
            "last_action": action,
            "last_action_error": error,
        }

    def _pixels(self, sha256: str | None) -> np.ndarray:
        space = self.observation_space["screenshot"]  # type: ignore[index]
        if sha256 is None:
            return np.zeros(space.shape, np.uint8)
        with Image.open(io.BytesIO(self._session.images.get(sha256))) as image:
            return np.asarray(image.convert("RGB"))


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
        raise ReplyError(f"{text!r} is no action: write calls such as click('3')") from error
    if not body:
        raise ReplyError("no action: write calls such as click('3')")
    actions: list[Action] = []
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ReplyError(f"{ast.unparse(statement)!r} is no action: write calls such as click('3')")
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
        raise ReplyError(f"{text!r} has nothing to do")
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
