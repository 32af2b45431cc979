"""Files of one record a line, where a bad line is told and the rest goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from rmsweb_jax.errors import UserError

T = TypeVar("T")
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class BadLine:
    """A line that was passed over; `number` is 1-based."""

    number: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Lines(Generic[T]):
    """What a file holds: its good lines in order, each with its number, and the others."""

    good: tuple[tuple[int, T], ...]
    bad: tuple[BadLine, ...]

    def warning(self, path: Path) -> str:
        """The bad lines on one line, for people; empty when there are none."""
        if not self.bad:
            return ""
        first = "; ".join(f"line {one.number}: {one.reason}" for one in self.bad[:_SHOWN])
        more = f"; and {len(self.bad) - _SHOWN} more" if len(self.bad) > _SHOWN else ""
        return f"{path}: {len(self.bad)} malformed lines are left out: {first}{more}"


def read_lines(path: Path, parse: Callable[[str], T], what: str) -> Lines[T]:
    """Parses each line that is not blank.

    Args:
      parse: raises ValueError (or pydantic's error) for a bad line.
      what: the records, for errors.

    Raises:
      UserError: the file cannot be read, or has no good line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give a file of {what}") from error
    good, bad = [], []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            good.append((number, parse(line.decode().strip())))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            bad.append(BadLine(number, _short(f"{where}: {first['msg']}" if where else first["msg"])))
        except UnicodeDecodeError as error:
            bad.append(BadLine(number, f"not UTF-8 at byte {error.start + 1}"))
        except ValueError as error:
            bad.append(BadLine(number, _short(str(error))))
    lines = Lines(tuple(good), tuple(bad))
    if not good:
        reason = lines.warning(path) or f"{path}: empty"
        raise UserError(f"{reason}; nothing is left: give a file of {what}")
    return lines


def _short(text: str) -> str:
    return " ".join(text.split())[:160]
