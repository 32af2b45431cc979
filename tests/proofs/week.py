"""Collection on an internet of loopback, with a model that fails by schedule. Half an hour.

`python -m tests.proofs.week --sites=20` plays a tenth of it and only prints the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from collection.llm.model import call_seed
from collection.tasks.files import read_tasks
from collection.tasks.websites import site_of
from rmsweb_jax.progress import read_progress
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import EPISODES, find_episodes
from rmsweb_jax.records.schema import RlPrompt, SftSample, Task, Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.hostile.scan import Scanner, artefacts, leaks
from tests.internet.clock import VARIABLE, SharedClock
from tests.internet.network import serving_sites, trusting_browser
from tests.internet.sites import PASSWORD, Site
from tests.internet.teacher import Call, Failure, ModelApi, Schedule, ScriptedModel, Trouble
from tests.internet.world import SECRET, World
from tests.proofs.page import ROOT, Check, publish, table

SITES = 200
WORKERS, ROUNDS, STOP_AFTER = 4, 5, 2  # Of the variant `web`.
CHECK_S = 60.0
MEMORY_GROWTH = 0.10
OVERHEAD = 1.3
CALL_S = 5.0  # Of the teacher, on the run's clock.
# Folders for PYTHONPATH: of the module that takes time from the shared clock, and of vLLM's stand-in.
FOLDERS = (ROOT / "tests/internet/clock", ROOT / "tests/internet/stand_in")
# Every so many-th task is also played without failures, for comparison.
SAMPLE = 6


def troubles(tasks: int) -> tuple[Trouble, ...]:
    """The model's failures, spread over the run, which has seven steps or more to a task."""
    plan: tuple[tuple[Failure, float, float], ...] = (
        ("429", 0.05, 30.0),
        ("503", 0.15, 45.0),
        ("cut", 0.30, 60.0),
        ("503", 0.45, 3600.0),
        ("reset", 0.60, 180.0),
        ("429", 0.75, 20.0),
    )
    return tuple(Trouble(kind, round(part * 7 * tasks), seconds) for kind, part, seconds in plan)


class Pacer(contextlib.AbstractContextManager["Pacer"]):
    """Moves a run's clock ahead while nothing can happen in it, so that an hour's outage takes no hour.

    That is: each worker that plays an episode waits for the model, or none plays and sites are in backoff.
    """

    _POLL_S, _SAME_S, _STEP_S, _NOTICE_S = 0.02, 0.2, 5.0, 1.5

    def __init__(self, clock: SharedClock, workdir: Path):
        self._clock, self._workdir = clock, workdir
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._idle_since = 0.0

    def __enter__(self) -> Pacer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._POLL_S):
            busy, waits = _busy(self._workdir), self._clock.waits()
            if busy is None:
                continue
            now = time.monotonic()
            if busy:
                self._idle_since = now
                if len(waits) >= busy:
                    # Those that end soon after the first one end with it, or each would take a turn.
                    self._clock.advance(max(left for left in waits if left <= min(waits) + self._SAME_S))
            elif now - self._idle_since > self._NOTICE_S:
                # The parent looks once a second whether a site is open again.
                self._idle_since = now
                self._clock.advance(self._STEP_S)


def _busy(workdir: Path) -> int | None:
    """Returns how many workers play, as the run says; None before the first and after the last episode."""
    progress = read_progress(workdir) or {}
    _, found, rest = (progress.get("note") or "").partition("workers busy ")
    aside = re.search(r"set aside ([^;]*)", progress.get("note") or "")
    left = sum(map(int, re.findall(r"(\d+) of", aside[1]))) if aside else 0
    if not found or progress["done"] + left >= progress["total"]:
        return None
    return int(rest.partition("/")[0])


@dataclasses.dataclass
class Sampled:
    """What was seen of a run while it went on.

    Attributes:
      memory: (seconds, MB of the parent's PSS).
      usable: (episodes in journals, problem) of each check; no problem means that the data could be used.
    """

    memory: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    usable: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def counted(self) -> list[str]:
        """Problems of the checks that are counted: there was an episode a minute before."""
        episodes = [before for before, _ in self.usable]
        return [problem for (_, problem), before in zip(self.usable[1:], episodes, strict=False) if before]


