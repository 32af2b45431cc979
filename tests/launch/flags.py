"""Parses command lines of scripts, checks their settings and stops.

python -m tests.launch.flags < LINES, a JSON list of lists SCRIPT, --FLAG=VALUE, ...

Prints a JSON list of the exit code and the output of each. The scripts' imports take seconds, once for all.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile

from experiments import cli
from rmsweb_jax.settings import Settings


def check(arguments: list[str]) -> None:
    script, *sys.argv[1:] = arguments
    if not any(one.startswith("--workdir") for one in sys.argv):
        sys.argv.append("--workdir=nowhere")

    def start(main: object, settings: Settings, *_: object) -> None:
        print(type(settings).__name__)

    cli.start = start
    runpy.run_module(script, run_name="__main__")


def main() -> None:
    found = []
    for arguments in json.load(sys.stdin):
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
