"""S_state: similarity of the states of two runs, step by step (RMSWeb, section 3.3)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

import numpy as np
from rapidfuzz import fuzz, process

from collection.corpus.lean import LeanElement
from collection.mining.runs import ParsedRun
from rmsweb_jax.actions.similarity import parse_url

# RMSWeb names the parts and gives no weights. The page weighs most; memory and progress are noisy and break
# ties. With them the scores of the paper's four contrasts are met within 0.08, see docs/results/mining.md.
_WEIGHTS = {"url": 0.30, "dom": 0.40, "memory": 0.15, "progress": 0.15}
# Similarity of two addresses that differ only in query or fragment; a shared prefix of the path gets a part.
# Chosen by hand.
_SAME_PAGE = 0.8
# Minimum overlap of two pages that may show the same state. Tuned on the pairs that were made for it.
_SAME_STATE = 0.8
_INDEX = re.compile(r"\*?\[\d+\]")


class StateAlignment:
    """Compares the states of runs of one task; each distinct page is encoded once.

    Args:
      runs: all runs that will be compared.
    """

    def __init__(self, runs: Sequence[ParsedRun]):
        self._first: dict[int, int] = {}
        total = 0
        for run in runs:
            self._first[id(run)] = total
            total += len(run)
        pages = Pages(runs)
        self._pages, self._overlap, self._same_text = pages, pages.overlap(), pages.same_text()

    def scores(self, success: ParsedRun, localization: ParsedRun) -> dict[str, np.ndarray]:
        """`state` and its parts `url`, `dom`, `memory`, `progress`.

        Returns:
          float arrays [num_success_steps, num_localization_steps] in [0, 1].
        """
        parts = {
            "url": url_similarity(_urls(success), _urls(localization)),
            "dom": self._between(self._overlap, success, localization),
            "memory": memory_similarity(success, localization),
            "progress": progress_closeness(len(success), len(localization)),
        }
        return {"state": np.sum([weight * parts[name] for name, weight in _WEIGHTS.items()], axis=0)} | parts

    def same_states(self, success: ParsedRun, localization: ParsedRun) -> np.ndarray:
        """The certainty that two steps are at the same state of the site.

        Steps are certainly at the same state where the page and its text are the same. A step without such a
        match is likely at the state of the most similar pages of the success, if the similarity in
        distinguishing elements is at least `_SAME_STATE`.

        Returns:
          float [num_success_steps, num_localization_steps]: 1 certain, 0.5 likely, 0 no.
        """
        # Same host and path; query and fragment may differ.
        here = url_similarity(_urls(success), _urls(localization)) >= _SAME_PAGE
        equal = self._between(self._same_text, success, localization) & here
        likeness = self._pages.likeness(self._steps(success), self._steps(localization)) * here
        # 1e-6 absorbs float32 rounding between equally similar pages.
        nearest = likeness >= np.maximum(likeness.max(0, initial=0.0) - 1e-6, _SAME_STATE)
        return np.where(equal.any(0), equal, 0.5 * nearest)

    def _between(self, table: np.ndarray, success: ParsedRun, localization: ParsedRun) -> np.ndarray:
        return table[self._steps(success), self._steps(localization)]

    def _steps(self, run: ParsedRun) -> slice:
        """The rows and columns of its steps in tables of all steps."""
        first = self._first[id(run)]
        return slice(first, first + len(run))


def url_similarity(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """1 for equal addresses, 0.8 for the same host and path, else the shared part of the path (same host).

    Returns:
      float [len(first), len(second)].
    """
    ours, rows = _distinct(first)
    theirs, columns = _distinct(second)
    table = np.array([[_compare_urls(one, other) for other in theirs] for one in ours], float)
    return table.reshape(len(ours), len(theirs))[np.ix_(rows, columns)]


class Pages:
    """The distinct pages of some runs as multisets of visible elements.

    An element is its tag, its text and whether it can be acted on: the same elements under a dialog or a
    cover are another state.
    """

    def __init__(self, runs: Sequence[ParsedRun]):
        pages: dict[frozenset[tuple], int] = {}
        # Lists keep the page's order. That of a set differs between processes, and so would rounding of sums.
        listed: list[list[tuple]] = []
        known: dict[tuple, tuple[int, int]] = {}
        texts: dict[str, int] = {}
        self._page_of: list[int] = []
        self._text_of: list[int] = []
        for run in runs:
            for step in run.steps:
                observation = step.step.observation
                shown = sum(item.index is not None for item in observation.elements)
                # Most steps see a page that was seen before: encode it once.
                key = (observation.fingerprint, len(observation.elements), shown)
                if key not in known:
                    page, text = _page(observation.elements), _INDEX.sub("", observation.page_text)
                    number = pages.setdefault(frozenset(page), len(pages))
                    listed += [page] * (number == len(listed))
                    known[key] = number, texts.setdefault(text, len(texts))
                self._page_of.append(known[key][0])
                self._text_of.append(known[key][1])
        column: dict[tuple, int] = {}
        rows = [np.array([column.setdefault(key, len(column)) for key in page], np.intp) for page in listed]
        self._holds = np.zeros((len(listed), len(column)), np.float32)
        for row, columns in zip(self._holds, rows, strict=True):
            row[columns] = 1.0

    def overlap(self) -> np.ndarray:
        """Jaccard overlap of the pages of all steps: float [num_steps, num_steps], in order of the runs."""
        # Elements of a single page are in no intersection: leave them out of the product.
        common = self._holds[:, self._holds.sum(0) > 1]
        table = _jaccard(common @ common.T, self._holds.sum(1))
        np.fill_diagonal(table, 1.0)
        return table[np.ix_(self._page_of, self._page_of)]

    def likeness(self, ours: slice, theirs: slice) -> np.ndarray:
        """Overlap of the pages of two runs; an element weighs less the more of these pages contain it.

        Args:
          ours, theirs: the steps of each run.

        Returns:
          float [num_our_steps, num_their_steps].
        """
        first, second = np.array(self._page_of[ours], int), np.array(self._page_of[theirs], int)
        pages, places = np.unique(np.concatenate((first, second)), return_inverse=True)
        holds = self._holds[pages]
        held = holds.sum(0)
        # Elements on every page (menus, footers) weigh 0. The root, because a product of two rows squares it.
        holds = holds[:, held > 0] * np.sqrt(1 - held[held > 0] / max(len(pages), 1))
        table = _jaccard(holds @ holds.T, (holds**2).sum(1))
        return table[np.ix_(places[: len(first)], places[len(first) :])]

    def same_text(self) -> np.ndarray:
        """Marks steps that saw the same text, indices aside: bool [num_steps, num_steps]."""
        texts = np.array(self._text_of, int)
        return texts[:, None] == texts[None, :]


def _jaccard(both: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Jaccard overlap from the sizes of intersections [n, n] and of sets [n]."""
    union = sizes[:, None] + sizes[None, :] - both
    # Two pages without any element are equal.
    return np.where(union > 1e-6, both / np.maximum(union, 1e-6), 1.0).astype(float)