@dataclasses.dataclass
class Stage:
    """The folder of a run of the commands, with all that its processes share."""

    folder: Path
    world: World
    clock: SharedClock
    api: ModelApi
    hosts: tuple[str, ...]
    browser: Path

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, (*FOLDERS, ROOT)))
        return {
            **os.environ,
            **self.api.environment,
            "POLICY_URL": self.api.chat_url,
            VARIABLE: str(self.clock.path),
            "PYTHONPATH": path,
            "PATH": f"{self.browser}:{os.environ['PATH']}",
            PASSWORD: SECRET,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """What README's commands do not have: this internet's addresses, and a secret."""
        return (f"--config.guard.hosts={self.hosts!r}", f"--config.secrets=('{PASSWORD}',)")

    def run(self, module: str, *flags: str, watch: Callable[[int], None] = lambda pid: None) -> None:
        """Runs a script to its end.

        Args:
          watch: called with the process id as soon as it runs; returns when it likes.

        Raises:
          RuntimeError: it fails.
        """
        log = self.folder / f"{module}.log"
        with log.open("ab") as file:
            command = [sys.executable, "-m", module, *flags]
            process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=file, stderr=file)
        try:
            watch(process.pid)
            if code := process.wait():
                last = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
                raise RuntimeError(f"{module} ended with {code}:\n{last}")
        finally:
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def staged(folder: Path, sites: int, plan: Sequence[Trouble]) -> Iterator[Stage]:
    """Starts an internet and a model; the same for the same arguments."""
    folder.mkdir()
    world = World(sites)
    clock = SharedClock(folder / "clock")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    schedule = Schedule(tuple(plan), lambda: clock.now)
    model = ModelApi(ScriptedModel(world), schedule, lambda: clock.wait(CALL_S))
    with serving_sites(world.answer, folder) as address, model as api:
        browser = trusting_browser(chromium, folder)
        yield Stage(folder, world, clock, api, world.hosts(address), browser)


def measure(sites: int = SITES) -> dict[str, Any]:
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="w") as name:
        folder = Path(name)
        figures, tasks_file, own = _run_figures(folder / "a", sites)
        return figures | {"undisturbed": _undisturbed(folder / "b", sites, tasks_file, own)}


