"""A success beside another run of its task: what the one did, said and answered that the other did not."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable

import numpy as np

from collection.mining.branch import Branch, words
from collection.mining.signals import signal_table

# Verbs that ask for something to be done, at the head of a sentence or of one of its parts; whoever is
# asked to find or compare something is done with an answer.
_ORDER = re.compile(
    r"(?:^|[.;:,!?]\s+|\b(?:and|then|(?<!how )to|please)\s+)"
    r"(add|apply (?:for|to)|book|buy|cancel|change|check ?out|click|complete|contact|create|delete|donate"
    r"|download|drag|edit|enrol+|enter|expand|fill|focus|follow|join|like|log ?in|make|mark|message|order|pay"
    r"|pin|place|post|press|publish|purchase|rate|register|remove|rename|renew|rent|report an?|request"
    r"|reserve|rsvp|save|schedule|select|send|set|share|sign ?(?:in|up)|star|submit|subscribe|tick|turn|type"
    r"|unsubscribe|update|upload|vote|write)\b",
    re.IGNORECASE,
)
_FACT = re.compile(r"\d[\d,.:/-]*\d|\d|\b[A-Z][\w'-]{2,}")
_COMMON = words("the this that there these they its you your from with and for not are was none all")
_SMALL = _COMMON | words("a an in of on at to by or be as is it no any most least must only")


@dataclasses.dataclass(frozen=True, eq=False)
class Contrast:
    """Two runs of a task; what is derived of them is computed once."""

    success: Branch
    localization: Branch

    @functools.cached_property
    def good(self) -> dict[str, np.ndarray]:
        """The success's signals."""
        return signal_table(self.success)

    @functools.cached_property
    def bad(self) -> dict[str, np.ndarray]:
        """The other run's signals."""
        return signal_table(self.localization)

    @property
    def failed(self) -> bool:
        return not self.localization.run.success

    @property
    def claimed(self) -> bool:
        """The other run failed and says that it succeeded."""
        run = self.localization.run
        return not run.success and run.outcome == "done" and run.declared_success is True

    @functools.cached_property
    def request(self) -> str:
        """The task in words."""
        task = self.success.run.task
        return ". ".join((task.objective, *task.constraints))

    @functools.cached_property
    def ordered(self) -> bool:
        """The task asks for something to be done, not only for an answer."""
        return bool(_ORDER.search(self.request))

    @functools.cached_property
    def missing(self) -> tuple[int, ...]:
        """The success's acts that the other run did nowhere."""
        theirs = set(self.localization.signatures)
        return tuple(int(at) for at in self._acts(self.good) if self.success.signatures[at] not in theirs)

    @functools.cached_property
    def extra(self) -> tuple[int, ...]:
        """The other run's acts that the success did nowhere; reading in other words is none."""
        ours = set(self.success.signatures)
        acts = np.flatnonzero(self.bad["acts"] & ~self.bad["extracts"])
        return tuple(int(at) for at in acts if self.localization.signatures[at] not in ours)

    @functools.cached_property
    def last_act(self) -> int | None:
        """Position of the success's last act; None where it had none."""
        acts = self._acts(self.good)
        return int(acts[-1]) if acts.size else None

    @functools.cached_property
    def goals_missing(self) -> str:
        """What the success said when it did what the other run did not."""
        return " ".join(said(self.success, at) for at in self.missing)

    @functools.cached_property
    def said(self) -> str:
        """All that the other run said, its answer included."""
        branch = self.localization
        return " ".join((*(said(branch, at) for at in range(len(branch))), branch.run.final_text))

    @functools.cached_property
    def demands_missed(self) -> frozenset[str]:
        """Words of the constraints that the missing acts name, and no act of the other run."""
        demands = words(" ".join(self.success.run.task.constraints)) - _SMALL
        heeded = _named_by(self.localization, range(len(self.localization)))
        return (_named_by(self.success, self.missing) & demands) - heeded

    @functools.cached_property
    def wanted(self) -> frozenset[str]:
        """The facts of the success's answer."""
        return facts(self.success.run.final_text)

    @functools.cached_property
    def given(self) -> frozenset[str]:
        """The facts of the other run's answer; none where there is nothing to hold them against."""
        return facts(self.localization.run.final_text) if self.failed and self.wanted else frozenset()

    def lacks(self, signal: str) -> bool:
        """Whether a missing act has a signal."""
        return self.failed and any(self.good[signal][at] for at in self.missing)

    @staticmethod
    def _acts(table: dict[str, np.ndarray]) -> np.ndarray:
        return np.flatnonzero(table["acts"])


def said(branch: Branch, at: int) -> str:
    """Memory and goal of a step."""
    reply = branch.steps[at].reply
    return f"{reply.memory} {reply.next_goal}" if reply else ""


def facts(text: str) -> frozenset[str]:
    """The numbers and names of an answer, in lower case and without commas."""
    found = (fact.replace(",", "").strip(".:/-").casefold() for fact in _FACT.findall(text))
    return frozenset(fact for fact in found if fact and fact not in _COMMON)


def seen(branch: Branch, fact: str) -> bool:
    """Whether a fact stood on a page, in what was read from one, or in the task."""
    if fact in branch.task_words:
        return True
    return any(
        fact in step.step.observation.page_text.replace(",", "")
        or any(fact in result.output.replace(",", "") for result in step.step.results)
        for step in branch.steps
    )


def _named_by(branch: Branch, steps: Iterable[int]) -> frozenset[str]:
    """The words that some steps act on or type."""
    return words(" ".join(branch.named[at] for at in steps if not branch.steps[at].is_done))
