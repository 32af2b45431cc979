"""Steps a second against BrowserGym's, looks at large pages, episodes an hour. Ten minutes, an idle machine.

BrowserGym is installed into build/, not into the environment.
"""

from __future__ import annotations

import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from collection.browser.processes import find_program
from collection.environments.miniwob import MiniWobServer
from tests.collector_bench import ours
from tests.collector_bench.peer import BrowserGym
from tests.proofs.result import Claim, Figures, Proof, main, table

PAGES = ("enter-text", "enter-password", "login-user", "search-engine")
SIZES = (500, 5_000, 50_000)
GOAL, COST = 4.0, 0.10
# Rounds of everything; steps of each kind in an episode; our episodes for each of BrowserGym's.
ROUNDS, STEPS, TURNS = 4, 4, 3
LOOKS, SEEDS = 9, 3
DELAY = 0.5
PEER, PEER_BARE, FREE, HELD = "BrowserGym", "BrowserGym, no delay", "ours", "ours, guard and proxy"
KINDS = ("noop", "click", "type")

# For each side: for each round, seconds of resets and of steps by kind.
Times = dict[str, list[dict[str, list[float]]]]


def measure(rounds: int = ROUNDS, repeats: int = LOOKS, seeds: int = SEEDS) -> Figures:
    times = measure_steps(rounds)
    looks = ours.time_looks(("list", "table"), SIZES, repeats)
    fleets: dict[int, list[tuple[int, float, float]]] = {1: [], 2: []}
    for turn in range(2):
        for workers, runs in fleets.items():
            runs.append(ours.episodes_an_hour(workers, range(turn * seeds, (turn + 1) * seeds)))
    pairs = zip(rates(times[FREE]), rates(times[HELD]), strict=True)
    costs = [1 - held / free for free, held in pairs]
    chromium = find_program("", ("chromium", "chromium-browser", "google-chrome"))
    version = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "chromium": version.split()[1],
        "pages": list(PAGES),
        "rounds": rounds,
        "repeats": repeats,
        "seeds": seeds,
        "steps": [
            {"side": side, "steps_per_second": _spread(rates(rounds), 2)}
            | {f"{kind}_ms": _median_ms(rounds, kind) for kind in (*KINDS, "reset")}
            for side, rounds in times.items()
        ],
        "guard_cost": [round(min(costs), 3), round(max(costs), 3)],
        "looks": [
            {
                "page": row["kind"],
                "elements": row["count"],
                "ms": _spread([1000 * value for value in row["seconds"]], 0),
                "first_ms": round(1000 * row["first"]),
                "indexed": row["indexed"],
                "characters": row["characters"],
            }
            for row in looks
        ],
        "fleets": [
            {
                "workers": workers,
                "episodes": runs[0][0],
                "solved": round(statistics.mean(share for _, share, _ in runs), 4),
                "episodes_per_hour": [round(rate) for _, _, rate in runs],
            }
            for workers, runs in fleets.items()
        ],
    }


def _spread(values: Sequence[float], digits: int) -> list[float]:
    """Minimum, median and maximum."""
    return [round(value, digits) for value in (min(values), statistics.median(values), max(values))]


def _median_ms(rounds: Iterable[dict[str, list[float]]], kind: str) -> int:
    return round(1000 * statistics.median(value for one in rounds for value in one[kind]))


def measure_steps(rounds: int) -> Times:
    """Plays all sides by turns; ours also swap their order from turn to turn."""
    times: Times = defaultdict(list)
    with (
        MiniWobServer() as server,
        BrowserGym(f"http://127.0.0.1:{server.port}") as peer,
        ours.players(server) as players,
    ):
        for number in range(-1, rounds):  # The first starts everything and does not count.
            kept: Times = defaultdict(lambda: [defaultdict(list)])
            for page in PAGES:
                seed = 100 * max(number, 0)
                if number >= 0:
                    _keep(kept[PEER][0], peer.play(page, seed, STEPS, DELAY))
                    _keep(kept[PEER_BARE][0], peer.play(page, seed, STEPS, 0.0))
                for turn in range(TURNS):
                    for held in (False, True) if turn % 2 else (True, False):
                        seconds = players[held].play(page, seed + turn, STEPS)
                        _keep(kept[HELD if held else FREE][0], seconds)
            if number >= 0:
                for side, [seconds] in kept.items():
                    times[side].append(seconds)
                print(f"round {number + 1} of {rounds}", flush=True)
    return times