def _run_figures(folder: Path, sites: int) -> tuple[dict[str, Any], Path, dict[str, float]]:
    """README's commands 1 and 3 with failures; also the file of tasks, and the seconds of each episode."""
    plan = troubles(len(World(sites).tasks))
    with staged(folder, sites, plan) as stage:
        (folder / "queries.txt").write_text("\n".join(stage.world.tasks))
        tasks_file, data = folder / "tasks/tasks.jsonl", folder / "collect"
        corpus, policy = folder / "sft_corpus", folder / "collect_policy"
        stage.run(
            "experiments.make_tasks",
            "--config=configs/make_tasks.py:paper",
            f"--config.queries={folder / 'queries.txt'}",
            f"--workdir={folder / 'tasks'}",
        )
        sampled = Sampled()
        collect = ("--config=configs/collect.py:web", f"--config.tasks_file={tasks_file}", *stage.names)
        began = stage.clock.now
        with Pacer(stage.clock, data):
            stage.run(
                "experiments.collect",
                *collect,
                f"--workdir={data}",
                watch=lambda pid: _sample(pid, stage, data, sampled),
            )
        wall = stage.clock.now - began
        calls = list(stage.api.calls)
        build = ("--config=configs/build_sft.py:paper", f"--config.trajectories={data}")
        stage.run("experiments.build_sft", *build, f"--workdir={corpus}")
        model = folder / "export"
        model.mkdir()
        with Pacer(stage.clock, policy):
            stage.run(
                "experiments.collect",
                "--config=configs/collect.py:paper_policy",
                f"--config.actor.model={model}",
                "--config.actor.server=vllm",
                f"--config.tasks_from={data}",
                f"--workdir={policy}",
                *stage.names,
            )
        mine = ("--config=configs/mine.py:paper", f"--config.pools={data},{policy}")
        stage.run("experiments.mine", *mine, f"--workdir={folder / 'mine'}")
        tasks = [task for _, task in read_tasks(tasks_file).good]
        played = list(read_dataset(data, Trajectory))
        own = _own_seconds(played)
        kept = shutil.copy(tasks_file, folder.parent / "tasks.jsonl")
        begun = stage.api.schedule.begun
        down = sum(min(one.end, began + wall) - one.begin for one in begun if one.trouble.total)
        return (
            {
                "sites": sites,
                **_ends(stage.world, tasks, data, played),
                **_records(stage, data, policy, corpus, played, calls, tasks),
                "leaked": len(_leaks(stage, (data, policy), (corpus, folder / "mine/prompts"))),
                "wall_seconds": round(wall, 1),
                "model_down_seconds": round(down, 1),
                "own_seconds": round(sum(own.values()) / WORKERS, 1),
                "overhead": round((wall - down) / (sum(own.values()) / WORKERS), 3),
                "troubles": [
                    {
                        "kind": one.trouble.kind,
                        "seconds": one.trouble.seconds,
                        "begin": round(one.begin - began, 1),
                        "calls": one.calls,
                        "failed_calls": one.failed,
                    }
                    for one in begun
                ],
                "troubles_planned": len(plan),
                "calls": len(calls),
                "checks": len(sampled.counted),
                "checks_usable": sum(not problem for problem in sampled.counted),
                "check_problems": sorted({problem for problem in sampled.counted if problem})[:5],
                "parent_mb": _early_late(sampled.memory),
                "policy": _policy(policy, tasks),
                "mined": json.loads((folder / "mine/report.json").read_bytes()).get("prompts"),
            },
            Path(kept),
            own,
        )


def _sample(pid: int, stage: Stage, data: Path, sampled: Sampled) -> None:
    """Samples the parent's memory, and checks the data each minute, until it ends."""
    parent, began = psutil.Process(pid), time.monotonic()
    checked = began
    with contextlib.suppress(psutil.NoSuchProcess):
        while parent.status() != psutil.STATUS_ZOMBIE:
            if _busy(data) is not None:
                sampled.memory.append((time.monotonic() - began, parent.memory_full_info().pss / 2**20))
            if time.monotonic() - checked >= CHECK_S:
                checked = time.monotonic()
                sampled.usable.append(_usable(stage, data, len(sampled.usable)))
            time.sleep(1.0)


def _usable(stage: Stage, data: Path, number: int) -> tuple[int, str]:
    """Checks the data set of a run that goes on, and builds an SFT corpus of it."""
    episodes = len(_journaled(data))
    corpus = stage.folder / f"corpus-{number}"
    command = [sys.executable, "-m", "experiments.build_sft", "--config=configs/build_sft.py:paper"]
    built = subprocess.run(
        ["nice", "-n", "19", *command, f"--config.trajectories={data}", f"--workdir={corpus}"],
        cwd=ROOT,
        env=stage.environment,
        capture_output=True,
        text=True,
    )
    shutil.rmtree(corpus, ignore_errors=True)
    problems = check_dataset(data).problems
    if built.returncode:
        problems.append(built.stderr.strip().splitlines()[-1])
    return episodes, " ".join(problems[:1]).replace(str(stage.folder), "")


def _journaled(data: Path) -> set[str]:
    path = data / EPISODES
    return set(find_episodes(path)[0]) if path.exists() else set()


def _set_aside(data: Path) -> dict[str, int]:
    """Number of tasks by site."""
    return json.loads((data / "report.json").read_bytes())["set_aside"]


