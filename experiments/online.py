"""Online RL on this machine: a policy server, and a fleet of browsers that plays what is trained on."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from collection.browser.chromium import find_programs
from collection.environments.apps.suite import check_application
from collection.environments.miniwob import make_task
from collection.environments.sites import Sites
from collection.fleet.live import check_live
from collection.fleet.play import REQUEST, PlayerSettings, PlayRequest
from collection.fleet.policy_server import serve_actor
from collection.llm.config import ActorConfig
from collection.tasks.files import read_all_tasks
from experiments.online_settings import OnlineSettings
from rmsweb_jax.data.sources import is_held_out
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.processes import ChildProcess
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.bucket import REPORT
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task
from rmsweb_jax.rl.episodes import FIRST_RATE, Begun, Tally, template_of
from rmsweb_jax.rl.remote.protocol import chat_fields
from rmsweb_jax.rl.train import train
from rmsweb_jax.settings import to_config_dict
from rmsweb_jax.signals import StopRequest
from rmsweb_jax.storage import AnyPath, local_path

# A policy, and the one after it while the first is unloaded.
_SLOTS = 2
_POLL_S = 0.05
# After so many without a task that is trained on, none will come.
_SEEDS = 1_000
# Least weight of a template: one that is always or never solved is played as well.
_FLOOR = 0.05
# Of eight episodes with a success rate of 0.1 none succeeds in 43 % of the groups, of sixteen in 19 %.
_SELDOM = 0.15


class TaskOrder:
    """The tasks of a run, without held-out ones: seed by seed, those of a seed shuffled; or by learnability.

    Raises:
      UserError: an application cannot be installed, or see `check_application`; or the file of tasks cannot
        be used.
    """

    def __init__(self, settings: OnlineSettings):
        self._settings = settings
        self._live = _live_tasks(settings)
        self._sites = Sites(settings.applications, settings.play.apps_folder)
        for application in self._sites.applications:
            with application:
                check_application(application, settings.first_seed)
        self._seed, self._tasks = settings.first_seed, list[Task]()
        self._of_template: defaultdict[str, dict[str, Task]] = defaultdict(dict)

    def __getitem__(self, numbers: range) -> list[Task]:
        while len(self._tasks) < numbers.stop:
            if not self._tasks and self._seed - self._settings.first_seed >= _SEEDS:
                raise UserError(f"all tasks of {_SEEDS} seeds are held out: lower config.held_out")
            self._next_seed()
        return self._tasks[numbers.start : numbers.stop]

    def batch(
        self, first: int, count: int, tally: Tally, under_way: Iterable[Task] = ()
    ) -> list[tuple[Task, int]]:
        """Returns the tasks `first` to `first + count - 1` of the run, and the number of episodes of each.

        By learnability, templates are drawn by the variance p (1 - p) of their rewards, at least `_FLOOR`,
        and each gives its next tasks. Where one is seldom solved, a group has twice as many episodes.

        Args:
          tally: what was played before.
          under_way: tasks that were begun and are not in the tally.
        """
        settings = self._settings
        if settings.tasks_by == "seed":
            # A task of a file may come twice: it is then one group of twice as many episodes.
            tasks = self[range(first, first + count)]
            times = Counter(task.task_id for task in tasks)
            distinct = {task.task_id: task for task in tasks}.values()
            return [(task, times[task.task_id] * settings.num_samples) for task in distinct]
        names = sorted({template_of(task.task_id) for task in self._all_of_seed(settings.first_seed)})
        rates = {name: tally[name].rate if name in tally else FIRST_RATE for name in names}
        weights = np.asarray([max(_FLOOR, rate * (1 - rate)) for rate in rates.values()])
        drawn = np.random.default_rng((settings.seed, first)).choice(names, count, p=weights / weights.sum())
        played = Counter({name: tally[name].tasks for name in names if name in tally})
        played.update(template_of(task.task_id) for task in under_way)
        chosen = []
        for name in drawn.tolist():
            samples = settings.num_samples * (2 if rates[name] < _SELDOM else 1)
            chosen.append((self._nth(name, played[name]), samples))
            played[name] += 1
        return chosen

    def _nth(self, template: str, number: int) -> Task:
        tasks, last = self._of_template[template], self._seed + _SEEDS
        while len(tasks) <= number:
            if self._seed >= last:
                raise UserError(
                    f"config.tasks_by=learnability: {template} has {len(tasks)} tasks to train on, and "
                    f"no more in {_SEEDS} seeds: make ids TEMPLATE/SEED, or config.tasks_by=seed"
                )
            self._next_seed()
        # Of a site of one's own they may come again with another seed.
        return list(tasks.values())[number]

    def _next_seed(self) -> None:
        """Adds the tasks of another seed."""
        tasks = self._all_of_seed(self._seed)
        order = np.random.default_rng((self._settings.seed, self._seed)).permutation(len(tasks))
        for task in (tasks[place] for place in order):
            if not is_held_out(task.task_id, self._settings.held_out):
                self._tasks.append(task)
                self._of_template[template_of(task.task_id)][task.task_id] = task
        self._seed += 1

    def _all_of_seed(self, seed: int) -> list[Task]:
        return [make_task(page, seed) for page in self._settings.pages] + self._sites.tasks(seed) + self._live


def _live_tasks(settings: OnlineSettings) -> list[Task]:
    """Reads `tasks_file`.

    Raises:
      UserError: it cannot be read, has a bad line or no task to train on, or the guard refuses all sites.
    """
    if not settings.tasks_file:
        return []
    path = local_path(settings.tasks_file, "config.tasks_file")
    tasks = read_all_tasks(path, "config.tasks_file")
    if all(is_held_out(task.task_id, settings.held_out) for task in tasks):
        raise UserError(
            f"config.tasks_file={path}: all tasks are held out; add some, or lower config.held_out"
        )
    check_live(tasks, settings.play.guard, settings.play.browser.storage_state)
    return tasks


class FleetEpisodes:
    """Plays episodes by a fleet in a child process; an `rl.episodes.EpisodeSource`.

    The fleet starts with the first episodes, and its browsers stay from one call to the next.

    Args:
      play: with the actor's address and the fields of its requests.
      folder: for the data sets, one for each call.
    """

    module = "collection.fleet.play"

    def __init__(self, tasks: TaskOrder, play: PlayerSettings, folder: Path):
        self._tasks, self._folder = tasks, folder
        self.teaches = play.teacher.kind != "none"
        self._settings = json.dumps(to_config_dict(play).to_dict())
        self._fleet: ChildProcess | None = None
        # By their first tasks.
        self._playing: dict[int, tuple[Path, PlayRequest]] = {}

    def stop(self) -> None:
        """Ends the fleet."""
        if self._fleet is not None:
            self._fleet.stop()

    def task_ids(self, first: int, count: int) -> list[str]:
        return [task.task_id for task in self._tasks[range(first, first + count)]]

    def begun(self, first: int) -> Begun | None:
        # Names of data sets that were set aside end with a number of their own.
        folders = [one for one in self._folder.glob(f"{first:06d}-*") if "-refused-" not in one.name]
        if not folders:
            return None
        newest = max(folders)
        return Begun(newest.name.partition("-")[2], (newest / REPORT).exists())

    def begin(self, first: int, count: int, policy: str, tally: Tally) -> None:
        folder = self._folder / f"{first:06d}-{policy}"
        path = folder / REQUEST
        if path.exists():  # Of a killed run, whose tally was another.
            request = PlayRequest.read(folder)
        else:
            under_way = [task for _, one in self._playing.values() for task in one.tasks]
            tasks, samples = zip(*self._tasks.batch(first, count, tally, under_way), strict=True)
            request = PlayRequest(policy=policy, tasks=tasks, samples=samples)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, request.model_dump_json().encode())
        self._playing[first] = folder, request
        if (folder / REPORT).exists():
            return
        if self._fleet is None:
            command = [sys.executable, "-m", self.module, self._settings]
            log = self._folder / "log.txt"
            self._fleet = ChildProcess("episodes", command, log, stdin=subprocess.PIPE)
        # Without a reader it has ended, and `wait` says why.
        with contextlib.suppress(BrokenPipeError):
            self._fleet.stdin.write(f"{folder}\n".encode())
            self._fleet.stdin.flush()

    def wait(self, first: int) -> Path:
        folder, _ = self._playing.pop(first)
        with StopRequest() as stop:
            # Written last.
            while not (folder / REPORT).exists():
                assert self._fleet is not None
                if (code := self._fleet.wait(_POLL_S)) is not None:
                    raise _failure(self._fleet, code)
                if stop.requested:
                    self._fleet.stop()
                    raise StoppedError("episodes that ended are kept", stop.cause)
        return folder


def _failure(fleet: ChildProcess, code: int) -> UserError:
    if code == StoppedError.exit_code:
        return StoppedError("episodes that ended are kept")
    failure = fleet.failure()
    failure.exit_code = max(code, UserError.exit_code)
    return failure


def _check_own_server() -> None:
    """Raises `UserError` where a second process cannot use the devices that this one trains on."""
    backend = jax.default_backend()
    if backend != "cpu" or jax.process_count() > 1:
        raise UserError(
            f"config.rollout_engine=local: its server would need the {backend} devices that train here, in "
            f"{jax.process_count()} processes: start experiments.serve or vLLM on others, and set "
            "config.rollout_engine=endpoint and config.endpoint"
        )


def train_online(settings: OnlineSettings, workdir: AnyPath) -> dict[str, Any]:
    """Trains on episodes that the policy plays; see `rmsweb_jax.rl.train.train`.

    With the rollout engine "endpoint" the server of `config.endpoint` is asked, otherwise one of its own.

    Raises:
      UserError: as `train`; the workdir is in a bucket; there is no browser; an application cannot be
        installed, pays who does nothing or is not restored by its reset; the server or the fleet failed.
    """
    if not isinstance(workdir, Path):
        raise UserError(f"{workdir}: online runs keep their episodes on a disk; give a folder as --workdir")
    find_programs(settings.play.browser)
    teacher = settings.play.resolved_teacher(not settings.applications and not settings.tasks_file)
    tasks = TaskOrder(settings)
    processor = Processor.from_pretrained(resolve_model(settings.model), settings.max_pixels)
    actor = ActorConfig(
        kind="policy",
        label="policy",
        model=settings.model,
        max_tokens=settings.max_response_tokens,
        temperature=settings.temperature,
        structured="off",
        parameters=chat_fields(processor.end_id, processor.banned_ids),
        **dict(settings.play.actor),
    )
    with contextlib.ExitStack() as stack:
        endpoint = settings.endpoint
        if settings.rollout_engine == "local":
            _check_own_server()
            given = actor.server_settings
            own = {
                "adapters": _SLOTS + settings.max_staleness,
                "adapter_rank": settings.lora.rank,
            }
            own |= {"replies": "free", "max_pixels": settings.max_pixels}
            own["prompt_tokens"] = max(settings.max_prompt_tokens, given.get("prompt_tokens", 0))
            own["max_new_tokens"] = max(settings.max_response_tokens, given.get("max_new_tokens", 0))
            server = actor.model_copy(update={"server_settings": {**given, **own}})
            served = stack.enter_context(serve_actor(server, workdir / "server"))
            endpoint = endpoint.model_copy(
                update={
                    "base_url": served.base_url,
                    "model": settings.model,
                    "adapter_folder": str(workdir / "adapters"),
                    "api_key_env": "",
                }
            )
        actor = actor.model_copy(
            update={
                "base_url": f"{endpoint.root}/v1",
                "api_key_env": endpoint.api_key_env,
                "server_settings": {},
            }
        )
        play = PlayerSettings(
            episodes=settings.play.episodes(actor, settings.applications),
            replays=settings.replays,
            teacher=teacher,
            forks=settings.num_samples if settings.credit == "fork" else 0,
        )
        episodes = FleetEpisodes(tasks, play, workdir / "episodes")
        stack.callback(episodes.stop)
        config = settings.model_copy(update={"rollout_engine": "endpoint", "endpoint": endpoint})
        return train(config, workdir, episodes)
