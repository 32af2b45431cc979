"""What each client's script reports: a line of JSON with its version and what worked. No packages needed."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any

# A schema of bounded length: the policy behind it need not have learned anything.
PICK = {
    "type": "object",
    "properties": {"row": {"type": "integer", "enum": [1, 2, 3]}, "sure": {"type": "boolean"}},
    "required": ["row", "sure"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Pick a row of the table."}]


def run(package: str, checks: dict[str, Callable[[], Any]]) -> None:
    """Runs the checks, each of which returns what to tell, and prints the report."""
    results = []
    for name, check in checks.items():
        try:
            results.append({"check": name, "works": True, "note": str(check())[:200]})
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            results.append({"check": name, "works": False, "note": f"{type(error).__name__}: {error}"[:400]})
    print(
        "REPORT " + json.dumps({"client": package, "version": metadata.version(package), "checks": results})
    )


def is_pick(value: Any) -> None:
    """Raises AssertionError unless a value follows `PICK`."""
    assert set(value) == {"row", "sure"} and value["row"] in (1, 2, 3) and isinstance(value["sure"], bool), (
        value
    )
