"""How fast the collector steps, beside BrowserGym in the same run.

python -m tests.collector_bench.proof_speed --output=docs/results/collector.md
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from collection.browser.processes import find_program
from collection.environments.miniwob import MiniWobServer
from rmsweb_jax.records.files import write_atomic
from tests.collector_bench import ours
from tests.collector_bench.peer import BrowserGym

PAGES = ("enter-text", "enter-password", "login-user", "search-engine")
SIZES = (500, 5_000, 50_000)
GOAL, COST = 4.0, 0.10
# Rounds of everything; steps of each kind in an episode; our episodes for each of BrowserGym's.
ROUNDS, STEPS, TURNS = 4, 4, 3
DELAY = 0.5
PEER, PEER_BARE, FREE, HELD = "BrowserGym", "BrowserGym, no delay", "ours", "ours, guard and proxy"
KINDS = ("noop", "click", "type")

# For each side: for each round, seconds of resets and of steps by kind.
Times = dict[str, list[dict[str, list[float]]]]

INTRODUCTION = """\
# The collector's speed

    make proof-collector-speed

runs `{command}`, which writes this page. {machine}

## Steps beside BrowserGym

The same MiniWoB++ pages ({pages}) from the same server, one browser a side, the sides by turns in each of
{rounds} rounds. A step is an action and the observation after it: nothing (`noop(0)`; `wait` of 0 s), a
click into a text field, typing into it. No step ends its episode; no model is asked.

- **BrowserGym** (browsergym-core 0.14.3, playwright 1.44, Chromium as here), as it comes: 0.5 s before
  every observation, 0.1 s in each of playwright's operations on MiniWoB++, a window of 332x214. Its
  observation: screenshot, DOM snapshot and accessibility tree, the latter as text
  (`flatten_axtree_to_str`). "No delay" leaves out the 0.5 s.
- **Ours**, as the demo collects: after an action, until the page has not changed for 50 ms; a look to tell
  whether the action changed anything; the reward; then the observation: element lines, the list of tabs,
  the screenshot with boxes (500x320), written to the image store.
- **Guard and proxy**: every request through the egress proxy, all windows judged after every step,
  incidents fetched.

Minimum, median and maximum are over the rounds.

{steps}

{verdicts}

## A look at large pages

`take_snapshot` in a window of 1280x1100, {repeats} times after a first look. `list`: a list far longer than
the window, cards with positioned parts; `table`: everything inside the window. What is beyond a viewport
above and below is not looked at, and page text ends at 40,000 characters, so large pages cost less than
their size.

{looks}

## Episodes an hour

The fleet on the demo's 15 pages with the scripted teacher and no mistakes, {seeds} seeds a page, by turns
with one and two workers, a browser each, guard and proxy included. Starting workers and browsers and
writing the data set count.

{episodes}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the page.

    Raises:
      SystemExit: a goal was not reached; the page is written all the same.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    times = measure_steps(options.rounds)
    looks = ours.time_looks(("list", "table"), SIZES, options.repeats)
    fleets: dict[int, list[tuple[int, float, float]]] = {1: [], 2: []}
    for turn in range(2):
        for workers, runs in fleets.items():
            runs.append(
                ours.episodes_an_hour(workers, range(turn * options.seeds, (turn + 1) * options.seeds))
            )
    verdicts, missed = judge(times)
    page = INTRODUCTION.format(
        command=f"python -m tests.collector_bench.proof_speed --output={options.output}",
        machine=_machine(),
        pages=", ".join(PAGES),
        rounds=options.rounds,
        steps=_steps_table(times),
        verdicts="\n".join(verdicts),
        repeats=options.repeats,
        looks=_looks_table(looks),
        seeds=options.seeds,
        episodes=_fleet_table(fleets),
    )
    write_atomic(options.output, page.encode())
    print(page)
    if missed:
        sys.exit(f"error: {missed}")


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


def judge(times: Times) -> tuple[list[str], str]:
    """What the goals came to, and what of it was missed, empty when nothing was."""
    rate = {side: statistics.median(rates(rounds)) for side, rounds in times.items()}
    faster, bare = rate[HELD] / rate[PEER], rate[HELD] / rate[PEER_BARE]
    cost = 1 - rate[HELD] / rate[FREE]
    pairs = zip(rates(times[FREE]), rates(times[HELD]), strict=True)
    costs = [1 - held / free for free, held in pairs]
    spread = f"{min(costs):.1%} to {max(costs):.1%} in single rounds"
    verdicts = [
        f"- With guard and proxy, {faster:.1f} times BrowserGym's steps a second as it comes, {bare:.1f} "
        f"times without its delay; the goal is {GOAL:.0f}.",
        f"- Guard and proxy cost {cost:.1%} of the steps a second ({spread}); the goal is below {COST:.0%}.",
    ]
    missed = []
    if faster < GOAL:
        missed.append(f"{faster:.1f} times BrowserGym's steps, the goal is {GOAL:.0f}")
    if cost >= COST:
        missed.append(f"guard and proxy cost {cost:.1%}, the goal is below {COST:.0%}")
    return verdicts, "; ".join(missed)


def _spread(values: Sequence[float], form: str) -> str:
    return " / ".join(format(value, form) for value in (min(values), statistics.median(values), max(values)))


def _steps_table(times: Times) -> str:
    lines = [
        "| side | steps/s: min / **median** / max | no-op ms | click ms | typing ms | reset ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for side, rounds in times.items():
        cells = [
            f"{1000 * statistics.median(value for one in rounds for value in one[kind]):.0f}"
            for kind in (*KINDS, "reset")
        ]
        lines.append(f"| {side} | {_spread(rates(rounds), '.2f')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _looks_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| page | elements | ms: min / **median** / max | first look ms | indexed | characters |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        spread = _spread([1000 * value for value in row["seconds"]], ".0f")
        lines.append(
            f"| {row['kind']} | {row['count']:,} | {spread} | {1000 * row['first']:.0f} | {row['indexed']:,} "
            f"| {row['characters']:,} |"
        )
    return "\n".join(lines)


def _fleet_table(fleets: dict[int, list[tuple[int, float, float]]]) -> str:
    lines = [
        "| workers | episodes a run | solved | episodes an hour, each run |",
        "| --- | --- | --- | --- |",
    ]
    for workers, runs in fleets.items():
        hourly = ", ".join(f"{rate:,.0f}" for _, _, rate in runs)
        solved = statistics.mean(share for _, share, _ in runs)
        lines.append(f"| {workers} | {runs[0][0]} | {solved:.0%} | {hourly} |")
    return "\n".join(lines)


def _machine() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    chromium = find_program("", ("chromium", "chromium-browser", "google-chrome"))
    version = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=True).stdout
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    processor = names[0] if names else platform.machine()
    return (
        f"{processor}, {os.cpu_count()} cores, load average {load} at the end; "
        f"{' '.join(version.split()[:2])}, selenium {metadata.version('selenium')}, "
        f"python {platform.python_version()}."
    )


if __name__ == "__main__":
    main()
