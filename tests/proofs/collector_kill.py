"""A collecting run of which each kind of process is killed, 100 times, and a long run. Twenty minutes."""

from __future__ import annotations

import dataclasses
import random
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.fleet.watched import Watched, compare
from tests.proofs.result import Claim, Figures, Proof, main, table

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
    """Kills a process of one kind after a number of episodes and seconds."""

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
    # Episodes go on while a kill waits for its moment, so the last ones are left for kills that are late.
    places = sorted(rng.randrange(max(1, episodes * 4 // 5)) for _ in drawn)
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
    """A process of the kind, or None."""
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
    """The parent's own memory (USS, MB) and open files by episodes on disk."""

    samples: list[tuple[int, float, int]] = dataclasses.field(default_factory=list)

    def watch(self, run: Watched) -> None:
        run.start()
        assert run.process is not None
        parent = psutil.Process(run.process.pid)
        while run.running:
            try:
                memory, files = parent.memory_full_info().uss / 2**20, parent.num_fds()
            except psutil.Error:
                break
            if run.processes("worker"):
                self.samples.append((run.count_episodes(), memory, files))
            time.sleep(0.5)
        run.finish_started()

    def part(self, episodes: int, first: float, last: float) -> list[tuple[int, float, int]]:
        return [one for one in self.samples if first * episodes <= one[0] <= last * episodes]


def measure(kills: int = 100, episodes: int = 204, soak: int = 1008, seed: int = 0) -> Figures:
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as name:
        folder = Path(name)
        return _kill_figures(folder, kills, episodes, seed) | {"soak": _soak_figures(folder, soak)}


def _kill_figures(folder: Path, kills: int, episodes: int, seed: int) -> Figures:
    """One run without kills and one with them, compared."""
    start = time.monotonic()
    whole = Watched(folder / "a", settings(episodes))
    whole.finish()
    whole_s = time.monotonic() - start
    start = time.monotonic()
    killed = Watched(folder / "b", settings(episodes))
    done = kill_often(killed, schedule(kills, episodes, seed))
    killed.finish()
    killed_s = time.monotonic() - start
    time.sleep(_ORPHANS_S)
    found = compare(whole.played(), killed.played())
    orphans, files = killed.left_processes(), killed.left_files()
    guidance = [(one.workdir / "reflections.jsonl").read_bytes() for one in (whole, killed)]
    killed.count_episodes()
    print(*found.lost, *found.doubled, *found.different, *orphans, *files, sep="\n")
    return {
        "seed": seed,
        "uninterrupted_seconds": round(whole_s),
        "killed_seconds": round(killed_s),
        "kills": {name: done[name] for name in KILLED},
        "episodes": found.wanted,
        "lost": len(found.lost),
        "doubled": len(found.doubled),
        "different": len(found.different),
        "reflections_equal": guidance[0] == guidance[1],
        "episodes_twice_in_journals": killed.episodes - found.wanted,
        "processes_left": len(orphans),
        "files_left": len(files),
    }


def _soak_figures(folder: Path, episodes: int) -> Figures:
    """A long run without kills."""
    soak, soaked = Soak(), Watched(folder / "c", [*settings(episodes), *_RECYCLED])
    soak.watch(soaked)
    time.sleep(_ORPHANS_S)
    parts = (soak.part(episodes, _WARM_UP, 2 * _WARM_UP), soak.part(episodes, 1 - _WARM_UP, 1.0))
    return {
        "episodes": soaked.count_episodes(),
        "expected_episodes": episodes,
        "parent_mb": [round(statistics.median(one[1] for one in part), 1) for part in parts],
        # The fewest: what is open for a moment only adds to them, and a leak stays.
        "parent_files": [min(one[2] for one in part) for part in parts],
        "left": len(soaked.left_processes() + soaked.left_files()),
    }


def claims(figures: Figures) -> list[Claim]:
    soak = figures["soak"]
    growth = soak["parent_mb"][1] / soak["parent_mb"][0] - 1
    faults = [figures[name] for name in ("lost", "doubled", "different", "episodes_twice_in_journals")]
    left = [figures[name] for name in ("processes_left", "files_left")]
    return [
        Claim(
            f"{sum(figures['kills'].values())} kills lose, repeat and change no episode",
            f"of {figures['episodes']}: {faults[0]} lost, {faults[1]} doubled, {faults[2]} different, "
            f"{faults[3]} twice in journals",
            not any(faults),
        ),
        Claim(
            "reflections are the same",
            "equal" if figures["reflections_equal"] else "different",
            figures["reflections_equal"],
        ),
        Claim("no process and no temporary file is left", f"{left[0]} and {left[1]}", not any(left)),
        Claim(
            f"the parent's memory stays the same over {soak['expected_episodes']} episodes",
            f"{soak['parent_mb'][0]} MB early, {soak['parent_mb'][1]} MB late ({growth:+.1%})",
            abs(growth) <= _MEMORY_LIMIT and soak["episodes"] == soak["expected_episodes"],
        ),
        Claim(
            "the parent leaks no open file, process or temporary file",
            f"{soak['parent_files'][0]} files early, {soak['parent_files'][1]} late; {soak['left']} left",
            soak["parent_files"][1] <= soak["parent_files"][0] and not soak["left"],
        ),
    ]


def tables(figures: Figures) -> str:
    return table(("killed", "what it is", "kills"), [(n, KILLED[n], k) for n, k in figures["kills"].items()])


# So that browsers are replaced in a soak.
_RECYCLED = ("--config.fleet.browser_max_episodes=50",)
KILLED = {
    "worker": "the process of a worker",
    "driver": "chromedriver",
    "browser": "Chromium's first process",
    "proxy": "the egress proxy of a browser",
    "parent": "the process that hands out the work; the same command is run again",
    "append": "a worker that has written half of a journal's line",
    "publish": "the parent while it reads journals to publish them; the same command is run again",
    "manifest": "the parent with a shard on disk that no manifest names; the same command is run again",
}

ABOUT = """\
MiniWoB++ tasks are played, two rounds each with reflection between them, by the scripted teacher in two
workers with real Chromium, each behind its egress proxy: once without kills ({uninterrupted_seconds} s), and
once killed ({killed_seconds} s). The seed decides what is killed (SIGKILL), when and in which order: after a
number of episodes and at a moment within one. Processes of a run are recognised by a variable that all of
them inherit, and the run has a temporary folder of its own. They may take 10 s to end.

The soak is one run without kills; browsers are replaced after 50 episodes. Early is the second fifth of the
episodes, when the data set has been published (once a minute) and what that needs is loaded; late is the last
fifth. Memory is what the parent shares with no other process (USS), the median of samples each half second;
open files are the fewest.
"""
PROOF = Proof("Kills while a fleet collects", ABOUT, measure, claims, tables, ("selenium",), browser=True)

if __name__ == "__main__":
    main(PROOF)