def _ends(world: World, tasks: Sequence[Task], data: Path, played: Sequence[Trajectory]) -> dict[str, Any]:
    """How each task has ended: solved, failed or set aside with a reason."""
    rounds: defaultdict[str, list[Trajectory]] = defaultdict(list)
    for one in played:
        rounds[one.task.task_id].append(one)
    aside = _set_aside(data)
    ends: Counter[tuple[str, str]] = Counter()
    kinds: Counter[str] = Counter()
    for task in tasks:
        runs = rounds[task.task_id]
        over = len(runs) >= ROUNDS or sum(one.success for one in runs) >= STOP_AFTER
        solved = any(one.success for one in runs)
        if over:
            end = "solved" if solved else "failed"
        elif site_of(task.website) in aside:
            end = "set_aside"
        else:
            end = "open"
        kind = _kind(world, task)
        ends[kind, end] += 1
        kinds[kind] += 1
    outcomes = Counter(one.outcome for one in played)
    return {
        "tasks": len(tasks),
        "ended": sum(count for (_, end), count in ends.items() if end != "open"),
        **{end: sum(count for (_, one), count in ends.items() if one == end) for end in ENDS},
        "blocking_sites": sum(site.blocks_after is not None for site in world.sites),
        "by_kind": [
            {
                "kind": kind,
                "about": (_class(kind).__doc__ or "").splitlines()[0],
                "sites": sum(site.kind == kind for site in world.sites),
                "tasks": count,
                "episodes": sum(_kind(world, one.task) == kind for one in played),
                **{end: ends[kind, end] for end in ENDS},
            }
            for kind, count in sorted(kinds.items())
        ],
        "outcomes": dict(outcomes.most_common()),
    }


def _records(
    stage: Stage,
    data: Path,
    policy: Path,
    corpus: Path,
    played: Sequence[Trajectory],
    calls: Sequence[Call],
    tasks: Sequence[Task],
) -> dict[str, Any]:
    """Compares the data set with what the model, the journals and the sites have seen."""
    ids = Counter(one.trajectory_id for one in played)
    seeds = {
        call_seed("reply", task.task_id, attempt, step): (task.task_id, attempt)
        for task in tasks
        for attempt in range(1, ROUNDS + 1)
        for step in range(1, 101)
    }
    asked = {seeds[call.seed] for call in calls if call.seed in seeds and not call.failure}
    recorded = {(one.task.task_id, one.attempt) for one in played}
    every = [*played, *read_dataset(policy, Trajectory)]
    codes = Counter(one.final_text for one in every if one.success)
    unseen = sum(_code(one) not in stage.world.record.issued for one in every if one.success)
    return {
        "episodes": len(played),
        "steps": sum(len(one.steps) for one in played),
        "lost": len(asked - recorded) + len(_journaled(data) - ids.keys()),
        "doubled": sum(count - 1 for count in ids.values()),
        "successes": sum(one.success for one in every),
        "false_successes": unseen + sum(count - 1 for count in codes.values()),
        "unrecorded_successes": sum(
            not one.success and _code(one) in stage.world.record.issued for one in every
        ),
        "retried_episodes": sum(one.retries > 0 for one in played),
        "quoted_guidance": json.loads((corpus / "report.json").read_bytes())["samples_dropped"][
            "quoted_guidance"
        ],
    }


def _code(one: Trajectory) -> str:
    return one.final_text.rpartition(": ")[2]


def _leaks(stage: Stage, folders: Sequence[Path], training: Sequence[Path]) -> list[str]:
    """Secrets and guidance where they must not be: at sites, in records, in what is trained on."""
    scanner = Scanner(SECRET)
    found = [f"{host} got {what}" for host, what in stage.world.record.leaks]
    found += [line for folder in folders for line in leaks(scanner, artefacts(folder))]
    for folder, kind in zip(training, (SftSample, RlPrompt), strict=True):
        texts = [one.model_dump_json() for one in read_dataset(folder, kind)]
        found += [
            f"{folder.name}: guidance in {text[:80]}" for text in filter(stage.world.forbidden.search, texts)
        ]
    for line in found[:20]:
        print(f"leak: {line}", flush=True)
    return found


