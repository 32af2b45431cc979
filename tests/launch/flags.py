"""Parses command lines of scripts, checks their settings and stops.

python -m tests.launch.flags < LINES, a JSON list of lists SCRIPT, --FLAG=VALUE, ...

Prints a JSON list of the exit code and the output of each. The scripts' imports take seconds, once for all.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app

from experiments import cli
from rmsweb_jax.settings import Settings


def check(arguments: list[str]) -> None:
    script, *sys.argv[1:] = arguments
    spec = importlib.util.find_spec(script)
    assert spec is not None and spec.origin is not None

    def start(main: object, settings: Settings, *_: object) -> None:
        print(type(settings).__name__)

    def parse(main: object, argv: Sequence[str] = sys.argv, *, flags_parser: Callable[..., object]) -> None:
        flags_parser(argv)

    if "cli.run(" in Path(spec.origin).read_text():
        cli.start = start
        if not any(one.startswith("--workdir") for one in sys.argv):
            sys.argv.append("--workdir=nowhere")
    else:  # One with flags alone, or whose settings are those of another.
        app.run = parse
    runpy.run_module(script, run_name="__main__")


def main() -> None:
    found, lines = [], json.load(sys.stdin)
    # What the scripts import, once for all of them; they themselves define flags of the same names.
    for script in {script for script, *_ in lines}:
        spec = importlib.util.find_spec(script)
        for node in ast.parse(Path(spec.origin).read_text()).body if spec and spec.origin else ():
            if isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__"):
                importlib.import_module(str(node.module))
    for arguments in lines:
        # A process each, since the scripts define flags of the same names.
        with tempfile.TemporaryFile() as output:
            if not (child := os.fork()):
                for number in (1, 2):
                    os.dup2(output.fileno(), number)
                code = 1
                try:
                    check(arguments)
                    code = 0
                except SystemExit as error:
                    code = error.code if isinstance(error.code, int) else int(error.code is not None)
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            found.append((code, output.read().decode()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
