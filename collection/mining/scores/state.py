"""S_state: do the two branches stand at comparable states?"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from rapidfuzz import fuzz, process

from collection.mining.branch import Branch
from rmsweb_jax.actions.similarity import parse_url

# [ours] The paper names the four parts.
URL_WEIGHT, DOM_WEIGHT, MEMORY_WEIGHT, PROGRESS_WEIGHT = 0.30, 0.40, 0.15, 0.15
_SAME_PAGE = 0.8


class StateAlignment:
    """Compares the states of runs of one task; pages that several runs saw are counted once for all.

    Args:
      branches: all that will be compared.
    """

    def __init__(self, branches: Sequence[Branch]):
        self._first: dict[int, int] = {}
        total = 0
        for branch in branches:
            self._first[id(branch)] = total
            total += len(branch)
        self._overlap = dom_overlap(branches)

    def scores(self, success: Branch, localization: Branch) -> dict[str, np.ndarray]:
        """`state` and its parts `url`, `dom`, `memory`, `progress`.

        Returns:
          float arrays [num_success_steps, num_localization_steps] in [0, 1].
        """
        ours, theirs = self._first[id(success)], self._first[id(localization)]
        parts = {
            "url": url_similarity(_urls(success), _urls(localization)),
            "dom": self._overlap[ours : ours + len(success), theirs : theirs + len(localization)],
            "memory": memory_similarity(success, localization),
            "progress": progress_closeness(len(success), len(localization)),
        }
        weights = {"url": URL_WEIGHT, "dom": DOM_WEIGHT, "memory": MEMORY_WEIGHT, "progress": PROGRESS_WEIGHT}
        return {"state": sum((weights[name] * part for name, part in parts.items()), np.zeros(()))} | parts


def state_scores(success: Branch, localization: Branch) -> dict[str, np.ndarray]:
    """As `StateAlignment.scores`, for a single pair."""
    return StateAlignment((success, localization)).scores(success, localization)


def url_similarity(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """1 for equal addresses, 0.8 for the same host and path, else the shared part of the path (same host).

    Returns:
      float [len(first), len(second)].
    """
    ours, rows = _distinct(first)
    theirs, columns = _distinct(second)
    table = np.array([[_compare_urls(one, other) for other in theirs] for one in ours], float)
    return table.reshape(len(ours), len(theirs))[np.ix_(rows, columns)]


def dom_overlap(branches: Sequence[Branch]) -> np.ndarray:
    """Jaccard overlap of the multisets of visible elements, between all steps of all branches.

    An element is its tag, its text, and whether it can be acted on: under a dialog or a cover the
    same elements are another state.

    Returns:
      float [num_steps, num_steps], branch after branch.
    """
    pages: dict[frozenset[tuple], int] = {}
    page_of: list[int] = []
    for branch in branches:
        for step in branch.steps:
            seen: Counter[tuple] = Counter()
            page = []
            for item in step.step.observation.elements:
                key = (item.tag, item.text, item.index is not None)
                # The nth of its kind is an element of its own: the sets then overlap as multisets do.
                page.append((key, seen[key]))
                seen[key] += 1
            page_of.append(pages.setdefault(frozenset(page), len(pages)))
    distinct = _jaccard(list(pages))
    return distinct[np.ix_(page_of, page_of)]


def _jaccard(pages: Sequence[frozenset[tuple]]) -> np.ndarray:
    """Float [num_pages, num_pages]."""
    column: dict[tuple, int] = {}
    rows = [np.array([column.setdefault(key, len(column)) for key in page], np.intp) for page in pages]
    holds = np.zeros((len(pages), len(column)), np.float32)
    for row, columns in zip(holds, rows, strict=True):
        row[columns] = 1.0
    # What a single page holds is shared with none.
    shared = holds[:, holds.sum(0) > 1]
    both = shared @ shared.T
    sizes = np.array([len(page) for page in pages], np.float32)
    np.fill_diagonal(both, sizes)
    union = sizes[:, None] + sizes[None, :] - both
    # Two pages without any element are equally empty.
    return np.where(union > 0, both / np.maximum(union, 1), 1.0).astype(float)


def memory_similarity(success: Branch, localization: Branch) -> np.ndarray:
    """How alike what the agents remember is; an unusable reply remembers nothing."""
    ours, rows = _distinct(_memories(success))
    theirs, columns = _distinct(_memories(localization))
    table = process.cdist(ours, theirs, scorer=fuzz.ratio, dtype=np.float64) / 100.0
    return table[np.ix_(rows, columns)]


def progress_closeness(ours: int, theirs: int) -> np.ndarray:
    """One minus the distance between the positions, each the middle of its step as a share of the run.

    Middles, since the ends of very short runs would all lie at 0 or 1.
    """
    first = (np.arange(ours) + 0.5) / max(ours, 1)
    second = (np.arange(theirs) + 0.5) / max(theirs, 1)
    return 1.0 - np.abs(first[:, None] - second[None, :])


def _distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Each text once, and which of them each was."""
    numbers: dict[str, int] = {}
    places = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), places


def _urls(branch: Branch) -> list[str]:
    return [step.step.observation.url for step in branch.steps]


def _memories(branch: Branch) -> list[str]:
    return [step.reply.memory if step.reply else "" for step in branch.steps]


@functools.lru_cache(maxsize=4096)
def _compare_urls(first: str, second: str) -> float:
    if first == second:
        return 1.0
    one, two = parse_url(first), parse_url(second)
    if one is None or two is None or one.host != two.host:
        return 0.0
    if one.href == two.href:
        return 1.0
    ours, theirs = one.pathname.strip("/").split("/"), two.pathname.strip("/").split("/")
    if ours == theirs:
        return _SAME_PAGE
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    return _SAME_PAGE * shared / max(len(ours), len(theirs))
