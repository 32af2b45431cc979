"""Runs of a task prepared for mining: parsed steps, comparable actions, pairs of runs to compare."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from collection.corpus.elements import label_of, name_of, role_of
from collection.corpus.guidance import QuoteFinder
from collection.corpus.lean import LeanElement, LeanStep, Run, lean
from collection.corpus.steps import INVALID, StepView, full_success, view
from rmsweb_jax.actions import Action
from rmsweb_jax.actions.similarity import parse_url
from rmsweb_jax.records.schema import SftSample, Trajectory

_WORD = re.compile(r"[^\W_]+")
_LOOKING = frozenset(("wait", "scroll"))


# Roles, tags or types of input, of controls that a click switches, and of those that it sets.
_SWITCHES = ("checkbox", "switch", "menuitemcheckbox")
_CHOICES = ("radio", "option", "menuitemradio")
# Outcomes of runs whose last step is one in which only `done` is allowed.
_CUT_OFF = ("failures", "max_steps")
# Maximum numbers of pairs of a task to compare; a model names the failure of each of them.
MAX_PRIMARY, MAX_SECONDARY = 12, 4

# A control of a page, and the value that it is set to; whether it is on, if a click switches it.
Values = dict[tuple[str, str], str | bool]


# eq=False: compared and hashed by identity, so that results can be cached by run.
@dataclasses.dataclass(frozen=True, eq=False)
class ParsedRun:
    """A run with its replies parsed.

    Attributes:
      record: as it was collected.
      steps: one view for each step of the record.
      guidance: reflection guidance that the run was played with; "" without any.
    """

    record: Run
    steps: tuple[StepView[LeanStep], ...]
    guidance: str = ""

    def __len__(self) -> int:
        return len(self.steps)

    @functools.cached_property
    def acts(self) -> tuple[frozenset[str], ...]:
        """What each step does, one text for each action, see `acts_of`."""
        return tuple(acts_of(step) for step in self.steps)

    @functools.cached_property
    def all_acts(self) -> frozenset[str]:
        """What the run does in any of its steps."""
        return frozenset().union(*self.acts)

    @functools.cached_property
    def targets(self) -> tuple[frozenset[int | None], ...]:
        """The element indices that each step names; None for actions without one."""
        return tuple(
            frozenset(getattr(action.params, "index", None) for action in _executed(step))
            for step in self.steps
        )

    @functools.cached_property
    def action_texts(self) -> tuple[str, ...]:
        """The texts that each step acts on or types: labels of elements and text parameters."""
        return tuple(_action_text(step) for step in self.steps)

    @functools.cached_property
    def pages(self) -> tuple[str, ...]:
        """Host and path of each step's address."""
        return tuple(_page(step.step.observation.url) for step in self.steps)

    @functools.cached_property
    def assigned(self) -> tuple[Values, ...]:
        """The values that each step sets, by page and control."""
        return tuple(
            dict(filter(None, (_assigned(step, action, page) for action in _executed(step))))
            for step, page in zip(self.steps, self.pages, strict=True)
        )

    @functools.cached_property
    def final_values(self) -> Values:
        """The last value that each control was set to, by a step with an effect."""
        values: Values = {}
        for step, given in zip(self.steps, self.assigned, strict=True):
            for control, value in given.items() if step.effective and not step.failed else ():
                values[control] = not values.get(control) if value is True else value
        return values

    @functools.cached_property
    def task_words(self) -> frozenset[str]:
        """The words of the objective and the constraints."""
        return words(" ".join((self.record.task.objective, *self.record.task.constraints)))

    @functools.cached_property
    def quoting(self) -> tuple[bool, ...]:
        """Marks the steps whose prompt or reply quotes the guidance, which a policy never gets."""
        if not self.guidance:
            return (False,) * len(self)
        quotes = QuoteFinder(self.guidance, self.record.task)
        return tuple(_quotes(step.step, quotes) for step in self.steps)

    @property
    def candidates(self) -> tuple[int, ...]:
        """Positions that may be a divergence: all but the `done` that ends a verified success.

        The last step of a run that was cut off is no decision: it may only report. The `done` of a failed run
        stays a candidate, although the paper searches non-terminal steps: ending too early is the mistake of
        many pairs.
        """
        last = len(self.steps) - 1
        closing = self.record.success and last >= 0 and self.steps[last].is_done
        closing |= self.record.outcome in _CUT_OFF and last > 0
        return tuple(range(last if closing else last + 1))


def parse_run(run: Run | Trajectory, guidance: str = "") -> ParsedRun:
    run = lean(run) if isinstance(run, Trajectory) else run
    return ParsedRun(run, tuple(view(step) for step in run.steps), guidance)


def _quotes(step: LeanStep, quotes: QuoteFinder) -> bool:
    page = step.observation
    quotes.show(page.page_text, page.title, page.url, *(element.text for element in page.elements))
    sample = SftSample(
        sample_id="", task_id="", site="", kind="action", messages=step.messages, response=step.response
    )
    return bool(quotes.find(sample))


def words(text: str) -> frozenset[str]:
    """The words and numbers of a text, in lower case."""
    return frozenset(_WORD.findall(text.casefold()))


