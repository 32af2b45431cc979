"""Runs the modules of this package that the command line names, or all.

python -m tests.proofs.first_contact [MODULE ...]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

MODULES = tuple(
    sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
)


def main(names: list[str]) -> None:
    """Runs modules one after the other; all run, also after one that fails.

    Raises:
      SystemExit: there is no such module, or what one shows does not hold.
    """
    if unknown := set(names) - set(MODULES):
        raise SystemExit(f"error: no module {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    failed = []
    for name in names or MODULES:
        try:
            importlib.import_module(f"{__package__}.{name}").main()
        except AssertionError as error:
            failed.append(f"{name}: {error}")
    if failed:
        raise SystemExit(f"error: does not hold: {'; '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
