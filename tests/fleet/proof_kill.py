"""Proof that a collecting run survives whatever of it is killed, and that its parent does not grow.

python -m tests.fleet.proof_kill --output=docs/results/collector_kill.md
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.fleet.watched import Watched, compare

PROCESSES = ("worker", "driver", "browser", "proxy", "parent")
# Killed by themselves in the middle of a write: whichever worker appends next, and who publishes.
WRITERS = ("append",)
PUBLISHING = ("publish", "manifest")
PAGES = ("click-button", "click-option", "click-tab", "enter-text", "login-user", "search-engine")
_ORPHANS_S = 10.0
_WARM_UP = 0.2
_MEMORY_LIMIT = 0.10


@dataclasses.dataclass(frozen=True)
class Kill:
    """When so many episodes are on disk, and so many seconds have passed, one of a kind is killed."""

    episodes: int
    seconds: float
    kind: str
    which: float


def schedule(kills: int, episodes: int, seed: int) -> list[Kill]:
    """Kills in order, the last two while the data set is published."""
    rng = random.Random(seed)
    kinds = (*PROCESSES, *WRITERS)
    number = kills - len(PUBLISHING)
    # Every kind as often as the others, in an order that is drawn.
    drawn = [kinds[at % len(kinds)] for at in range(number)]
    rng.shuffle(drawn)
    places = sorted(rng.randrange(max(1, episodes - 2)) for _ in drawn)
    return [
        Kill(place, rng.uniform(0.0, 1.5), kind, rng.random())
        for place, kind in zip(places, drawn, strict=True)
    ] + [Kill(episodes, 0.0, kind, 0.0) for kind in PUBLISHING]


def settings(episodes: int) -> list[str]:
    """A run of so many episodes: two rounds of each task, with reflection between them."""
    tasks = episodes // 2
    if episodes % (2 * len(PAGES)):
        raise SystemExit(f"error: episodes must be a multiple of {2 * len(PAGES)}")
    return [
        "--config=configs/collect.py:demo",
        f"--config.pages={PAGES!r}",
        f"--config.seeds={tasks // len(PAGES)}",
        "--config.rounds=2",
        "--config.stop_after=0",
        "--config.actor.kind=scripted",
        "--config.fleet.workers=2",
        # However often the same task is hit, the run must not give it up because of us.
        "--config.fleet.retries=1000",
        "--config.fleet.crashes=1000",
    ]


def kill_often(run: Watched, kills: list[Kill]) -> Counter[str]:
    """Kills by the schedule, starting the run again whenever it has ended; returns what was killed."""
    done: Counter[str] = Counter()
    for kill in kills:
        if not run.running:
            run.start()
        if kill.kind in PUBLISHING:
            (run.kill_folder / kill.kind).touch()
            run.wait()
        else:
            run.until(lambda kill=kill: run.count_episodes() >= kill.episodes)
            time.sleep(kill.seconds)  # Any moment of an episode is a moment to die.
            if kill.kind == "append":
                (run.kill_folder / kill.kind).touch()
                run.until(lambda: not (run.kill_folder / "append").exists())
            elif kill.kind == "parent":
                assert run.process is not None
                run.process.kill()
                run.wait()
            else:
                _kill_one(run, kill)
        done[kill.kind] += 1
    return done


def _kill_one(run: Watched, kill: Kill) -> None:
    """One process of the kind, when there is one."""
    killed = False

    def strike() -> bool:
        nonlocal killed
        found = run.processes(kill.kind)
        if found:
            try:
                found[int(kill.which * len(found))].kill()
                killed = True
            except psutil.NoSuchProcess:
                pass
        return killed

    run.until(strike)


@dataclasses.dataclass
class Soak:
    """The parent's memory (PSS, MB) and open files by episodes on disk."""

    samples: list[tuple[int, float, int]] = dataclasses.field(default_factory=list)

    def watch(self, run: Watched) -> None:
        run.start()
        assert run.process is not None
        parent = psutil.Process(run.process.pid)
        while run.running:
            try:
                memory, files = parent.memory_full_info().pss / 2**20, parent.num_fds()
            except psutil.Error:
                break
            if run.processes("worker"):
                self.samples.append((run.count_episodes(), memory, files))
            time.sleep(0.5)
        run.finish_started()

    def part(self, episodes: int, first: float, last: float) -> list[tuple[int, float, int]]:
        return [one for one in self.samples if first * episodes <= one[0] <= last * episodes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=204)
    parser.add_argument("--soak", type=int, default=504)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="") as folder:
        text, holds = prove(Path(folder), options)
    print(text)
    options.output.write_text(text)
    if not holds:
        raise SystemExit("error: not every line holds")


