"""The command `rmsweb`: runs a stage by its name; `rmsweb --help` lists them."""

from __future__ import annotations

import ast
import difflib
import runpy
import sys
from pathlib import Path

from rmsweb_jax.signals import end_at_once

# In the order in which a user needs them; others follow by name.
_ORDER = (
    *(
        "demo",
        "make_tasks",
        "collect",
        "import_runs",
        "build_sft",
        "train_sft",
        "mine",
        "train_rl",
        "evaluate",
    ),
    *("report", "view", "serve", "merge", "export"),
)


def stages() -> dict[str, str]:
    """Returns the scripts, each with the first line of its description, without importing them."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text()
        if path != Path(__file__) and '\nif __name__ == "__main__":' in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return {name: found[name] for name in _ORDER} | found


def main() -> None:
    known, given = stages(), sys.argv[1:]
    if not given or given[0] in ("--help", "-help", "-h", "help"):
        print("rmsweb STAGE --config=configs/FILE.py:VARIANT --config.KEY=VALUE --workdir=FOLDER\n\nStages:")
        print("\n".join(f"  {name:<16}{line}" for name, line in known.items()))
        print("\nrmsweb STAGE --help says what a stage takes. The same command again resumes.")
        return
    if given[0] not in known:
        close = difflib.get_close_matches(given[0], known, 1)
        hint = f"did you mean {close[0]}?" if close else "see rmsweb --help"
        print(f"error: no stage {given[0]!r}: {hint}", file=sys.stderr)
        sys.exit(2)
    # As `python -m` does: from here on Ctrl-C is one line.
    end_at_once()
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(f"experiments.{given[0]}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