def _own_seconds(played: Sequence[Trajectory]) -> dict[str, float]:
    """Seconds of each episode; a call to the model counts no more than the median call.

    The judge is asked after the episode, when its worker plays the next one: it is no part of these seconds.
    """
    calls = {
        one.trajectory_id: [
            *(step.usage.seconds for step in one.steps),
            *(call.usage.seconds for step in one.steps for call in step.extractions),
        ]
        for one in played
    }
    usual = statistics.median(seconds for some in calls.values() for seconds in some if seconds)
    return {
        one.trajectory_id: one.seconds - sum(max(0.0, call - usual) for call in calls[one.trajectory_id])
        for one in played
    }


def _undisturbed(folder: Path, sites: int, tasks_file: Path, own: dict[str, float]) -> dict[str, Any]:
    """Plays some of the tasks again on the same internet without failures of the model; compares seconds."""
    with staged(folder, sites, ()) as stage:
        lines = tasks_file.read_text().splitlines()[::SAMPLE]
        some, data = folder / "tasks.jsonl", folder / "collect"
        some.write_text("".join(f"{line}\n" for line in lines))
        with Pacer(stage.clock, data):
            stage.run(
                "experiments.collect",
                "--config=configs/collect.py:web",
                f"--config.tasks_file={some}",
                f"--workdir={data}",
                *stage.names,
            )
        alone = _own_seconds(list(read_dataset(data, Trajectory)))
        both = alone.keys() & own.keys()
    return {
        "tasks": len(lines),
        "episodes": len(both),
        "seconds": round(sum(alone[name] for name in both), 1),
        "same_in_run": round(sum(own[name] for name in both), 1),
    }


def _policy(folder: Path, tasks: Sequence[Task]) -> dict[str, Any]:
    played = list(read_dataset(folder, Trajectory))
    aside = _set_aside(folder)
    left = {task.task_id for task in tasks} - {one.task.task_id for one in played}
    left -= {task.task_id for task in tasks if site_of(task.website) in aside}
    return {
        "episodes": len(played),
        "successes": sum(one.success for one in played),
        "set_aside": sum(aside.values()),
        "left": len(left),
        "outcomes": dict(Counter(one.outcome for one in played).most_common()),
    }