def _executed(step: StepView[LeanStep]) -> tuple[Action, ...]:
    return step.reply.executable if step.reply else ()


def element_of(step: StepView[LeanStep], action: Action) -> LeanElement | None:
    """The element that an action names by its index, if it was on the page."""
    index = getattr(action.params, "index", None)
    if not index:
        return None
    return next((item for item in step.step.observation.elements if item.index == index), None)


def acts_of(step: StepView[LeanStep]) -> frozenset[str]:
    """The step's actions as texts that compare between pages and between runs.

    Elements are named by role and name, since the same element has different indices on different pages. One
    step with four actions does the same as four steps with one each. Looking around counts only in steps that
    do nothing else. Letter case and spacing of text parameters are ignored.
    """
    if step.reply is None:
        return frozenset(INVALID)
    actions = step.reply.executable
    busy = [action for action in actions if action.name not in _LOOKING]
    return frozenset(_describe(step, action) for action in busy or actions)


def _describe(step: StepView[LeanStep], action: Action) -> str:
    params = {
        name: " ".join(value.split()).casefold() if isinstance(value, str) else value
        for name, value in action.params.model_dump(exclude_defaults=True).items()
    }
    element = element_of(step, action)
    if element is not None:
        params["index"] = _called(step, element)
    return f"{action.name} {params}"


def _assigned(
    step: StepView[LeanStep], action: Action, page: str
) -> tuple[tuple[str, str], str | bool] | None:
    """The control that an action sets, with its value: True for one that it switches."""
    element = element_of(step, action)
    if element is None:
        return None
    control = (page, _called(step, element))
    if action.name in ("input_text", "select_dropdown_option"):
        return control, " ".join(str(action.params.model_dump()["text"]).split()).casefold()
    role = role_of(element.tag, element.attributes).removeprefix("input ")
    if action.name != "click_element_by_index" or role not in (*_SWITCHES, *_CHOICES):
        return None
    return control, True if role in _SWITCHES else "chosen"


def _called(step: StepView[LeanStep], element: LeanElement) -> str:
    """Role and name of an element; one without text is numbered among those of the same role and name."""
    called = _role_and_name(element)
    if element.text:
        return called
    others = step.step.observation.elements
    # Decoding attributes takes time, so other kinds of elements are left out first.
    alike = [item for item in others if item.index is not None and not item.text and item.tag == element.tag]
    same = [item.index for item in alike if _role_and_name(item) == called]
    return f"{called} {same.index(element.index)}"


def _role_and_name(element: LeanElement) -> str:
    attributes = element.attributes
    return f"{role_of(element.tag, attributes)} {name_of(element.text, attributes)}"


def _action_text(step: StepView[LeanStep]) -> str:
    parts = []
    for action in _executed(step):
        element = element_of(step, action)
        parts.append(label_of(element.text, element.attributes) if element else "")
        parts += [str(value) for value in action.params.model_dump().values() if isinstance(value, str)]
    return " ".join(parts)


def _page(url: str) -> str:
    parsed = parse_url(url)
    return url if parsed is None else f"{parsed.host}{parsed.pathname.rstrip('/')}"


@dataclasses.dataclass(frozen=True)
class RunPair:
    """A success and the run that it is compared with.

    Attributes:
      kind: `primary` for a failed run, `secondary` for a longer success.
    """

    kind: Literal["primary", "secondary"]
    success: ParsedRun
    localization: ParsedRun


def by_task(trajectories: Iterable[Trajectory]) -> dict[str, list[ParsedRun]]:
    """All runs of each task, sorted by trajectory id; a run that occurs several times counts once."""
    runs: dict[str, dict[str, Trajectory]] = defaultdict(dict)
    for trajectory in trajectories:
        runs[trajectory.task.task_id].setdefault(trajectory.trajectory_id, trajectory)
    return {
        task_id: [parse_run(found[name]) for name in sorted(found)] for task_id, found in sorted(runs.items())
    }


def run_pairs(runs: Sequence[ParsedRun]) -> list[RunPair]:
    """Every success with every failure, and the shortest success with every longer one.

    Where there are more pairs than are compared, the shortest success is paired with all failures
    first, then the next one; failures alternate between actors. A right answer that says no is neither.
    """
    successes = sorted(
        (run for run in runs if full_success(run.record) and len(run)),
        key=lambda run: (len(run), run.record.trajectory_id),
    )
    failures = _alternate_actors([run for run in runs if not run.record.success and len(run)])
    primary = [RunPair("primary", success, failure) for success in successes for failure in failures]
    secondary = [
        RunPair("secondary", successes[0], longer)
        for longer in successes[1:]
        if len(longer) > len(successes[0])
    ]
    return primary[:MAX_PRIMARY] + secondary[:MAX_SECONDARY]


def _alternate_actors(runs: Sequence[ParsedRun]) -> list[ParsedRun]:
    """The first run of each actor, then the second of each, and so on."""
    seen: dict[str, int] = defaultdict(int)
    ranked = []
    for run in sorted(runs, key=lambda run: run.record.trajectory_id):
        actor = run.record.actor
        ranked.append((seen[actor], actor, run.record.trajectory_id, run))
        seen[actor] += 1
    return [run for *_, run in sorted(ranked, key=lambda entry: entry[:3])]
