"""Readable differences between two records."""

from __future__ import annotations

from typing import Any


def first_difference(one: Any, other: Any) -> str:
    """First difference between two trees, as readable text."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in one if one[key] != other.get(key)]
        return f".{keys[0]}" + first_difference(one[keys[0]], other.get(keys[0])) if keys else ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        place = next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"[{place}]" + first_difference(one[place], other[place])
    return f": {str(one)[:200]!r} | {str(other)[:200]!r}"