def _page(elements: Iterable[LeanElement]) -> list[tuple]:
    """Elements as keys; the nth equal element gets a key of its own, so that sets overlap as multisets do."""
    times: dict[tuple, int] = {}
    page = []
    for item in elements:
        key = (item.tag, item.text, item.index is not None)
        seen = times.get(key, 0)
        times[key] = seen + 1
        page.append((key, seen) if seen else key)
    return page


def memory_similarity(success: ParsedRun, localization: ParsedRun) -> np.ndarray:
    """Similarity of the agents' memories by RapidFuzz's ratio; an unusable reply has an empty memory.

    Returns:
      float [num_success_steps, num_localization_steps] in [0, 1].
    """
    ours, rows = _distinct(_memories(success))
    theirs, columns = _distinct(_memories(localization))
    table = process.cdist(ours, theirs, scorer=fuzz.ratio, dtype=np.float64) / 100.0
    return table[np.ix_(rows, columns)]


def progress_closeness(ours: int, theirs: int) -> np.ndarray:
    """One minus the distance of two steps' progress: float [ours, theirs].

    Progress is the middle of a step as a share of its run. Counted from beginnings or ends, all steps of very
    short runs would be at 0 or 1.

    Args:
      ours, theirs: numbers of steps.
    """
    first = (np.arange(ours) + 0.5) / max(ours, 1)
    second = (np.arange(theirs) + 0.5) / max(theirs, 1)
    return 1.0 - np.abs(first[:, None] - second[None, :])


def _distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The distinct texts, and the number of each given text among them."""
    numbers: dict[str, int] = {}
    places = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), places


def _urls(run: ParsedRun) -> list[str]:
    return [step.step.observation.url for step in run.steps]


def _memories(run: ParsedRun) -> list[str]:
    return [step.reply.memory if step.reply else "" for step in run.steps]


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
