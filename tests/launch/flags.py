"""Parses a script's command line, checks its settings and stops.

python -m tests.launch.flags SCRIPT --FLAG=VALUE...
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.settings import from_config
from tests.test_house import SETTINGS


def main() -> None:
    script = sys.argv.pop(1)
    config = next(flag for flag in sys.argv if flag.startswith("--config="))
    file, _, variant = config.removeprefix("--config=").partition(":")
    settings = SETTINGS[Path(file).stem](variant)
    parse = cli.run_config

    def check(main: Callable[[ConfigDict], None], config: str) -> None:
        # Also refuses a config in which a required setting is missing.
        parse(lambda values: print(type(from_config(settings, values)).__name__), config)

    cli.run_config = check
    runpy.run_module(script, run_name="__main__")


if __name__ == "__main__":
    main()
