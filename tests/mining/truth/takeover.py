"""Takes over from runs at an application: before each step a hand-written policy goes on."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.agent.query import UNUSABLE
from collection.agent.recorded import RecordedActor
from collection.browser.config import SnapshotError
from collection.corpus.steps import view
from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, StepRequest
from collection.mining.replay import move_reply
from collection.mining.runs import parse_run
from rmsweb_jax.actions import Reply, normalize_action, recorded_reply, render_reply
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Observation, Task, Trajectory
from tests.apps.actor import Move, Page, Policy, done, read_page
from tests.apps.moves import Playing
from tests.apps.policies import policies_of
from tests.environments.forks import page_of
from tests.mining.truth.erring import erring, plan
from tests.mining.truth.runs import Truth

MOST_STEPS = 60
_PROMPT = PromptConfig(date="2027-01-05")
# So many of its last goals are in an actor's memory.
_REMEMBERED = 6


class PolicyActor(ActorModel):
    """Plays one episode by a policy. Its memory is what it has done, as a model's would be."""

    name = "scripted-policies"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._moves: Generator[Move, Page, None] | None = None

    def reply(self, request: StepRequest) -> ActorReply:
        page = read_page(request)
        try:
            if self._moves is None:
                self._moves = self._policy(page)
                goal, written = next(self._moves)
            else:
                goal, written = self._moves.send(page)
            actions = tuple(map(normalize_action, written))
        except Exception as problem:  # Of any kind, at pages that the policy was not written for.
            text = f"{type(problem).__name__}: {problem}"
            goal, actions = "Give up", (normalize_action({"done": {"text": text, "success": False}}),)
        reply = Reply(
            thinking=None,
            evaluation_previous_goal="Success" if page.view.goals else "Start",
            memory="; ".join(page.view.goals[-_REMEMBERED:]) or "Nothing is done yet",
            next_goal=goal,
            actions=actions,
        )
        return ActorReply(render_reply(reply))


class AgainActor(RecordedActor):
    """Plays a run again, in which pages are read as they were, and then ends it."""

    def __init__(self, run: Trajectory) -> None:
        super().__init__([(step.response, step.error) for step in run.steps], PolicyActor(_stop))
        self._run = run

    def extract(self, request: ExtractionRequest) -> ActorReply:
        calls = self._run.steps[request.step - 1].extractions
        text = calls[request.number - 1].response if request.number <= len(calls) else ""
        return ActorReply(text, problem="" if text else UNUSABLE)


class _Watching(ActorModel):
    """Takes a snapshot, and what the application holds, before each step of another actor.

    There is none where the run has left the application, such as at the empty page before the first one.
    """

    name = "watching"

    def __init__(self, actor: ActorModel, environment: Any, application: Any) -> None:
        self._actor, self._environment, self._application = actor, environment, application
        self.taken: dict[int, tuple[Any, Any]] = {}

    def reply(self, request: StepRequest) -> ActorReply:
        try:
            snapshot = self._environment.snapshot()
        except SnapshotError:
            snapshot = None
        self.taken[request.step] = snapshot, self._application.read()
        return self._actor.reply(request)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        return self._actor.extract(request)


class _Restored:
    """An environment whose episode begins at a snapshot."""

    def __init__(self, environment: Any, snapshot: Any) -> None:
        self._environment, self._snapshot = environment, snapshot

    def reset(self, task: Task) -> Task:
        self._environment.restore(self._snapshot)
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


def _stop(page: Page) -> Playing:
    yield done("")


def _resumed(policy: Policy, seen: Sequence[Page]) -> Policy:
    """The policy after these pages: it knows what they say, and takes its steps there for done."""

    def playing(page: Page) -> Playing:
        first, *others = (*seen, page)
        moves = policy(first)
        move = next(moves)
        for one in others:
            move = moves.send(one)
        while True:
            page = yield move
            move = moves.send(page)

    return playing


def _back_at(url: str, policy: Policy) -> Policy:
    def playing(page: Page) -> Playing:
        page = yield "Go back", [{"go_to_url": {"url": url}}]
        yield from policy(page)

    return playing


