"""A few groups of rollouts of each fate, to read: what was asked for, what came, and what it was worth."""

from __future__ import annotations

import dataclasses
from typing import Any

from collection.report.sources import RunFolder

# What the gates said of a group -> what that is called for people.
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
      responses: each with `text`, `reward`, `field` (which decided it), `truncated`, `log_prob` (of the
        sampling policy, a token).
    """

    step: int
    prompt_id: str
    category: str
    target: str
    responses: tuple[dict[str, Any], ...]


def shown_groups(run: RunFolder) -> dict[str, list[ShownGroup]]:
    """Up to four groups of each fate, spread over the training; fates that none met are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in run.groups():
        found.setdefault(row["fate"], []).append(row)
    shown = {}
    for fate in FATES:
        rows = found.get(fate, [])
        count = min(_EACH, len(rows))
        # The first and the last are among them.
        places = [index * (len(rows) - 1) // max(count - 1, 1) for index in range(count)]
        if rows:
            shown[fate] = [_shown(rows[place]) for place in places]
    return shown


def _shown(row: dict[str, Any]) -> ShownGroup:
    responses = sorted(row["responses"], key=lambda one: -one["reward"])
    return ShownGroup(row["step"], row["prompt_id"], row["category"], row["target"], tuple(responses))
