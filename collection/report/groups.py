"""Selects a few rollout groups of each fate for display: target, replies and rewards."""

from __future__ import annotations

import dataclasses
from typing import Any

from collection.report.sources import RunFolder

# Decision of the gates on a group -> its display name.
FATES = {
    "accepted": "Accepted",
    "solved": "No contrast: solved",
    "unsolved": "No contrast: unsolved",
    "incompetent": "Competence gate",
}
_EACH = 4


@dataclasses.dataclass(frozen=True)
class ShownGroup:
    """The replies to one prompt, best first.

    Attributes:
      responses: each with `text`, `reward`, `field` (that decided the reward), `truncated` and `log_prob`
        (of the sampling policy, per token).
    """

    step: int
    prompt_id: str
    category: str
    target: str
    responses: tuple[dict[str, Any], ...]


def shown_groups(run: RunFolder) -> dict[str, list[ShownGroup]]:
    """Returns up to four groups of each fate, evenly spaced over the training; empty fates are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in run.groups():
        found.setdefault(row["fate"], []).append(row)
    shown = {}
    for fate in FATES:
        rows = found.get(fate, [])
        count = min(_EACH, len(rows))
        # Evenly spaced, including the first and the last.
        places = [index * (len(rows) - 1) // max(count - 1, 1) for index in range(count)]
        if rows:
            shown[fate] = [_shown(rows[place]) for place in places]
    return shown


def _shown(row: dict[str, Any]) -> ShownGroup:
    responses = sorted(row["responses"], key=lambda one: -one["reward"])
    return ShownGroup(row["step"], row["prompt_id"], row["category"], row["target"], tuple(responses))
