"""Scripts: a stage of the recipe each, run as `python -m experiments.NAME`."""

from __future__ import annotations

import sys
from types import TracebackType

from rmsweb_jax.errors import missing_extra
from rmsweb_jax.signals import end_at_once

# The name of a script that Python still looks for: from here on, also during its imports, Ctrl-C is one line.
if sys.argv[0] == "-m":
    end_at_once()


def _report_missing_extra(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if isinstance(error, ModuleNotFoundError) and (message := missing_extra(error)):
        print(f"error: {message}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)


# A script imports its packages before any code of its own runs.
sys.excepthook = _report_missing_extra
