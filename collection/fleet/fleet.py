"""A fleet of browsers, which plays one run after another, or several at once."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from collection.fleet.config import EpisodeSettings
from collection.fleet.journal import RunJournal
from collection.fleet.pool import make_pool
from collection.fleet.rounds import Job
from collection.fleet.run import Run, RunResult
from collection.fleet.scheduler import SiteState
from collection.fleet.status import LIVE, ProgressDisplay, RunClock, Status
from collection.fleet.worker import FILES
from collection.judges.build import JudgeConfig, make_judge
from collection.llm.build import check_model, make_actor
from collection.llm.calls import CALLS, Calls, own_address, serve
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.records.episodes import write_episodes
from rmsweb_jax.records.staging import publish_episodes
from rmsweb_jax.signals import StopRequest


def run_tasks(
    jobs: Sequence[Job], workdir: Path, settings: EpisodeSettings, judge: JudgeConfig | None, stage: str
) -> RunResult:
    """Plays jobs by a fleet of their own; see `Fleet.begin`."""
    with Fleet(settings) as fleet:
        with fleet.begin(jobs, workdir, stage, judge) as run:
            run.play()
        return run.result


class Fleet(contextlib.AbstractContextManager["Fleet"]):
    """Workers with browsers, which live as long as this object, and play one run or several.

    Workers start when they first have something to do.

    Args:
      settings: with the actor resolved; a policy's `base_url` is set.

    Raises:
      UserError: as `make_pool`.
    """

    def __init__(self, settings: EpisodeSettings):
        self._settings, self._pool = settings, make_pool(settings)
        self._idle = set(range(1, settings.fleet.workers + 1))
        self._sites = defaultdict[str, SiteState](SiteState)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, idle ones in order and busy ones by force; their browsers end with them."""
        self._pool.close(self._idle)

    @contextlib.contextmanager
    def begin(
        self,
        jobs: Sequence[Job],
        workdir: Path,
        stage: str,
        judge: JudgeConfig | None = None,
        actor: ActorConfig | None = None,
        calls: Calls | None = None,
    ) -> Iterator[Run]:
        """Yields a run of all rounds of all jobs, to be played by `go_on` until it is over.

        Episodes on live pages are judged while others are played. Rounds that site, network or machine ended
        are played again when the run is resumed, if their job has `replays`.

        While it runs, its episodes are in `episodes.jsonl`; on leaving, the data set `workdir` (kind
        `trajectories`) is written. Trajectories are sorted by id, so their order does not depend on the
        number of workers. Reflections, if any, are written to `reflections.jsonl`. Calling it again resumes.

        Args:
          stage: name shown with the progress.
          judge: decides if an episode on live pages is a success; without a judge none is.
          actor: the one of this run, if it is not that of the settings.
          calls: those of the actor, which is known to answer, in several runs; None: those of this run, which
            the judge always has.

        Raises:
          UserError: an error that the user can fix: a model that does not answer, before any worker starts;
            or from any worker (no browser, ...).
          StoppedError: a signal came; running episodes have ended or had their `drain_seconds`.
        """
        settings = self._settings if actor is None else self._settings.model_copy(update={"actor": actor})
        unknown = any(job.task.environment not in ("miniwob", "web") for job in jobs)
        if settings.actor.kind == "scripted" and unknown:
            raise UserError(
                "config.actor.kind is 'scripted', also where 'auto' finds no key: the scripted teacher knows "
                "MiniWoB++ alone; name a model, a policy or an actor of your own for applications"
            )
        workdir.mkdir(parents=True, exist_ok=True)
        clock = RunClock(workdir / "elapsed.json")
        # Ray's workers may be on other machines.
        host = "127.0.0.1" if self._pool.shares_disk else own_address()
        with (
            contextlib.closing(RunJournal(workdir)) as journal,
            Calls(workdir / CALLS) as own,
            serve(calls or own, host) as address,
        ):
            for job in jobs:
                journal.reopen(job)
            if not all(job.is_over(journal.successes(job.task.task_id)) for job in jobs):
                asked, judge = check_models(self._settings if calls else settings, judge, own)
                settings = settings if calls else asked
            with StopRequest() as stop:
                run = Run(
                    *(jobs, workdir, settings, judge, journal, self._pool, self._idle, stop, own, address),
                    sites=self._sites,
                )
                with self._shown(run, workdir, stage, clock):
                    yield run
                tasks = {job.task.task_id for job in jobs}
                about = {"actor": settings.actor.label, "kind": settings.actor.kind, "tasks": len(tasks)}
                write_episodes(journal.path, workdir, about, tasks)
                if stop.requested:  # After the last episode.
                    raise StoppedError("every finished episode is kept", stop.cause)
            reflections = [
                reflected
                for task in sorted(tasks & journal.reflections.keys())
                for _, reflected in sorted(journal.reflections[task].items())
            ]
            run.result = RunResult(workdir, reflections, run.status().set_aside, clock.seconds)

    @contextlib.contextmanager
    def _shown(self, run: Run, workdir: Path, stage: str, clock: RunClock) -> Iterator[None]:
        """Shows how far a run is; leaves no worker busy and no file of one that is."""
        display = ProgressDisplay(workdir, stage, run.status())

        def show(status: Status) -> None:
            display.show(status)
            clock.tick()

        run.show = show
        try:
            try:
                yield
                display.finish(run.status())
            finally:
                display.close()
                run.close()
                for folder in (FILES, LIVE):
                    shutil.rmtree(workdir / folder, ignore_errors=True)
                clock.save()
        except (StoppedError, UserError, KeyboardInterrupt):
            # Later stages can use what there is; the same command goes on.
            publish_episodes(workdir)
            raise


def check_models(
    settings: EpisodeSettings, judge: JudgeConfig | None, calls: Calls
) -> tuple[EpisodeSettings, JudgeConfig | None]:
    """Makes actor and judge of the user's own, and calls the models of both once.

    A policy's server has answered.

    Returns:
      Both, as `check_model` returns their models. Raises as that.
    """
    actor, model = settings.actor, judge.model if judge else None
    if judge and ":" in judge.method:
        make_judge(judge, calls)
    if ":" in actor.kind:
        make_actor(actor)
    same = model == actor.model_copy(update={"temperature": model.temperature}) if model else False
    if actor.kind in ("gemini", "chat"):
        sees = settings.prompt.screenshot or (same and judge is not None and judge.screenshots)
        actor = check_model(actor, calls, sees)
        settings = settings.model_copy(update={"actor": actor})
    if judge is not None and model is not None:
        model = (
            actor.model_copy(update={"temperature": model.temperature})
            if same
            else check_model(model, calls, judge.screenshots)
        )
        judge = dataclasses.replace(judge, model=model)
    return settings, judge
