"""One episode: look, ask, act, until the agent is done or a limit ends it."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Sequence

from collection.agent.asking import Answer, Interview, Reader
from collection.agent.blockers import Blocker
from collection.agent.environment import Acted, Environment, Look, UnreachableError
from collection.agent.prompt import AgentState, PastStep, PromptConfig
from collection.judges.base import Judge, declared
from collection.judges.recorded import EnvironmentReward
from collection.llm.base import ImageSource, Teacher
from rmsweb_jax.actions import Action, Reply
from rmsweb_jax.records.schema import ActionResult, Outcome, Step, Task, Trajectory

_TOO_LATE = "The time limit was reached before the actions were carried out."


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends an episode.

    Attributes:
      max_steps: the last of them may only be `done`.
      max_failures: after so many failed steps in a row there is one `done`-only step, then the end.
      max_blocked: so many looks in a row at a captcha or a refusal end it.
      max_seconds: wall-clock; no look, question or action begins after it.
    """

    max_steps: int = 100
    max_failures: int = 3
    max_blocked: int = 5
    max_seconds: float = 1800.0


@dataclasses.dataclass
class _Episode:
    task: Task
    interview: Interview
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

    def see(self, look: Look) -> None:
        self.blocker = look.blocker
        self.blocked = self.blocked + 1 if look.blocker and look.blocker.outcome else 0


@dataclasses.dataclass(frozen=True)
class EpisodeRunner:
    """Runs episodes that differ in task, attempt and guidance only.

    Attributes:
      actor: `Trajectory.actor`: `teacher`, or a policy's label.
      images: where `environment` puts its screenshots.
      judge: asked about tasks on live pages that pay no reward; without one they are no successes.
    """

    environment: Environment
    teacher: Teacher
    images: ImageSource
    actor: str
    prompt: PromptConfig
    limits: Limits
    judge: Judge | None = None

    def run_episode(self, task: Task, attempt: int, guidance: str = "") -> Trajectory:
        """One attempt at a task (RMSWeb, section 3.1).

        Args:
          guidance: shown in every live message and in no record.

        Returns:
          The trajectory; it counts as success when the agent declared success and the environment
          paid its full reward, or the judge passed it.

        Raises:
          BrowserLostError, PageError: the browser or the environment failed; nothing of the episode is kept.
          UserError: the teacher cannot answer, or the judge will answer no question.
        """
        start = time.monotonic()
        deadline = start + self.limits.max_seconds
        try:
            task = self.environment.reset(task)
        except UnreachableError as error:
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
        episode = _Episode(task, self._interview(attempt, guidance), deadline)
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
        trajectory = _blocked(self._judged(trajectory), episode.blocker)
        return trajectory.model_copy(update={"seconds": time.monotonic() - start})

    def _record(self, task: Task, attempt: int, **fields: object) -> Trajectory:
        values: dict[str, object] = {
            "trajectory_id": trajectory_id(task, self.actor, attempt),
            "task": task,
            "actor": self.actor,
            "model": self.teacher.name,
            "attempt": attempt,
            "steps": (),
        }
        return Trajectory.model_validate(values | fields)

    def _interview(self, attempt: int, guidance: str) -> Interview:
        prompt = self.prompt
        if prompt.style == "full" and not prompt.date:
            prompt = dataclasses.replace(prompt, date=datetime.date.today().isoformat())
        return Interview(
            teacher=self.teacher,
            images=self.images,
            prompt=prompt,
            attempt=attempt,
            guidance=guidance,
            excluded=self.environment.excluded_actions,
            redact=self.environment.redact,
        )

    def _judged(self, trajectory: Trajectory) -> Trajectory:
        reward = self.environment.reward()
        judge = self.judge if reward is None else EnvironmentReward()
        trajectory = trajectory.model_copy(update={"reward": reward})
        # A page with a reward of its own that has paid none yet was left too early.
        if judge is None or (reward is None and trajectory.task.environment != "web"):
            return trajectory
        verdict = judge.judge(trajectory, self.images)
        return trajectory.model_copy(
            update={
                "success": declared(trajectory) and verdict.success is True,
                "judge": "" if verdict.success is None else judge.name,
                "judge_text": self.environment.redact(verdict.text),
                "judge_usage": verdict.usage,
                "judge_score": verdict.score,
            }
        )

    def _steps(self, episode: _Episode) -> Outcome:
        for number in range(1, self.limits.max_steps + 1):
            if episode.is_late:
                return "timeout"
            look = self.environment.look()
            episode.see(look)
            if episode.blocker and episode.blocker.outcome and episode.blocked >= self.limits.max_blocked:
                return episode.blocker.outcome
            if episode.is_late:
                return "timeout"
            given_up = episode.failures >= self.limits.max_failures
            self._step(episode, look, number, given_up or number == self.limits.max_steps)
            if episode.done is not None:
                return "done"
            if given_up:
                return "failures"
        return "max_steps"

    def _step(self, episode: _Episode, look: Look, number: int, done_only: bool) -> None:
        state = AgentState(
            task=episode.task,
            history=tuple(episode.history),
            step_number=number,
            max_steps=self.limits.max_steps,
            read_state=episode.read_state,
            file_system=look.file_system,
            todo_contents=look.todo_contents,
        )
        answer = episode.interview.ask(state, look, done_only)
        reader = Reader(episode.interview, episode.task.task_id, number)
        acted, error = self._act(episode, answer, reader, done_only)
        failed = bool(error) or any(result.error for result in acted.results[-1:])
        episode.failures = episode.failures + 1 if failed else 0
        episode.read_state = "\n".join(result.output for result in acted.results if result.output)
        episode.history.append(_past_step(number, answer.reply, error, acted.results))
        episode.steps.append(
            Step(
                number=number,
                observation=look.observation,
                messages=answer.messages,
                response=answer.text,
                results=acted.results,
                error=error,
                repaired=answer.repaired,
                extractions=tuple(reader.calls),
                usage=answer.usage,
                incidents=(*look.incidents, *acted.incidents),
                discarded=answer.discarded,
            )
        )

    def _act(self, episode: _Episode, answer: Answer, reader: Reader, done_only: bool) -> tuple[Acted, str]:
        """Carries a reply out; returns what came of it and why it could not be used."""
        nothing = Acted(())
        if answer.reply is None:
            return nothing, answer.error
        actions = answer.reply.executable
        if actions[0].name == "done":
            episode.done = actions[0]
            result = self.environment.finish(actions[0])
            episode.displayed = result.output
            return Acted((result,)), ""
        if done_only:
            return nothing, "Only done was allowed."
        if episode.is_late:
            return nothing, _TOO_LATE
        return self.environment.act(actions, reader.extract, episode.deadline), ""


def trajectory_id(task: Task, actor: str, attempt: int) -> str:
    """`{task_id}#{actor}-{attempt}`."""
    return f"{task.task_id}#{actor}-{attempt}"


def crashed_trajectory(
    task: Task, actor: str, model: str, attempt: int, detail: str, seconds: float = 0.0
) -> Trajectory:
    """Stands for an episode whose browser or process kept crashing, for so long as is known."""
    return Trajectory(
        trajectory_id=trajectory_id(task, actor, attempt),
        task=task,
        actor=actor,
        model=model,
        attempt=attempt,
        steps=(),
        outcome="crashed",
        detail=detail,
        seconds=seconds,
    )


def _blocked(trajectory: Trajectory, blocker: Blocker | None) -> Trajectory:
    """Tells an episode that ended before a closed door from one that failed by itself."""
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
