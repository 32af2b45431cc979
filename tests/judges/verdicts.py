"""Answers of judges."""

from __future__ import annotations

import json
from typing import Any

REASON = "The request asks for the price of a lamp below 20 EUR. The page shows 12 EUR."


def outcome(word: Any, reason: Any = REASON, **changes: Any) -> str:
    """An answer of the outcome judge."""
    return json.dumps({"reason": reason, "outcome": word} | changes, ensure_ascii=False)


def rubric_answer(*points: Any, outcome: Any = "success", **changes: Any) -> dict[str, Any]:
    """An answer to `tests.judges.runs.RUBRIC`; the third criterion applies where it is given points."""
    earned = points or (3, 1)
    criteria = [
        {
            "number": number,
            "reason": "as shown",
            "applies": number <= len(earned),
            "points": earned[number - 1] if number <= len(earned) else 0,
        }
        for number in (1, 2, 3)
    ]
    return {"criteria": criteria, "reason": "all is there", "outcome": outcome} | changes