def _early_late(memory: Sequence[tuple[float, float]]) -> list[float]:
    """Medians of the second and of the last fifth."""
    fifth = max(1, len(memory) // 5)
    parts = (memory[fifth : 2 * fifth], memory[-fifth:])
    return [round(statistics.median(mb for _, mb in part), 1) for part in parts]


def _kind(world: World, task: Task) -> str:
    found = world.task_of(task.objective)
    return found[0].kind if found else "unknown"


def _class(kind: str) -> type[Any]:
    return next((one for one in Site.__subclasses__() if one.__name__ == kind), Site)


ENDS = ("solved", "failed", "set_aside", "open")


def checks(figures: dict[str, Any]) -> list[Check]:
    growth = figures["parent_mb"][1] / figures["parent_mb"][0] - 1
    same = figures["undisturbed"]
    return [
        (
            "all tasks end solved, failed or set aside with a reason",
            f"{figures['ended']} of {figures['tasks']}: {figures['solved']} solved, "
            f"{figures['failed']} failed, {figures['set_aside']} set aside",
            figures["ended"] == figures["tasks"],
        ),
        (
            "no episode is lost, none is doubled",
            f"{figures['lost']} lost, {figures['doubled']} doubled, of {figures['episodes']}",
            not figures["lost"] and not figures["doubled"],
        ),
        (
            "no secret and no guidance gets to a site, a record, a sample or a prompt that must not have it",
            f"{figures['leaked']} places; {figures['quoted_guidance']} samples that quote guidance dropped",
            not figures["leaked"],
        ),
        (
            "what records call a success, the sites have seen, once each",
            f"{figures['false_successes']} of {figures['successes']} not seen, "
            f"{figures['unrecorded_successes']} seen and not recorded",
            not figures["false_successes"] and not figures["unrecorded_successes"],
        ),
        (
            "all failures of the model have happened",
            f"{len(figures['troubles'])} of {figures['troubles_planned']}, "
            f"{sum(one['failed_calls'] for one in figures['troubles'])} of {figures['calls']} calls failed",
            len(figures["troubles"]) == figures["troubles_planned"],
        ),
        (
            f"the run ends within {OVERHEAD} times the work's own time",
            f"{figures['overhead']:.2f} ({figures['wall_seconds']:,.0f} s, of which the model was down "
            f"{figures['model_down_seconds']:,.0f} s; own time {figures['own_seconds']:,.0f} s)",
            figures["overhead"] <= OVERHEAD,
        ),
        (
            "the same episodes take as long undisturbed",
            f"{same['episodes']} episodes: {same['seconds']:,.0f} s undisturbed, "
            f"{same['same_in_run']:,.0f} s in the run",
            None,
        ),
        (
            "the data can be used at every moment",
            f"{figures['checks_usable']} of {figures['checks']} checks, one a minute",
            figures["checks"] > 0 and figures["checks_usable"] == figures["checks"],
        ),
        (
            "the parent's memory stays the same",
            f"{figures['parent_mb'][0]} MB early, {figures['parent_mb'][1]} MB late ({growth:+.1%})",
            growth <= MEMORY_GROWTH,
        ),
        (
            "the policy plays the tasks of the collection, and its failures are mined",
            f"{figures['policy']['episodes']} episodes, {figures['policy']['set_aside']} tasks set aside, "
            f"{figures['policy']['left']} left out; {figures['mined']} prompts",
            not figures["policy"]["left"] and bool(figures["mined"]),
        ),
    ]


ABOUT = """\
**No baseline, no control:** the sites' own records and the model's schedule are the reference. No episode is
lost and no secret leaked on purpose, so nothing here shows that the counts can rise, and no other collector
plays. The undisturbed tasks are a reference of seconds alone.

{sites} sites on loopback, each with a name of its own, made from a seed out of the kinds
below; {blocking_sites} of them refuse everybody after 0 to 5 visits. Nothing else in the tests
uses them. README's commands 1 and 3 are run as they stand there, with keys, file names, the sites'
addresses (`config.guard.hosts`), a secret for the sites with a login, and `config.actor.server=vllm`,
behind which the policy is a script. The teacher and the judge are a script behind an HTTP server in the
shape of Gemini's API, called by google-genai. In two of five tasks it errs unless guidance warns it. Each
site issues a confirmation code for each completed task, so that records can be compared with what the sites
have seen.

*Lost* are episodes that the model was asked for, or that are in a journal, and not in the data set.
*Leaked* are places where the password of the sites with a login, in any encoding, or words of the guidance
were found and must not be: requests to other sites, files of the run, SFT samples, RL prompts.

The clock is simulated: it runs as usual while an episode goes on, and ahead while every worker that plays
waits for the model, or while none plays and sites are in backoff. Each answer of the teacher takes {call_s}
seconds on it, which is little for a large model that reads a screenshot. The *work's own time* is the sum of
the seconds of all episodes, in which a call to the model counts no more than the median call, divided by
{workers} workers. The overhead is the time of the collection on that clock, less the seconds in which the
schedule answered no call, over the work's own time: it counts starts, backoff, late probes after an outage,
reflection, new browsers and publishing. For comparison every sixth task is played on the same internet
without failures.
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A week on the web, simulated.")
    parser.add_argument("--sites", type=int, default=SITES, help="fewer: figures are printed and not kept")
    sites = parser.parse_args().sites
    found = measure(sites)
    if sites < SITES:
        print(json.dumps(found, indent=1), *checks(found), sep="\n")
    else:
        about = ABOUT.format(**found, workers=WORKERS, call_s=f"{CALL_S:g}")
        problems = "\n".join(f"Not usable: {problem}" for problem in found["check_problems"])
        parts = (table(found["by_kind"]), table(found["troubles"]), problems)
        publish("week", "A week on the web, simulated", about, found, checks(found), *parts)
