"""The episode loop: observe, query the actor, act, until the agent is done or a limit ends the episode."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Sequence

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.prompt import AgentState, PastStep
from collection.agent.query import ActorSession, ParsedReply, StepExtractor
from collection.environments.base import Environment, SiteUnreachableError, StepResults, View
from collection.environments.blockers import Blocker
from collection.judges.base import EnvironmentReward, with_verdict
from collection.llm.actor import ActorModel
from collection.llm.model import ImageSource
from rmsweb_jax.actions import Action, Reply
from rmsweb_jax.records.schema import ActionResult, Outcome, Step, Task, Trajectory

_TOO_LATE = "The time limit was reached before the actions were carried out."


@dataclasses.dataclass
class _Episode:
    task: Task
    session: ActorSession
    deadline: float
    history: list[PastStep] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    failures: int = 0
    blocked: int = 0
    blocker: Blocker | None = None
    read_state: str = ""
    done: Action | None = None
    displayed: str = ""

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def count_blocked(self, view: View) -> None:
        self.blocker = view.blocker
        self.blocked = self.blocked + 1 if view.blocker and view.blocker.outcome else 0


@dataclasses.dataclass(frozen=True)
class EpisodeRunner:
    """Runs episodes that differ only in task, attempt and guidance.

    Attributes:
      actor: the model or program that decides the steps.
      label: value of `Trajectory.actor`: `teacher`, or a policy's label.
      images: the store in which `environment` puts its screenshots.
      lenient: read replies that are not in the exact form where they can mean one thing only, and ask once
        more after one that cannot be used. For teachers: a policy has to know the form.
    """

    environment: Environment
    actor: ActorModel
    images: ImageSource
    label: str = "agent"
    prompt: PromptConfig = PromptConfig()
    limits: EpisodeLimits = EpisodeLimits()
    lenient: bool = False

    def run_episode(self, task: Task, attempt: int = 1, guidance: str = "") -> Trajectory:
        """Runs one attempt at a task (RMSWeb, section 3.1).

        Args:
          guidance: added to every live message, and to no recorded one.

        Returns:
          The trajectory. It is a success if the agent declared success and the environment paid its full
          reward. Live pages pay none: a judge decides later, when no browser is held.

        Raises:
          BrowserLostError, PageError: the browser or the environment failed; the episode is discarded.
          UserError: the actor cannot answer.
          Exception: an error of this program, or of the actor or the environment; the episode is discarded.
        """
        start = time.monotonic()
        deadline = start + self.limits.max_seconds
        try:
            task = self.environment.reset(task)
        except SiteUnreachableError as error:
            hidden = {"website": self.environment.redact(task.website)}
            hidden["objective"] = self.environment.redact(task.objective)
            return self._record(
                task.model_copy(update=hidden),
                attempt,
                outcome="unreachable",
                detail=" ".join(self.environment.redact(str(error)).split()),
                incidents=error.incidents,
                seconds=time.monotonic() - start,
            )
        episode = _Episode(task, self._session(attempt, guidance), deadline)
        outcome = self._steps(episode)
        params = {} if episode.done is None else episode.done.params.model_dump()
        trajectory = self._record(
            task,
            attempt,
            outcome=outcome,
            steps=tuple(episode.steps),
            declared_success=params.get("success"),
            final_text="\n\n".join(filter(None, (params.get("text", ""), episode.displayed))),
        )
        trajectory = _blocked(self._rewarded(trajectory), episode.blocker)
        return trajectory.model_copy(update={"seconds": time.monotonic() - start})

    def _record(self, task: Task, attempt: int, **fields: object) -> Trajectory:
        values: dict[str, object] = {
            "trajectory_id": trajectory_id(task, self.label, attempt),
            "task": task,
            "actor": self.label,
            "model": self.actor.name,
            "attempt": attempt,
            "steps": (),
        }
        return Trajectory.model_validate(values | fields)

    def _session(self, attempt: int, guidance: str) -> ActorSession:
        prompt = self.prompt
        # Read once per episode, so that the date does not change at midnight.
        if prompt.style == "full" and not prompt.date:
            prompt = prompt.model_copy(update={"date": datetime.date.today().isoformat()})
        return ActorSession(
            actor=self.actor,
            images=self.images,
            prompt=prompt,
            attempt=attempt,
            guidance=guidance,
            excluded=self.environment.excluded_actions,
            redact=self.environment.redact,
            lenient=self.lenient,
        )

    def _rewarded(self, trajectory: Trajectory) -> Trajectory:
        reward = self.environment.reward()
        # An environment that has not paid its reward yet was left too early: no success.
        if reward is None:
            return trajectory
        trajectory = trajectory.model_copy(update={"reward": reward})
        return with_verdict(trajectory, EnvironmentReward(), self.images)

    def _steps(self, episode: _Episode) -> Outcome:
        for number in range(1, self.limits.max_steps + 1):
            if episode.is_late:
                return "timeout"
            view = self.environment.observe()
            episode.count_blocked(view)
            if episode.blocker and episode.blocker.outcome and episode.blocked >= self.limits.max_blocked:
                return episode.blocker.outcome
            # Checked again, because an observation may wait for a slow page.
            if episode.is_late:
                return "timeout"
            # The agent gets one last step in which it can only report what it has done.
            given_up = episode.failures >= self.limits.max_failures
            self._step(episode, view, number, given_up or number == self.limits.max_steps)
            if episode.done is not None:
                return "done"
            if given_up:
                return "failures"
        return "max_steps"

    def _step(self, episode: _Episode, view: View, number: int, done_only: bool) -> None:
        state = AgentState(
            task=episode.task,
            history=tuple(episode.history),
            step_number=number,
            max_steps=self.limits.max_steps,
            read_state=episode.read_state,
            file_system=view.file_system,
            todo_contents=view.todo_contents,
        )
        answer = episode.session.query(state, view, done_only)
        # An outage is not the episode's time.
        episode.deadline += answer.outage_s
        extractor = StepExtractor(episode.session, episode.task.task_id, number)
        outcome, error = self._act(episode, answer, extractor, done_only)
        episode.deadline += extractor.outage_s
        # The last result decides: a list stops at its first error.
        failed = bool(error) or any(result.error for result in outcome.results[-1:])
        episode.failures = episode.failures + 1 if failed else 0
        episode.read_state = "\n".join(result.output for result in outcome.results if result.output)
        episode.history.append(_past_step(number, answer.reply, error, outcome.results))
        episode.steps.append(
            Step(
                number=number,
                observation=view.observation,
                messages=answer.messages,
                response=answer.text,
                results=outcome.results,
                error=error,
                repaired=answer.repaired,
                extractions=tuple(extractor.calls),
                usage=answer.usage,
                incidents=(*view.incidents, *outcome.incidents),
                discarded=answer.discarded,
                sampled=answer.sampled,
            )
        )

    def _act(
        self, episode: _Episode, answer: ParsedReply, extractor: StepExtractor, done_only: bool
    ) -> tuple[StepResults, str]:
        """Executes a reply; returns its results, and the reason if the reply could not be used."""
        nothing = StepResults(())
        if answer.reply is None:
            return nothing, answer.error
        actions = answer.reply.executable
        if actions[0].name == "done":
            episode.done = actions[0]
            result = self.environment.finish(actions[0])
            episode.displayed = result.output
            return StepResults((result,)), ""
        if done_only:
            return nothing, "Only done was allowed."
        if episode.is_late:
            return nothing, _TOO_LATE
        return self.environment.act(actions, extractor.extract, episode.deadline), ""


def trajectory_id(task: Task, label: str, attempt: int) -> str:
    """Returns `{task_id}#{label}-{attempt}`."""
    return f"{task.task_id}#{label}-{attempt}"


def crashed_trajectory(
    task: Task, label: str, model: str, attempt: int, detail: str, seconds: float = 0.0
) -> Trajectory:
    """Returns the record of an episode whose browser or process kept crashing."""
    return Trajectory(
        trajectory_id=trajectory_id(task, label, attempt),
        task=task,
        actor=label,
        model=model,
        attempt=attempt,
        steps=(),
        outcome="crashed",
        detail=detail,
        seconds=seconds,
    )


def _blocked(trajectory: Trajectory, blocker: Blocker | None) -> Trajectory:
    """Marks a failed episode whose last page was a captcha or a refusal as blocked, not as failed."""
    if blocker is None or trajectory.success or trajectory.declared_success is True:
        return trajectory
    detail = f"the last page: {blocker.reason}"
    return trajectory.model_copy(update={"outcome": blocker.outcome or trajectory.outcome, "detail": detail})


def _past_step(number: int, reply: Reply | None, error: str, results: Sequence[ActionResult]) -> PastStep:
    lines = tuple(f"Error: {result.text}" if result.error else result.text for result in results)
    if reply is None:
        return PastStep(number, error=error)
    return PastStep(
        number=number,
        evaluation_previous_goal=reply.evaluation_previous_goal,
        memory=reply.memory,
        next_goal=reply.next_goal,
        error=error,
        results=lines,
    )