def prove(folder: Path, options: argparse.Namespace) -> tuple[str, bool]:
    """Runs all three and returns the report, and whether everything holds."""
    start = time.monotonic()
    whole = Watched(folder / "a", settings(options.episodes))
    whole.finish()
    whole_s = time.monotonic() - start
    start = time.monotonic()
    killed = Watched(folder / "b", settings(options.episodes))
    done = kill_often(killed, schedule(options.kills, options.episodes, options.seed))
    killed.finish()
    killed_s = time.monotonic() - start
    time.sleep(_ORPHANS_S)
    found = compare(whole.played(), killed.played())
    orphans, files = killed.left_processes(), killed.left_files()
    guidance = [(one.workdir / "reflections.jsonl").read_bytes() for one in (whole, killed)]
    killed.count_episodes()
    again = killed.episodes - found.wanted
    soak, soaked = Soak(), Watched(folder / "c", [*settings(options.soak), *_WORN])
    soak.watch(soaked)
    time.sleep(_ORPHANS_S)
    early = soak.part(options.soak, _WARM_UP, 2 * _WARM_UP)
    late = soak.part(options.soak, 1 - _WARM_UP, 1.0)
    memory = [statistics.median(one[1] for one in part) for part in (early, late)]
    # The fewest: what is open for a moment only adds to them, and a leak stays.
    opened = [min(one[2] for one in part) for part in (early, late)]
    growth = memory[1] / memory[0] - 1
    left = soaked.left_processes() + soaked.left_files()
    rows = [
        ("kills", str(done.total()), done.total() == options.kills),
        ("episodes", f"{found.wanted} without kills", found.wanted == options.episodes),
        ("lost", str(len(found.lost)), not found.lost),
        ("doubled or unasked for", str(len(found.doubled)), not found.doubled),
        ("different in anything but seconds", str(len(found.different)), not found.different),
        (
            "reflections.jsonl",
            "equal" if guidance[0] == guidance[1] else "different",
            len(set(guidance)) == 1,
        ),
        ("episodes twice in journals", str(again), not again),
        (f"processes left after {_ORPHANS_S:.0f} s", str(len(orphans)), not orphans),
        ("temporary files left", str(len(files)), not files),
    ]
    soak_rows = [
        ("episodes", str(soaked.count_episodes()), soaked.episodes == options.soak),
        (
            "parent's memory (PSS), early and late",
            f"{memory[0]:.1f} MB, {memory[1]:.1f} MB ({growth:+.1%})",
            abs(growth) <= _MEMORY_LIMIT,
        ),
        ("parent's open files, early and late", f"{opened[0]}, {opened[1]}", opened[1] <= opened[0]),
        ("processes and temporary files left", str(len(left)), not left),
    ]
    text = _REPORT.format(
        command=f"python -m tests.fleet.proof_kill --kills={options.kills} --episodes={options.episodes} "
        f"--soak={options.soak} --seed={options.seed} --output={options.output}",
        kinds="\n".join(f"| {name} | {_TOLD[name]} | {done[name]} |" for name in _TOLD),
        whole_s=whole_s,
        killed_s=killed_s,
        rows="\n".join(f"| {name} | {value} | {'yes' if holds else 'NO'} |" for name, value, holds in rows),
        soak="\n".join(
            f"| {name} | {value} | {'yes' if holds else 'NO'} |" for name, value, holds in soak_rows
        ),
    )
    for name in (*found.lost, *found.doubled, *found.different, *orphans, *files, *left):
        print(name)
    return text, all(row[2] for row in (*rows, *soak_rows))


# So that browsers are replaced in a soak.
_WORN = ("--config.fleet.browser_max_episodes=50",)
_TOLD = {
    "worker": "the process of a worker",
    "driver": "chromedriver",
    "browser": "Chromium's first process",
    "proxy": "the egress proxy of a browser",
    "parent": "the process that hands out the work; the same command is run again",
    "append": "a worker that has written half of a journal's line",
    "publish": "the parent while it reads journals to publish them; the same command is run again",
    "manifest": "the parent with a shard on disk that no manifest names; the same command is run again",
}
_REPORT = """# Kills while a fleet collects

    make proof-collector-kill

`{command}`

MiniWoB++ tasks, two rounds each with reflection between them, by the scripted teacher in two workers with
real Chromium, each behind its egress proxy: once without kills ({whole_s:.0f} s), and once killed
({killed_s:.0f} s). What is killed (SIGKILL), when and in which order is drawn by the seed: after so many
episodes and at a moment within one. Processes are told from others by a variable that all of a run inherit,
and it has a temporary folder of its own.

| killed | what it is | kills |
|---|---|---|
{kinds}

| | measured | holds |
|---|---|---|
{rows}

## Soak

One run without kills; browsers are replaced after 50 episodes. Early is the second fifth of the episodes,
late the last fifth; of a sample each half second memory is the median, open files are the fewest.

| | measured | holds |
|---|---|---|
{soak}
"""


if __name__ == "__main__":
    main()