class DiffersError(Exception):
    """What was put back or played again is not what is on record."""


@dataclasses.dataclass(frozen=True)
class Point:
    """The state before a step.

    Attributes:
      snapshot, replies: of an earlier state that could be taken, and the replies since then, each with its
        `Step.error`; without a snapshot, since the beginning.
      world: what the application holds.
      left: number of steps that may follow.
    """

    snapshot: Any
    replies: tuple[tuple[str, str], ...]
    world: Any
    page: Observation
    left: int

    @property
    def place(self) -> str:
        """The address without its query."""
        return re.split(r"[?#]", self.page.url)[0].rstrip("/")


class Taker:
    """Plays a task, and takes over from other runs of it.

    Attributes:
      success: the run of the task's hand-written policy.
    """

    def __init__(self, environment: Any, application: Any, images: ImageStore, task: Task) -> None:
        self._environment, self._application, self._images = environment, application, images
        _, template, seed = task.task_id.split("/")
        self._task, self._policy = task, policies_of(application.name)[template]
        self._asks = application.goal(template, int(seed)).answer is not None
        self.success, self._plan = self._watch(PolicyActor(self._policy), MOST_STEPS)
        self._pages = [page_of(step.messages[-1].text) for step in self.success.steps]

    def err(self, number: int) -> tuple[Trajectory, list[Point]]:
        """Plays the policy with a mistake; it may take more steps than the success, up to twice as many."""
        draw = random.Random(f"{self._task.task_id} {number}")
        replies = [recorded_reply(step.response)[0].actions for step in self.success.steps]
        moves = [[{action.name: action.params.model_dump()} for action in actions] for actions in replies]
        mistake = plan(moves, self._pages, self._asks, draw)
        world = self._application.world(self._task.seed or 0)
        actor = PolicyActor(erring(self._policy, mistake, world, draw))
        run, points = self._watch(actor, len(moves) + draw.randint(1, len(moves)))
        return run.model_copy(update={"actor": mistake.kind, "attempt": number}), points

    def again(self, run: Trajectory, steps: int) -> tuple[Trajectory, list[Point]]:
        """Plays a recorded run again.

        Args:
          steps: its maximum number of steps.

        Raises:
          DiffersError: it does not come to the same pages or the same end.
        """
        played, points = self._watch(AgainActor(run), steps)
        pages = [step.observation.fingerprint for step in run.steps]
        same = [step.observation.fingerprint for step in played.steps[: len(pages)]] == pages
        if not same or (run.outcome == "done" and played.success):
            raise DiffersError(f"{run.trajectory_id} comes to other pages or another end")
        return run, points

    def truth(self, run: Trajectory, points: Sequence[Point]) -> Truth:
        """Finds the last critical step of a failed run; `points` has one after its end if it may go on."""
        if run.outcome == "failures":  # Its last step did nothing, as only `done` was allowed.
            points = [*points, dataclasses.replace(points[-1], left=points[-1].left - 1)]
        seen = [{one.place for one in points[: at + 1]} for at in range(len(points))]
        ends = {
            # As long as the run is the success, that is what taking over comes to.
            at: "success" if self._follows(run, at, point.left) else self._end(point, seen[at - 1])
            for at, point in enumerate(points, 1)
        }
        step = max((at for at in ends if ends[at] == "success" != ends.get(at + 1)), default=None)
        step = step if step and step <= len(run.steps) else None
        right = self._right(points[step - 1], seen[step - 1]) if step else ()
        name, task = self._application.name, run.task.task_id
        return Truth(run.trajectory_id, task, name, run.actor, ends, step, right)

    def _follows(self, run: Trajectory, at: int, left: int) -> bool:
        """Whether the run has come to a step as the success did, with steps enough for the rest of it."""
        ours, theirs = (
            [
                (step.observation.fingerprint, view(step).composition * (step.number < at))
                for step in one.steps[:at]
            ]
            for one in (self.success, run)
        )
        return len(ours) == at and ours == theirs and left > len(self._plan) - at

    def _end(self, point: Point, seen: set[str]) -> str:
        """How the run ends if the policy goes on, which knows the pages that the run has seen."""
        ways = self._ways(point, seen) if point.left > 0 else ()
        won = (self._play(PolicyActor(policy), point.left, point).success for policy in ways)
        return "success" if any(won) else "failure"

    def _ways(self, point: Point, seen: set[str]) -> Iterator[Policy]:
        """Ways to go on: from where the success was at this page, from here, and from an earlier page."""
        steps = range(len(self._plan))
        known = [at for at in steps if self._knows(seen, at)]
        same = [at for at in known if self._plan[at].world == point.world]
        here = [at for at in same or known if self._plan[at].place == point.place]
        equal = {at for at in here if self._plan[at].page.fingerprint == point.page.fingerprint}
        for at in sorted(here, key=lambda at: (at in equal, at), reverse=True):
            yield _resumed(self._policy, self._pages[:at])
        if 0 not in here:
            yield self._policy
        # After the changes that the run has made, too; where it has made others, after any of the plan.
        changes = [at for at in known if at and self._plan[at].world != self._plan[at - 1].world]
        for at in [min(same)] if same else [*reversed(changes), 0]:
            url = self._plan[at].page.url if at else self._task.website
            yield _back_at(url, _resumed(self._policy, self._pages[:at]))

    def _right(self, point: Point, seen: set[str]) -> tuple[tuple[str, ...], ...]:
        """The acts of the success that lead to success from a point."""
        tried: dict[tuple[str, ...], bool] = {}
        for step, acts in zip(self.success.steps, parse_run(self.success).acts, strict=True):
            reply = move_reply(recorded_reply(step.response)[0], step.observation, point.page)
            key = tuple(sorted(acts))
            if reply is None or key in tried or any(action.name == "done" for action in reply.actions):
                continue
            # The policy goes on as in the success; if that is not it, in other ways.
            pages = self._pages[: step.number if self._knows(seen, step.number) else 0]
            actor = RecordedActor([(render_reply(reply), "")], PolicyActor(_resumed(self._policy, pages)))
            played, after = self._watch(actor, point.left, point)
            tried[key] = played.success or (
                len(after) > 1 and self._end(after[1], seen | {after[1].place}) == "success"
            )
        return tuple(key for key, won in tried.items() if won)

    def _knows(self, seen: set[str], at: int) -> bool:
        """Whether a run that has seen these pages knows what the success knew after so many steps."""
        return {one.place for one in self._plan[:at]} <= seen

    def _watch(
        self, actor: ActorModel, steps: int, start: Point | None = None
    ) -> tuple[Trajectory, list[Point]]:
        """Plays on as `_play`; also returns the points before its steps, `start` included."""
        watching = _Watching(actor, self._environment, self._application)
        played = self._play(watching, steps, start)
        snapshot, replies = (start.snapshot, start.replies) if start else (None, ())
        points = []
        for left, step in zip(range(steps, 0, -1), played.steps[len(replies) :], strict=False):
            taken, world = watching.taken[step.number]
            if taken is not None:
                snapshot, replies = taken, ()
            points.append(Point(snapshot, replies, world, step.observation, left))
            replies = (*replies, (step.response, step.error))
        return played, points

    def _play(self, actor: ActorModel, steps: int, start: Point | None = None) -> Trajectory:
        """Plays so many steps, from the beginning or from a point on.

        Raises:
          DiffersError: the page of the point is not put back.
        """
        environment, replies = self._environment, start.replies if start else ()
        if start and start.snapshot is not None:
            environment = _Restored(environment, start.snapshot)
        actor, limits = RecordedActor(replies, actor), EpisodeLimits(max_steps=len(replies) + steps)
        # Lenient, because replies of teachers were read so; what could not be used is in the record.
        runner = EpisodeRunner(environment, actor, self._images, "flawless", _PROMPT, limits, lenient=True)
        played = runner.run_episode(self._task)
        pages = [step.observation.fingerprint for step in played.steps[len(replies) :]]
        if start and pages[:1] != [start.page.fingerprint]:
            raise DiffersError(f"{start.page.url} is put back as another page")
        return played
