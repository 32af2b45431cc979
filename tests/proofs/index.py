"""The table of all results, `docs/results/index.md`, and the list that `make proofs` prints.

python -m tests.proofs.index          # writes the table
python -m tests.proofs.index --list   # prints all proofs: what each shows, and whether it is fresh
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

from rmsweb_jax.records.files import write_atomic
from tests.proofs.result import RESULTS, described, digest, table

INTRODUCTION = """\
# Results

`make proof-NAME` writes `NAME.json` (figures by name, shares as fractions of 1), and the page `NAME.md` is
made from that file alone. `make proofs` lists all proofs and says which are stale: their code has changed
since they were measured. `make proof-NAME` measures those again, and a fresh one with FORCE=1. This table
is written by `python -m tests.proofs.index`. A commit in brackets is that of an older page whose figures
were taken over.
"""


def proofs() -> dict[str, str]:
    """Names of all proofs with the first line of their docstring."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        if any(isinstance(name, ast.Name) and name.id == "PROOF" for name in names):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def index() -> str:
    """The table: a row for each claim."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_bytes())
        commit = f"({result['commit']})" if result.get("converted") else result["commit"]
        place = described(result["machine"]) or "not recorded"
        for claim in result["claims"]:
            mark = " (does not hold)" if claim["holds"] is False else ""
            words = f"[{result['title']}]({path.stem}.md): {claim['claim']}{mark}"
            rows.append((words, claim["measured"], f"`{result['command']}`", commit, place))
    return f"{INTRODUCTION}\n{table(('claim', 'figure', 'command', 'commit', 'machine'), rows)}\n"


def listed() -> str:
    lines = []
    for name, summary in proofs().items():
        path = RESULTS / f"{name}.json"
        stored = json.loads(path.read_bytes()).get("digest") if path.exists() else None
        state = "not measured" if not path.exists() else "fresh" if stored == digest(name) else "stale"
        lines.append(_line(name, state, summary))
    for path in sorted(Path(__file__).parent.glob("*/__main__.py")):
        package = ast.parse(path.with_name("__init__.py").read_text(encoding="utf-8"))
        summary = (ast.get_docstring(package) or "").partition("\n")[0]
        lines.append(_line(path.parent.name, "prints only", summary))
    return "\n".join(lines)


def _line(name: str, state: str, summary: str) -> str:
    return f"proof-{name.replace('_', '-'):<18} {state:<13} {summary}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of all results.")
    parser.add_argument("--list", action="store_true", help="print all proofs instead")
    if parser.parse_args().list:
        print(listed())
    else:
        write_atomic(RESULTS / "index.md", index().encode())


if __name__ == "__main__":
    main()
