"""Pages that move while an agent is at them, and errors in every call to the browser, in a fleet's worker."""

from __future__ import annotations

import collections
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from selenium.webdriver.remote.webdriver import WebDriver

from collection.browser.devtools import DevTools, DevToolsConnection
from tests.fleet.moving import (
    RUN_ENDS,
    Episode,
    Stage,
    act_on_stage,
    moving_when,
    pages_in,
    pay_in_popup,
    tour,
    type_and_enter,
)
from tests.proofs.page import table

ENTER_MS = tuple(range(0, 401, 8))[:50]
POPUP_MS = tuple(ms for ms in range(0, 601, 20) for _ in range(2))
MOVING_MS = tuple(range(0, 401, 20))
EVENTS = ("navigate", "close", "crash")
DURING = ("click", "input", "scroll", "extract")
# The driver's commands that begin and end a browser are not calls to it.
_NOT_CALLS = ("newSession", "quit")


class Count:
    """Counts of what went wrong in some episodes, with examples."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: dict[str, str] = {}

    def add(self, what: str, example: str = "") -> None:
        self.counts[what] += 1
        if what not in self.examples and example:
            self.examples[what] = example

    def episode(self, stage: Stage, played: Episode) -> None:
        self.add("episodes")
        if played.trajectory is None:
            self.add("dead workers", played.death)
            return
        if played.tracebacks:
            self.add("with a logged exception")
        if played.trajectory.outcome != "done":
            self.add("not done", f"{played.trajectory.outcome}: {played.trajectory.detail}")
        if found := stage.mixed(played):
            self.add("mixed observations", found[0])


def enter(stage: Stage, delays: tuple[int, ...]) -> Count:
    """Types a query that ends in Enter; the server answers after so many milliseconds."""
    count = Count()
    for ms in delays:
        played = stage.play("form", type_and_enter, ms=ms)
        count.episode(stage, played)
        steps = played.trajectory.steps if played.trajectory else ()
        if len(steps) == 2 and not steps[0].results[0].error:
            count.add("recorded")
    return count


def popups(stage: Stage, delays: tuple[int, ...]) -> Count:
    """Opens popups that close so many milliseconds after the click, and clicks in those that are seen."""
    count = Count()
    for ms in delays:
        played = stage.play("basket", pay_in_popup, ms=ms)
        count.episode(stage, played)
        count_reports(count, stage, played, {"basket": ("click open",), "pay": ("click pay",)})
        if played.trajectory and len(played.trajectory.steps) > 2:
            count.add("popup seen")
    return count


def moving(stage: Stage, event: str, action: str, offsets: tuple[int, ...]) -> Count:
    """Lets something happen to the page so many milliseconds after an action begins."""
    count = Count()
    for ms in offsets:
        with moving_when(stage, event, ms):
            played = stage.play("start", act_on_stage(action))
        count.episode(stage, played)
        wanted = {"start": ("click open",), "stage": ("click button", "click field", "input", "scroll")}
        count_reports(count, stage, played, wanted)
        if any(set(pages_in(text)) - {"stage"} for text in stage.actor.texts):
            count.add("acts on another page", "extract")
    return count


def count_reports(count: Count, stage: Stage, played: Episode, wanted: dict[str, tuple[str, ...]]) -> None:
    wrong = {page: what for page, what in stage.reported(played) if what not in wanted.get(page, ())}
    for page, what in wrong.items():
        clicks = page == "after" and what.startswith("click")
        count.add(NEXT if clicks else "acts on another page", f"{page}: {what}")


# --- Errors in every call ---


class Faults:
    """Counts the calls to the browser by name, and raises in the calls of one name.

    These are the commands of our DevTools connections, those of the driver, and the methods of `DevTools`.
    """

    def __init__(self) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self._name, self._numbers = "", range(0)

    def raise_in(self, name: str, numbers: range) -> None:
        """Raises in the calls with these numbers, from 1, from now on."""
        self.calls.clear()
        self._name, self._numbers = name, numbers

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if name == self._name and self.calls[name] in self._numbers:
            raise RuntimeError(f"raised by hand in {name}")

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        send, execute = DevToolsConnection.send, WebDriver.execute

        def send_counted(connection: Any, session: str, method: str, **params: Any) -> Any:
            self._call(f"command {method}")
            return send(connection, session, method, **params)

        def execute_counted(driver: Any, command: str, params: Any = None) -> Any:
            if command not in _NOT_CALLS:
                self._call(f"driver {(params or {}).get('cmd', command)}")
            return execute(driver, command, params)

        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.object(DevToolsConnection, "send", send_counted))
            patches.enter_context(mock.patch.object(WebDriver, "execute", execute_counted))
            for name, method in list(vars(DevTools).items()):
                if not name.startswith("_") and name != "close":
                    patches.enter_context(mock.patch.object(DevTools, name, self._counted(name, method)))
            yield

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._call(f"method {name}")
            return method(*args, **kwargs)

        return counted


def play_tour(stage: Stage) -> Episode:
    """Plays the tour in a new browser."""
    with contextlib.suppress(Exception):
        stage.worker._browsers.discard()
    return stage.play("start", tour)


def faults(stage: Stage, names: tuple[str, ...] = ()) -> dict[str, list[Episode]]:
    """Plays the tour with an error in the first, in the last, and in all calls of each name.

    Args:
      names: of calls; none is all that the tour makes.
    """
    found, injected = {}, Faults()
    with injected.patched():
        play_tour(stage)
        calls = dict(injected.calls)
        for name in names or sorted(calls):
            found[name] = []
            for numbers in (range(1, 2), range(calls[name], calls[name] + 1), range(1, 10**6)):
                injected.raise_in(name, numbers)
                found[name].append(play_tour(stage))
    return found


# --- The page ---


# Chromium may open the next document of a tab in the milliseconds between our last script and an input event.
NEXT = "clicks on the tab's next document"
BAD = ("dead workers", "mixed observations", "acts on another page", "with a logged exception", "not done")


def main() -> str:
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        entered, opened = enter(stage, ENTER_MS), popups(stage, POPUP_MS)
        rows = {"Enter in a form that navigates": entered, "popups that close": opened}
        for event in EVENTS:
            rows |= {f"{event} during {one}": moving(stage, event, one, MOVING_MS) for one in DURING}
        broken = faults(stage)
    recorded = f"{entered.counts['recorded']} of {len(ENTER_MS)}"
    outcomes = {
        name: [one.trajectory.outcome if one.trajectory else f"none ({one.death})" for one in played]
        for name, played in broken.items()
    }
    ended = [outcome for played in outcomes.values() for outcome in played]
    # A browser in which all calls of a kind fail may be none that can be used, which ends a run in one line.
    ended_runs = sum(played[-1].startswith(f"none ({RUN_ENDS}: ") for played in outcomes.values())
    dead = sum(outcome.startswith("none") for outcome in ended) - ended_runs
    parts = [
        "## Pages that move, and errors in every call",
        table(
            {"what": name} | {what: row.counts[what] for what in ("episodes", *BAD, NEXT)}
            for name, row in rows.items()
        ),
        "\n".join(f"- {name}: {text}" for name, row in rows.items() for text in row.examples.values()),
        f"Enter: {recorded} recorded; the server answers after 0 to {max(ENTER_MS)} ms.",
        f"Popups: {opened.counts['popup seen']} of {len(POPUP_MS)} were seen before they closed, 0 to"
        f" {max(POPUP_MS)} ms after the click.",
        "An error raised by hand in the first, the last, and all calls; the outcome of the episode:",
        table(
            {"call": name, **dict(zip(("first", "last", "all"), played, strict=True))}
            for name, played in outcomes.items()
        ),
        f"{len(ended)} episodes with errors in {len(broken)} kinds of call: {dead} without an outcome, and"
        f" {ended_runs} in which no call of a kind works and the run ends in one line.",
    ]
    page = "\n\n".join(part for part in parts if part)
    print(page, flush=True)
    failed = [
        f"{name}: {row.counts[what]} {what}" for name, row in rows.items() for what in BAD if row.counts[what]
    ]
    failed += [f"Enter: {recorded} recorded"] * (entered.counts["recorded"] < len(ENTER_MS))
    failed += [f"{dead} episodes with errors in calls"] * bool(dead)
    assert not failed, "; ".join(failed)
    return page


if __name__ == "__main__":
    main()
