"""Differences between a success and another run of its task: acts, statements, answers."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable

import numpy as np

from collection.mining.runs import ParsedRun, words
from collection.mining.step_flags import step_flags

# Verbs that ask for an act, at the head of a sentence or of one of its parts. A task without any of them,
# such as to find or to compare, is fulfilled by an answer. Like the lists below, English, written by hand.
_ORDER = re.compile(
    r"(?:^|[.;:,!?]\s+|\b(?:and|then|(?<!how )to|please)\s+)"
    r"(add|apply (?:for|to)|book|buy|cancel|change|check ?out|click|complete|contact|create|delete|donate"
    r"|download|drag|edit|enrol+|enter|expand|fill|focus|follow|join|like|log ?in|make|mark|message|order|pay"
    r"|pin|place|post|press|publish|purchase|rate|register|remove|rename|renew|rent|report an?|request"
    r"|reserve|rsvp|save|schedule|select|send|set|share|sign ?(?:in|up)|star|submit|subscribe|tick|turn|type"
    r"|unsubscribe|update|upload|vote|write)\b",
    re.IGNORECASE,
)
# The facts of an answer: numbers, and words with a capital letter.
_FACT = re.compile(r"\d[\d,.:/-]*\d|\d|\b[A-Z][\w'-]{2,}")
_COMMON = words("the this that there these they its you your from with and for not are was none all")
_SMALL = _COMMON | words("a an in of on at to by or be as is it no any most least must only")


@dataclasses.dataclass(frozen=True, eq=False)
class RunDiff:
    """A success and another run of its task; each difference is computed once.

    A step with the flag `acts` changed something. Acts are compared one by one, see `runs.acts_of`.
    """

    success: ParsedRun
    localization: ParsedRun

    @functools.cached_property
    def success_flags(self) -> dict[str, np.ndarray]:
        """The step flags of the success: name -> bool [num_success_steps]."""
        return step_flags(self.success)

    @functools.cached_property
    def localization_flags(self) -> dict[str, np.ndarray]:
        """The step flags of the other run: name -> bool [num_localization_steps]."""
        return step_flags(self.localization)

    @property
    def failed(self) -> bool:
        """The other run failed."""
        return not self.localization.record.success

    @property
    def claimed(self) -> bool:
        """The other run failed, but declared success."""
        run = self.localization.record
        return not run.success and run.outcome == "done" and run.declared_success is True

    @functools.cached_property
    def request(self) -> str:
        """Objective and constraints of the task."""
        task = self.success.record.task
        return ". ".join((task.objective, *task.constraints))

    @functools.cached_property
    def asks_for_action(self) -> bool:
        """The task asks for an act, not only for an answer."""
        return bool(_ORDER.search(self.request))

    @functools.cached_property
    def missing_acts(self) -> tuple[int, ...]:
        """Positions of the success's acts that are nowhere in the other run."""
        acts = np.flatnonzero(self.success_flags["acts"])
        return tuple(int(at) for at in acts if self.success.acts[at] - self.localization.all_acts)

    @functools.cached_property
    def extra_acts(self) -> tuple[int, ...]:
        """Positions of the other run's acts that are nowhere in the success; extractions do not count."""
        acts = np.flatnonzero(self.localization_flags["acts"] & ~self.localization_flags["extracts"])
        return tuple(int(at) for at in acts if self.localization.acts[at] - self.success.all_acts)

    @functools.cached_property
    def last_act(self) -> int | None:
        """Position of the success's last act; None if it has none."""
        acts = np.flatnonzero(self.success_flags["acts"])
        return int(acts[-1]) if acts.size else None

    @functools.cached_property
    def missing_goals(self) -> str:
        """Memories and goals of the success at its missing acts."""
        return " ".join(thoughts(self.success, at) for at in self.missing_acts)

    @functools.cached_property
    def statements(self) -> str:
        """Memories, goals and final answer of the other run."""
        run = self.localization
        return " ".join((*(thoughts(run, at) for at in range(len(run))), run.record.final_text))

    @functools.cached_property
    def missed_constraint_words(self) -> frozenset[str]:
        """Words of the constraints that occur in the missing acts and in no act of the other run."""
        demands = words(" ".join(self.success.record.task.constraints)) - _SMALL
        followed = _named_by(self.localization, range(len(self.localization)))
        return (_named_by(self.success, self.missing_acts) & demands) - followed

    @functools.cached_property
    def expected_facts(self) -> frozenset[str]:
        """The facts of the success's answer."""
        return facts(self.success.record.final_text)

    @functools.cached_property
    def given_facts(self) -> frozenset[str]:
        """The facts of a failed run's answer; none where the success's answer has no facts."""
        comparable = self.failed and bool(self.expected_facts)
        return facts(self.localization.record.final_text) if comparable else frozenset()

    def missing_act_has(self, flag: str) -> bool:
        """True if the other run failed and a missing act of the success has this flag."""
        return self.failed and any(self.success_flags[flag][at] for at in self.missing_acts)


def thoughts(run: ParsedRun, at: int) -> str:
    """Returns memory and goal of a step; empty for an unusable reply."""
    reply = run.steps[at].reply
    return f"{reply.memory} {reply.next_goal}" if reply else ""


def facts(text: str) -> frozenset[str]:
    """Returns the numbers and capitalized words of an answer, in lower case and without commas."""
    found = (fact.replace(",", "").strip(".:/-").casefold() for fact in _FACT.findall(text))
    return frozenset(fact for fact in found if fact and fact not in _COMMON)


def seen(run: ParsedRun, fact: str) -> bool:
    """Returns True if a fact is on a page of the run, in the output of an action, or in the task."""
    if fact in run.task_words:
        return True
    return any(
        fact in step.step.observation.page_text.replace(",", "")
        or any(fact in result.output.replace(",", "") for result in step.step.results)
        for step in run.steps
    )


def _named_by(run: ParsedRun, steps: Iterable[int]) -> frozenset[str]:
    """The words that some steps act on or type, `done` left out."""
    return words(" ".join(run.action_texts[at] for at in steps if not run.steps[at].is_done))
