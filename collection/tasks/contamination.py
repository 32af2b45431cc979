"""Contamination check: finds training tasks that repeat a benchmark's question.

The tests are RMSWeb's (appendix, "Contamination check"): equal texts, one whole text within the other, and
shared 3-grams of words. An inverted index from 3-grams to questions counts the 3-grams that a task shares
with each, and only questions that share enough are compared. This misses none: every test but the equality of
very short texts needs shared 3-grams.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import Task

OverlapTest = Literal["exact", "substring", "jaccard", "containment"]
Shingle = tuple[str, ...]

# Words in a shingle.
SIZE = 3
# Shared 3-grams over all 3-grams of both texts, and over those of the question, from which a task repeats it.
JACCARD, CONTAINMENT = 0.4, 0.6
# Factor of both on one registrable domain, where similar words more often mean the same task.
SAME_SITE = 0.6
_WORD = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True)
class BenchmarkQuestion:
    """A task of a benchmark; `website` may be empty."""

    benchmark: str
    task_id: str
    text: str
    website: str = ""


@dataclasses.dataclass(frozen=True)
class Overlap:
    """The reason why a task counts as a question's copy.

    Attributes:
      value, threshold: of `jaccard` and `containment`; 1 for the other tests.
      same_site: the lower threshold was used.
    """

    test: OverlapTest
    question: BenchmarkQuestion
    value: float
    threshold: float
    same_site: bool


class BenchmarkIndex:
    """Index of benchmarks' questions, for comparing any number of tasks with them."""

    def __init__(self, questions: Iterable[BenchmarkQuestion]) -> None:
        self._questions = tuple(questions)
        self._words = [words(question.text) for question in self._questions]
        self._shingles = [shingles(text) for text in self._words]
        self._sites = [site_of(question.website) for question in self._questions]
        self._equal: dict[Sequence[str], int] = {}
        holding: dict[Shingle, list[int]] = defaultdict(list)
        at: dict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(self._words):
            if text:
                self._equal.setdefault(text, number)
            for shingle in self._shingles[number]:
                holding[shingle].append(number)
            at[self._sites[number]].append(number)
        self._holding = {shingle: np.array(numbers) for shingle, numbers in holding.items()}
        self._at = {site: np.array(numbers) for site, numbers in at.items() if site}
        self._sizes = np.array([len(some) for some in self._shingles])

    def find(self, text: str, website: str = "") -> Overlap | None:
        """Returns the question that a task repeats, with the first test that it fails; None for a new task.

        Of several questions an equal one comes first, then one that contains the task or is contained in it,
        then the one that exceeds its threshold most.
        """
        task, site = words(text), site_of(website)
        if (number := self._equal.get(task)) is not None:
            same_site = bool(site) and site == self._sites[number]
            return Overlap("exact", self._questions[number], 1.0, 1.0, same_site)
        own = shingles(task)
        holding = [self._holding[shingle] for shingle in own if shingle in self._holding]
        # Without a shared 3-gram only equality is possible, which was checked above.
        if not holding:
            return None
        shared = np.bincount(np.concatenate(holding), minlength=len(self._questions))
        found = [
            overlap
            for number in self._near(shared, len(own), site)
            if (overlap := self._compare(task, own, number, int(shared[number]), site)) is not None
        ]
        return max(found, key=lambda one: (one.test == "substring", one.value / one.threshold), default=None)

    def _near(self, shared: np.ndarray, own: int, site: str) -> list[int]:
        """Selects candidates by the numbers of 3-grams [Q] that a task of `own` 3-grams shares with them.

        Common phrases make most tasks share some with hundreds of questions; comparing all of those in full
        would take most of the time.
        """
        # Slightly below the thresholds, so that rounding loses no candidate; the comparison itself decides.
        factor = np.full(len(shared), 1 - 1e-9)
        if (same := self._at.get(site)) is not None:
            factor[same] *= SAME_SITE
        # The three tests of `_compare`, in numpy and for all questions at once.
        near = shared >= factor * JACCARD * (own + self._sizes - shared)
        near |= shared >= factor * CONTAINMENT * self._sizes
        near |= shared == np.minimum(own, self._sizes)
        return np.flatnonzero(near & (shared > 0)).tolist()

    def _compare(
        self, task: Sequence[str], own: frozenset[Shingle], number: int, shared: int, site: str
    ) -> Overlap | None:
        """Returns the first test that a task fails against one question that shares 3-grams with it."""
        question, theirs = self._questions[number], self._shingles[number]
        same_site = bool(site) and site == self._sites[number]
        # A text within another one shares all of its 3-grams.
        if shared == min(len(own), len(theirs)) and _one_in_other(task, self._words[number]):
            return Overlap("substring", question, 1.0, 1.0, same_site)
        factor = SAME_SITE if same_site else 1.0
        jaccard, containment = shared / (len(own) + len(theirs) - shared), shared / len(theirs)
        if jaccard >= (threshold := factor * JACCARD):
            return Overlap("jaccard", question, jaccard, threshold, same_site)
        if containment >= (threshold := factor * CONTAINMENT):
            return Overlap("containment", question, containment, threshold, same_site)
        return None


def find_overlap(index: BenchmarkIndex, task: Task) -> Overlap | None:
    """Returns the question that a task repeats, by its objective alone or with constraints; None if new."""
    # Constraints may hold a part of the question, but also dilute the overlap of the objective.
    texts = (task.objective, " ".join((task.objective, *task.constraints)))
    found = (index.find(text, task.website) for text in dict.fromkeys(texts))
    return next((overlap for overlap in found if overlap is not None), None)


def words(text: str) -> tuple[str, ...]:
    """Returns normalised words for the comparison: case-folded, NFKC, without punctuation."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def shingles(text: Sequence[str]) -> frozenset[Shingle]:
    """Returns all 3-grams; none for a text with fewer than three words."""
    return frozenset(tuple(text[start : start + SIZE]) for start in range(len(text) - SIZE + 1))


def _one_in_other(one: Sequence[str], other: Sequence[str]) -> bool:
    """Returns True if the shorter text, of at least three words, is a contiguous part of the longer one."""
    short, long = sorted((one, other), key=len)
    return len(short) >= SIZE and f" {' '.join(short)} " in f" {' '.join(long)} "
