"""Serves a policy: POST /v1/chat/completions and /v1/responses, GET /v1/models, /health and /metrics.

    python -m experiments.serve --config=configs/serve.py:demo --config.model=tiny_base --workdir=/tmp/serve

When requests can be sent, `endpoint.json` in the workdir holds the address; it is gone when the
server has ended, which SIGTERM and Ctrl-C make it do after all requests that it has taken.
"""

from __future__ import annotations

from pathlib import Path

from experiments import cli
from rmsweb_jax.serve.config import ServeSettings


def main(settings: ServeSettings, workdir: Path) -> None:
    from rmsweb_jax.serve.server import serve  # It imports jax.

    serve(settings, workdir)


if __name__ == "__main__":
    # A server leaves nothing behind that another start could contradict.
    cli.run(main, "configs/serve.py:demo", ServeSettings, free=True, uses_jax=True)
