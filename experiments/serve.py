"""Serves a policy: POST /v1/chat/completions, GET /v1/models, GET /health.

    python -m experiments.serve --config=configs/serve.py:demo --config.model=tiny_base --workdir=/tmp/serve

When requests can be sent, `endpoint.json` in the workdir holds the address; it is gone when the
server has ended, which SIGTERM and Ctrl-C make it do after the requests in progress.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.serve.app import bind, make_app, run_server
from rmsweb_jax.serve.engine import Engine, EngineConfig

SAFE_KEYS = (
    "model",
    "port",
    "batch_sizes",
    "prompt_widths",
    "max_new_tokens",
    "max_images",
    "warm_widths",
    "allow_adapters",
    "dtype",
    "max_pixels",
)


def main(config: ConfigDict, workdir: Path) -> None:
    """Loads, compiles, serves until a signal."""
    settings = config.to_dict()
    if not settings["model"]:
        raise UserError("config.model is empty: give --config.model=DIR (a model folder) or tiny_base")
    endpoint = workdir / "endpoint.json"
    endpoint.unlink(missing_ok=True)
    folder = resolve_model(settings["model"])
    with contextlib.closing(bind(settings["port"])) as sock:
        engine = make_engine(settings, folder)
        progress = Progress(workdir, "serve", 1)
        engine.warm_up(lambda done, total: progress.update(done, "compiled", total))
        engine.start()
        with contextlib.closing(engine):
            sock.listen(128)
            url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
            state = {"url": url, "model": settings["model"], "pid": os.getpid()}
            write_atomic(endpoint, json.dumps(state).encode())
            try:
                # A signal is how a server is meant to end.
                with contextlib.suppress(KeyboardInterrupt):
                    run_server(make_app(engine, settings["model"], settings["allow_adapters"]), sock)
            finally:
                endpoint.unlink(missing_ok=True)


def make_engine(settings: dict[str, Any], folder: Path) -> Engine:
    """The engine of a model folder, neither warm nor started.

    Raises:
      UserError: the folder holds no usable model, or the shapes make no sense.
    """
    shapes = EngineConfig(
        batch_sizes=tuple(settings["batch_sizes"]),
        prompt_widths=tuple(settings["prompt_widths"]),
        max_new_tokens=settings["max_new_tokens"],
        max_images=settings["max_images"],
        warm_widths=settings["warm_widths"],
    )
    model = load_model(folder, jnp.dtype(settings["dtype"]))
    return Engine(model, Processor.from_pretrained(folder, settings["max_pixels"]), shapes)


if __name__ == "__main__":
    cli.run(main, "configs/serve.py:demo", SAFE_KEYS)
