"""The targets by our agent's actions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from collection.browser.action_types import ActionContext
from collection.browser.actions import execute
from collection.browser.session import Browser
from collection.browser.snapshot import observe
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore
from tests.widgets.targets import Find, Move, NotListedError, Target, locate

_NAMES = {
    "click": "click_element_by_index",
    "type": "input_text",
    "select": "select_dropdown_option",
    "keys": "send_keys",
    "drag": "drag_element",
    "double_click": "double_click_element",
}
STATE = "String((window.state || {{}})[{key!r}] ?? '')"


class Player:
    """Plays targets in one browser.

    Args:
      folder: for screenshots.
      file: what `upload` moves upload.
    """

    def __init__(self, browser: Browser, folder: Path, file: Path) -> None:
        self._browser, self._images, self._file = browser, ImageStore(folder), file
        self._context = ActionContext(uploads=(file,), extra_actions=("drag_element", "double_click_element"))

    def play(self, target: Target, address: str, show: bool = False) -> dict[str, Any]:
        """Returns `state`, `looks` and `moves` in ms, and `problem`, the first thing that went wrong."""
        self._browser.reset()
        self._browser.goto(f"{address}/{target.page}.html")
        self._browser.settle()
        played: dict[str, Any] = {"looks": [], "moves": [], "problem": "", "lists": []}
        try:
            for move in target.ours:
                self._move(move, played)
        except NotListedError as problem:
            played["problem"] = played["problem"] or str(problem)
        played["state"] = self._state(target)
        return played

    def _state(self, target: Target) -> str:
        """The application's value, once it is as wanted or a second has passed."""
        end = time.monotonic() + 1
        code = f"return {STATE.format(key=target.key)}"
        while (state := self._browser.script(code)) != target.wanted and time.monotonic() < end:
            time.sleep(0.1)
        return state

    def _look(self, played: dict[str, Any]) -> list[str]:
        start = time.perf_counter()
        observation, _ = observe(self._browser, self._images)
        played["looks"].append(round(1000 * (time.perf_counter() - start)))
        played["lists"].append(observation.page_text)
        return observation.page_text.splitlines()

    def _index(self, find: Find, played: dict[str, Any]) -> int:
        """Looks until the element is listed, three times at most."""
        for _ in range(2):
            try:
                return locate(self._look(played), find)
            except NotListedError:
                time.sleep(0.5)
        return locate(self._look(played), find)

    def _move(self, move: Move, played: dict[str, Any]) -> None:
        start = time.perf_counter()
        params: dict[str, Any] = {}
        if move.find:
            params["index"] = self._index(move.find, played)
        if move.onto:
            params["onto_index"] = locate(played["lists"][-1].splitlines(), move.onto)
        if move.name in ("type", "select"):
            params["text"] = move.text
        elif move.name == "keys":
            params["keys"] = move.text
        elif move.name == "upload":
            params["path"] = str(self._file)
        name = _NAMES.get(move.name, "upload_file_to_element")
        result = execute(self._browser, normalize_action({name: params}), self._context)
        played["moves"].append(round(1000 * (time.perf_counter() - start)))
        if result.error:
            played["problem"] = played["problem"] or result.text
