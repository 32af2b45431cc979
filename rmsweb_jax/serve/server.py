"""Runs the server: loads the model, compiles, serves until a signal."""

from __future__ import annotations

import contextlib
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
from rmsweb_jax.decoding.memory import fit_memory
from rmsweb_jax.decoding.sizes import EngineSizes, choose_chunks, device_memory, spare_prompts
from rmsweb_jax.decoding.weights import Layout
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.serve.app import make_app
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.http import base_url, bind, make_http_server, read_host
from rmsweb_jax.signals import StopRequest
from rmsweb_jax.training.mesh import device_bytes, make_mesh


def serve(settings: ServeSettings, workdir: Path) -> None:
    """Loads the model, compiles its programs, and serves until a signal.

    `endpoint.json` in `workdir` holds the address while requests are accepted. SIGTERM and Ctrl-C stop the
    server after it has answered all running requests, or after `drain_seconds`; the file is then removed.

    Raises:
      StoppedError: Ctrl-C has stopped it; other signals are the normal end of a server.
      UserError: settings contradict each other, the model cannot be loaded, or the port is taken.
    """
    endpoint = workdir / "endpoint.json"
    # A killed server may have left it.
    endpoint.unlink(missing_ok=True)
    folder = resolve_model(settings.model)
    settings = settings.model_copy(update={"api_key": read_api_key(settings.api_key_env, settings.host)})
    with contextlib.closing(bind(settings.port, settings.host)) as sock:
        print(f"loading {folder}", flush=True)
        engine, processor, schema = make_engine(settings, folder)
        print("compiling its programs: the server answers when all are ready", flush=True)
        progress = Progress(workdir, "serve", 1)

        def compiled(done: int, total: int) -> None:
            progress.update(done, "compiled", total)
            print(f"compiled {done} of {total}", flush=True)

        engine.engine.warm_up(compiled)
        engine.start()
        with contextlib.closing(engine), StopRequest() as stop:
            # Bound at the start, so that a taken port fails before compiling; listening only now, so that
            # clients are refused until the server is warm.
            sock.listen(1024)
            state = {"url": base_url(sock), "model": settings.names[0], "pid": os.getpid()}
            write_atomic(endpoint, json.dumps(state).encode())
            print(
                f"the server is ready at {state['url']}, model {state['model']!r}; Ctrl-C ends it", flush=True
            )
            app = make_app(engine, processor, settings, schema)
            server = make_http_server(app, settings.read_seconds, settings.drain_seconds, engine.close, stop)
            try:
                server.run(sockets=[sock])
            finally:
                endpoint.unlink(missing_ok=True)
    if stop.cause == "SIGINT":
        raise StoppedError("the requests that the server had taken are answered", stop.cause, continues=False)


# Tokens of each reply that are decoded between two looks at new requests.
_STEPS = 4


def make_engine(settings: ServeSettings, folder: Path) -> tuple[ServingEngine, Processor, Any]:
    """Makes the engine of a model folder, its processor, and the schema of its replies.

    Raises:
      UserError: the folder holds no usable model, or the devices do not divide it.
    """
    schema = bounded_reply_schema() if settings.replies == "agent" else None
    tensor = settings.mesh.tensor
    mesh = None if tensor == 1 else make_mesh(tensor=tensor)
    model = load_model(folder, jnp.dtype(settings.dtype), mesh=mesh)
    processor = Processor.from_pretrained(folder, settings.max_pixels)
    engine = serving_engine(model, processor, settings)
    return ServingEngine(engine, model, settings.max_waiting), processor, schema


def serving_engine(model: Qwen3VL, processor: Processor, settings: ServeSettings) -> Engine:
    """Makes the decoding engine of a server."""
    chunks = settings.chunks or choose_chunks(settings.prompt_tokens, jax.default_backend())
    sizes = EngineSizes(
        lanes=settings.lanes or 1,
        prompts=spare_prompts(settings.lanes or 1, 1),
        prompt_width=round_up(settings.prompt_tokens, chunks[-1]),
        response_width=settings.max_new_tokens,
        samples=settings.samples,
        chunks=chunks,
        images=settings.max_images,
        window=processor.max_pixels // model.config.vision.patch_size**2,
        steps=_STEPS,
    )
    if not settings.lanes:
        memory, held = device_memory(jax.devices()[0]), device_bytes(nnx.state(model))
        sizes = fit_memory(model, sizes, Layout(model.attention), memory, held)
    return Engine(
        model,
        sizes,
        eos=processor.end_id,
        banned=tuple(processor.banned_ids),
        adapters=settings.adapters,
        adapter_rank=settings.adapter_rank,
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
