"""Forty goals in real widgets by our actions and by browser-use's, side by side. Five minutes.

The libraries come from npm, browser-use from PyPI; both are installed into build/.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collection.browser.processes import find_program
from collection.browser.session import Browser, BrowserConfig
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table
from tests.serve.servers import BROWSER_USE, BROWSER_USE_ENVIRONMENT, install_browser_use
from tests.widgets.bundle import libraries, served
from tests.widgets.ours import Player
from tests.widgets.targets import FILE, TARGETS, Target

GOAL, LIBRARIES = 36, 12
LOOPBACK = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
SCRIPT = "tests.widgets.theirs"

# Plays a target; returns what `Player.play` does.
Play = Callable[[Target], dict[str, Any]]


def measure() -> Figures:
    install_browser_use()
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, FILE)
        file.write_text("notes\n")
        with (
            served({target.page for target in TARGETS}) as address,
            our_player(address, file) as ours,
            their_player(address, file) as theirs,
        ):
            rows = [_row(target, ours, theirs) for target in TARGETS]
    chromium = subprocess.run([_chromium(), "--version"], capture_output=True, text=True, check=True)
    return {
        "chromium": chromium.stdout.split()[1],
        "browser_use": BROWSER_USE.partition("==")[2],
        "libraries": [f"{name} {version}" for name, version in libraries().items()],
        "pages": len({target.page for target in TARGETS}),
        "targets": rows,
    }


def _chromium() -> str:
    return find_program("", ("chromium", "chromium-browser", "google-chrome"))


@contextmanager
def our_player(address: str, file: Path) -> Iterator[Play]:
    with Browser(BrowserConfig(host_rules=(LOOPBACK,))) as browser:
        player = Player(browser, file.parent, file)
        yield lambda target: player.play(target, address)


@contextmanager
def their_player(address: str, file: Path) -> Iterator[Play]:
    python = ROOT / BROWSER_USE_ENVIRONMENT / "bin/python"
    command = [str(python), "-m", SCRIPT, address, _chromium(), str(file)]
    pipe = subprocess.PIPE
    with open(file.with_name("theirs.log"), "w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True)
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def play(target: Target) -> dict[str, Any]:
            print(target.name, file=requests, flush=True)
            for line in answers:
                if line.startswith("REPORT "):
                    return json.loads(line.removeprefix("REPORT "))
            raise SystemExit(f"error: browser-use: {file.with_name('theirs.log').read_text()[-2000:]}")

        yield play
        requests.close()
        process.wait()


def _row(target: Target, ours: Play, theirs: Play) -> Figures:
    row = {"target": target.name, "ours": _played(ours, target), "theirs": _played(theirs, target)}
    print({side: row[side]["reached"] for side in ("ours", "theirs")}, target.name, flush=True)
    return row


def _played(play: Play, target: Target) -> Figures:
    found = play(target)
    reached = found["state"] == target.wanted
    problem = found["problem"] or f"the page holds {found['state']!r}"
    return {
        "reached": reached,
        "why_not": "" if reached else problem[:200],
        "looks_ms": found["looks"],
        "moves_ms": found["moves"],
    }


def _reached(figures: Figures, side: str) -> int:
    return sum(row[side]["reached"] for row in figures["targets"])


def _times(figures: Figures, side: str, kind: str) -> list[float]:
    return [value for row in figures["targets"] for value in row[side][kind]]


def claims(figures: Figures) -> list[Claim]:
    count, ours = len(figures["targets"]), _reached(figures, "ours")
    libraries = len(figures["libraries"])
    return [
        Claim(f"ours reaches at least {GOAL} of 40 targets", f"{ours} of {count}", ours >= GOAL),
        Claim(
            f"browser-use {figures['browser_use']}, for comparison",
            f"{_reached(figures, 'theirs')} of {count}",
            None,
        ),
        Claim(
            f"at least {LIBRARIES} libraries",
            f"{libraries} packages, {figures['pages']} pages",
            libraries >= LIBRARIES,
        ),
    ]


def tables(figures: Figures) -> str:
    sides = (("ours", "ours"), ("theirs", "browser-use"))
    sums = [
        (
            name,
            _reached(figures, side),
            len(_times(figures, side, "moves_ms")),
            f"{statistics.median(_times(figures, side, 'looks_ms')):.0f}",
            f"{max(_times(figures, side, 'looks_ms')):.0f}",
            f"{sum(_times(figures, side, 'moves_ms')) / 1000:.0f}",
        )
        for side, name in sides
    ]
    head = ("", "reached", "actions", "a look: median ms", "largest", "looks and actions, s")
    rows = [
        (
            row["target"],
            *(_cell(row[side]) for side, _ in sides),
            *(_median(row[side]["looks_ms"]) for side, _ in sides),
        )
        for row in figures["targets"]
    ]
    each = table(("target", "ours", "browser-use", "a look of ours, ms", "of browser-use's"), rows)
    return f"{table(head, sums)}\n\n{each}"


def _cell(side: Figures) -> str:
    count = len(side["moves_ms"])
    return f"yes, {count} action{'s' * (count != 1)}" if side["reached"] else f"NO: {side['why_not']}"


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.0f}" if values else "-"


ABOUT = """\
Pages of widget libraries from npm, served on loopback, each in its default look ({libraries}). A target is
one goal in a page: an option is chosen, a slider is at a value, a file is uploaded, a row is checked, an
item is dragged. It is reached if the application knows it: the check reads what the widget's own change
event, or callback, reported.

Both sides are played by scripts (`tests/widgets/targets.py`), without a model: a script names elements by
the words of their lines in the side's own element list, and takes the actions that a competent agent would.
Each side has the best script that we found for it, so the number reached says what is possible with the
actions, not what a model would find. Where browser-use has no action (dragging) its script runs JavaScript
with its `evaluate`; where a widget needs it (sliders), it presses arrow keys one by one. Our sliders take a
typed number, our lists take `select_dropdown_option`. Dragging and double clicks are ours by
`extra_actions`, which are off by default.

A *look* is an element list with a screenshot: `observe`, and browser-use's `get_browser_state_summary`,
both with default settings; its look includes its own waiting for the page, ours waits after an action,
which is why *looks and actions* counts both.
"""
PROOF = Proof("Real widgets next to browser-use", ABOUT, measure, claims, tables, ("selenium",), browser=True)

if __name__ == "__main__":
    main(PROOF)
