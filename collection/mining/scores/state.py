"""S_state: do the two branches stand at comparable states?"""

from __future__ import annotations

from collections import Counter

import numpy as np
from rapidfuzz import fuzz, process

from collection.mining.branch import Branch
from rmsweb_jax.actions.similarity import parse_url

URL_WEIGHT, DOM_WEIGHT, MEMORY_WEIGHT, PROGRESS_WEIGHT = 0.30, 0.40, 0.15, 0.15
_SAME_PAGE = 0.8


def state_scores(success: Branch, localization: Branch) -> dict[str, np.ndarray]:
    """`state` and its parts `url`, `dom`, `memory`, `progress`.

    Returns:
      float arrays [num_success_steps, num_localization_steps] in [0, 1].
    """
    parts = {
        "url": url_similarity(_urls(success), _urls(localization)),
        "dom": dom_overlap(success, localization),
        "memory": memory_similarity(success, localization),
        "progress": progress_closeness(len(success), len(localization)),
    }
    weights = {"url": URL_WEIGHT, "dom": DOM_WEIGHT, "memory": MEMORY_WEIGHT, "progress": PROGRESS_WEIGHT}
    return {"state": sum((weights[name] * part for name, part in parts.items()), np.zeros(()))} | parts


def url_similarity(first: list[str], second: list[str]) -> np.ndarray:
    """1 for equal addresses, 0.8 for the same host and path, else the shared part of the path (same host)."""
    return np.array([[_compare_urls(one, other) for other in second] for one in first], float).reshape(
        len(first), len(second)
    )


def dom_overlap(success: Branch, localization: Branch) -> np.ndarray:
    """Jaccard overlap of the multisets of visible elements.

    An element is its tag, its text, and whether it can be acted on: under a dialog or a cover the
    same elements are another state.
    """
    pages = [
        Counter((item.tag, item.text, item.index is not None) for item in step.step.observation.elements)
        for step in (*success.steps, *localization.steps)
    ]
    column = {key: number for number, key in enumerate({key for page in pages for key in page})}
    counts = np.zeros((len(pages), max(len(column), 1)), np.int32)
    for row, page in zip(counts, pages, strict=True):
        for key, count in page.items():
            row[column[key]] = count
    ours, theirs = counts[: len(success)], counts[len(success) :]
    shared = np.array([np.minimum(row, theirs).sum(1) for row in ours]).reshape(len(ours), len(theirs))
    union = ours.sum(1)[:, None] + theirs.sum(1)[None, :] - shared
    # Two pages without any element are equally empty.
    return np.where(union > 0, shared / np.maximum(union, 1), 1.0)


def memory_similarity(success: Branch, localization: Branch) -> np.ndarray:
    """How alike what the agents remember is; an unusable reply remembers nothing."""
    ours, theirs = _memories(success), _memories(localization)
    return process.cdist(ours, theirs, scorer=fuzz.ratio, dtype=np.float64) / 100.0


def progress_closeness(ours: int, theirs: int) -> np.ndarray:
    """One minus the distance between the positions, each the middle of its step as a share of the run.

    Middles, since the ends of very short runs would all lie at 0 or 1.
    """
    first = (np.arange(ours) + 0.5) / max(ours, 1)
    second = (np.arange(theirs) + 0.5) / max(theirs, 1)
    return 1.0 - np.abs(first[:, None] - second[None, :])


def _urls(branch: Branch) -> list[str]:
    return [step.step.observation.url for step in branch.steps]


def _memories(branch: Branch) -> list[str]:
    return [step.reply.memory if step.reply else "" for step in branch.steps]


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
