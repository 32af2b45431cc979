"""Starts the server of a model folder.

    python -m rmsweb_jax.serve --model=runs/rl/export --workdir=runs/serve --settings='{"port": 8000}'

`--settings` holds keys of `rmsweb_jax.serve.config.ServeSettings` as JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.signals import end_at_once


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rmsweb_jax.serve", description="Starts the server.")
    parser.add_argument("--model", required=True, help='model folder, or "tiny_base"')
    parser.add_argument("--workdir", required=True, type=Path, help="gets endpoint.json and progress.json")
    parser.add_argument("--settings", default="{}", help="JSON with keys of ServeSettings")
    arguments = parser.parse_args()
    with user_errors():
        end_at_once()
        # Imported here, so that a package that is not installed ends in one line.
        from rmsweb_jax.serve.config import ServeSettings
        from rmsweb_jax.serve.server import serve
        from rmsweb_jax.settings import from_config

        try:
            values = dict(json.loads(arguments.settings))
        except (TypeError, ValueError) as error:
            raise UserError(f"--settings: not a JSON object ({error})") from error
        arguments.workdir.mkdir(parents=True, exist_ok=True)
        serve(from_config(ServeSettings, values | {"model": arguments.model}), arguments.workdir)


if __name__ == "__main__":
    main()