def _keep(all_seconds: dict[str, list[float]], seconds: dict[str, Any]) -> None:
    all_seconds["reset"].append(seconds["reset"])
    for kind in KINDS:
        all_seconds[kind] += seconds[kind]


def rates(rounds: Iterable[dict[str, list[float]]]) -> list[float]:
    """Steps a second, in each round."""
    return [sum(len(one[kind]) for kind in KINDS) / sum(sum(one[kind]) for kind in KINDS) for one in rounds]


def claims(figures: Figures) -> list[Claim]:
    rate = {row["side"]: row["steps_per_second"][1] for row in figures["steps"]}
    faster, bare = rate[HELD] / rate[PEER], rate[HELD] / rate[PEER_BARE]
    cost = 1 - rate[HELD] / rate[FREE]
    low, high = figures["guard_cost"]
    return [
        Claim(
            f"with guard and proxy, at least {GOAL:.0f} times BrowserGym's default step rate",
            f"{faster:.1f} times; {bare:.1f} times without its fixed delay",
            faster >= GOAL,
        ),
        Claim(
            f"guard and proxy cost less than {COST:.0%} of the step rate",
            f"{cost:.1%} ({low:.1%} to {high:.1%} in single rounds)",
            cost < COST,
        ),
    ]


def tables(figures: Figures) -> str:
    steps = [
        (
            row["side"],
            " / ".join(f"{rate:.2f}" for rate in row["steps_per_second"]),
            *(row[f"{kind}_ms"] for kind in (*KINDS, "reset")),
        )
        for row in figures["steps"]
    ]
    looks = [
        (
            *(
                row["page"],
                f"{row['elements']:,}",
                " / ".join(f"{one:.0f}" for one in row["ms"]),
                row["first_ms"],
            ),
            *(f"{row[name]:,}" for name in ("indexed", "characters")),
        )
        for row in figures["looks"]
    ]
    fleets = [
        (
            row["workers"],
            row["episodes"],
            f"{row['solved']:.0%}",
            ", ".join(f"{one:,}" for one in row["episodes_per_hour"]),
        )
        for row in figures["fleets"]
    ]
    ms = "ms: min / median / max"
    return "\n\n".join(
        (
            "## Steps",
            table(
                ("side", "steps/s: min / median / max", "no-op ms", "click ms", "typing ms", "reset ms"),
                steps,
            ),
            "## A look at large pages",
            table(("page", "elements", ms, "first look ms", "indexed", "characters"), looks),
            "## Episodes an hour",
            table(("workers", "episodes a run", "solved", "episodes an hour, each run"), fleets),
        )
    )


ABOUT = """\
**Steps.** The same MiniWoB++ pages ({pages}) from the same server, one browser a side, in turns in each of
{rounds} rounds (Chromium {chromium}). A step is an action and the observation after it: nothing (`noop(0)`;
`wait` of 0 s), a click into a text field, typing into it. No step ends its episode; no model is called.
BrowserGym (browsergym-core 0.14.3, playwright 1.44) by default waits 0.5 s before every observation and 0.1 s
in each of playwright's operations on MiniWoB++, in a window of 332x214; its observation is screenshot, DOM
snapshot and accessibility tree, the latter as text. "No delay" leaves out the 0.5 s. Ours is set as the demo
collects: after an action, it waits until the page has not changed for 50 ms; looks whether the action changed
anything; reads the reward; then observes element lines, the list of tabs and the screenshot with boxes
(500x320), written to the image store. With guard and proxy, every request goes through the egress proxy, all
windows are judged after every step, and incidents are fetched.

**Observations.** `take_snapshot` in a window of 1280x1100, {repeats} times after a first call. `list`: a list
far longer than the window, cards with positioned parts; `table`: everything inside the window. What is beyond
a viewport above and below is not read, and page text ends at 40,000 characters, so large pages cost less than
their size.

**Episodes.** The fleet plays the demo's 15 pages with the scripted teacher and no mistakes, {seeds} seeds a
page, by turns with one and two workers, a browser each, guard and proxy included. Starting workers and
browsers and writing the data set count.
"""
PROOF = Proof("The collector's speed", ABOUT, measure, claims, tables, ("selenium",), browser=True)

if __name__ == "__main__":
    main(PROOF)
