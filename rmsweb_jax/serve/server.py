"""Runs the server: loads the model, compiles, serves until a signal."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rmsweb_jax.actions.json_schema import bounded_reply_schema
from rmsweb_jax.data.batching import round_up
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.sizes import (
    EngineSizes,
    choose_chunks,
    device_memory,
    fit_sizes,
    spare_prompts,
    token_bytes,
)
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.serve.app import base_url, bind, make_app, read_host, run_server
from rmsweb_jax.serve.config import EngineConfig, ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.training.memory import device_bytes
from rmsweb_jax.training.mesh import make_mesh


def serve(settings: ServeSettings, workdir: Path) -> None:
    """Loads the model, compiles its programs, and serves until a signal.

    `endpoint.json` in `workdir` holds the address while requests are accepted. SIGTERM and Ctrl-C stop the
    server after it has answered all running requests; the file is then removed.

    Raises:
      UserError: settings contradict each other, the model cannot be loaded, or the port is taken.
    """
    endpoint = workdir / "endpoint.json"
    # A killed server may have left it.
    endpoint.unlink(missing_ok=True)
    folder = resolve_model(settings.model)
    settings = dataclasses.replace(settings, api_key=read_api_key(settings.api_key_env, settings.host))
    with contextlib.closing(bind(settings.port, settings.host)) as sock:
        engine, processor, schema = make_engine(settings, folder)
        progress = Progress(workdir, "serve", 1)
        engine.engine.warm_up(lambda done, total: progress.update(done, "compiled", total))
        engine.start()
        with contextlib.closing(engine):
            # Bound at the start, so that a taken port fails before compiling; listening only now, so that
            # clients are refused until the server is warm.
            sock.listen(128)
            url = base_url(sock)
            state = {"url": url, "model": settings.names[0], "pid": os.getpid()}
            write_atomic(endpoint, json.dumps(state).encode())
            try:
                # A signal is the normal end of a server.
                with contextlib.suppress(KeyboardInterrupt):
                    app = make_app(engine, processor, settings, schema)
                    run_server(app, sock, settings.drain_seconds, settings.read_seconds)
            finally:
                endpoint.unlink(missing_ok=True)


def make_engine(settings: ServeSettings, folder: Path) -> tuple[ServingEngine, Processor, Any]:
    """Makes the engine of a model folder, its processor, and the schema of its replies.

    Raises:
      UserError: the folder holds no usable model, or the devices do not divide it.
    """
    schema = None
    if settings.replies == "agent":
        schema = bounded_reply_schema(
            max_actions=settings.max_reply_actions, max_chars=settings.max_reply_chars
        )
    dtype = jnp.dtype(settings.dtype)
    tensor = settings.mesh.tensor
    mesh = None if tensor == 1 else make_mesh(tensor=tensor)
    model = load_model(folder, dtype, mesh=mesh)
    processor = Processor.from_pretrained(folder, settings.max_pixels)
    return (
        ServingEngine(serving_engine(model, processor, settings), model, settings.max_waiting),
        processor,
        schema,
    )


def serving_engine(model: Qwen3VL, processor: Processor, config: EngineConfig) -> Engine:
    """Makes the decoding engine of a server."""
    chunks = config.chunks or choose_chunks(config.prompt_tokens, jax.default_backend())
    vision = model.config.vision
    sizes = EngineSizes(
        lanes=config.lanes or 1,
        prompts=spare_prompts(config.lanes or 1, 1),
        prompt_width=round_up(config.prompt_tokens, chunks[-1]),
        response_width=config.max_new_tokens,
        samples=config.samples,
        chunks=chunks,
        images=config.max_images,
        window=processor.max_pixels // vision.patch_size**2,
        steps=config.steps,
    )
    if not config.lanes:
        memory = device_memory(jax.devices()[0])
        free = None if memory is None else int(0.9 * memory) - 2 * device_bytes(nnx.state(model))
        each = token_bytes(model.config.text, str(jnp.dtype(model.dtype)), "model")
        sizes = fit_sizes(
            sizes, each, free, 1, 1 if model.attention.mesh is None else model.attention.mesh.size
        )
    return Engine(
        model,
        sizes,
        eos=processor.end_id,
        banned=tuple(processor.banned_ids),
        adapters=config.adapters,
        adapter_rank=config.adapter_rank,
        serving=True,
    )


def read_api_key(name: str, host: str) -> str:
    """Reads the API key from an environment variable; "" if none is named.

    Raises:
      UserError: the variable is not set, or other machines could send requests without a key.
    """
    if name and not os.environ.get(name):
        raise UserError(f"config.api_key_env={name}: not set; export {name}=KEY")
    if not name and not read_host(host).is_loopback:
        raise UserError(
            f"config.host={host} lets other machines in: name a variable with a key in config.api_key_env"
        )
    return os.environ[name] if name else ""
