"""The policy behind POST /v1/chat/completions, for anything that speaks that protocol."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.engine import Completion, Engine, EngineStoppedError, Prepared, UnknownPolicyError
from rmsweb_jax.serve.policies import BASE
from rmsweb_jax.serve.protocol import (
    BadRequestError,
    ChatRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
    error_body,
    parse_body,
    parse_request,
)

MAX_BODY_BYTES = 32 * 2**20


def make_app(engine: Engine, model_name: str, allow_adapters: bool = False) -> Starlette:
    """Routes of the server.

    Args:
      engine: started; its replies are what is served.
      model_name: what the server calls its model; requests for neither it nor loaded adapters get 404.
      allow_adapters: whether clients may load and unload adapters, as with vLLM's runtime updating.
    """

    async def chat(request: Request) -> Response:
        asked = parse_request(await _read_body(request))
        name = asked.model or model_name
        # Decoding and resizing images would hold up every other request on the event loop.
        prepared = await asyncio.to_thread(engine.prepare, asked)
        future = engine.submit(prepared, BASE if name == model_name else name)
        completions = await asyncio.wrap_future(future)
        return JSONResponse(_response_body(engine, asked, name, prepared, completions))

    async def health(_: Request) -> Response:
        status = {"status": "ok" if engine.alive else "stopped", "model": model_name, "served": engine.served}
        return JSONResponse(status, 200 if engine.alive else 503)

    async def models(_: Request) -> Response:
        entries = [{"id": name, "parent": model_name} for name in engine.policies.names()]
        common = {"object": "model", "created": 0, "owned_by": "rmsweb-jax"}
        data = [common | entry for entry in [{"id": model_name, "parent": None}, *entries]]
        return JSONResponse({"object": "list", "data": data})

    async def load(request: Request) -> Response:
        asked = parse_body(LoadAdapterRequest, await _read_body(request))
        if asked.lora_name == model_name:
            raise BadRequestError(f"lora_name: {model_name!r} is the model itself", "lora_name")
        await asyncio.to_thread(engine.policies.load, asked.lora_name, Path(asked.lora_path))
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def unload(request: Request) -> Response:
        asked = parse_body(UnloadAdapterRequest, await _read_body(request))
        engine.policies.unload(asked.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' removed successfully.")

    async def unknown(_: Request, error: Exception) -> Response:
        served = ", ".join(map(repr, [model_name, *engine.policies.names()]))
        message = f"model {str(error)!r} is not served here, only {served}"
        return JSONResponse(error_body(message, "invalid_request_error", "model"), 404)

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
    ]
    if allow_adapters:
        routes += [
            Route("/v1/load_lora_adapter", load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", unload, methods=["POST"]),
        ]
    handlers = {BadRequestError: _refuse, EngineStoppedError: _unavailable, UnknownPolicyError: unknown}
    return Starlette(routes=routes, exception_handlers=handlers)


def bind(port: int) -> socket.socket:
    """A socket on loopback that does not listen yet; port 0 takes any free one.

    Raises:
      UserError: the port is taken.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError as error:
        sock.close()
        raise UserError(
            f"port {port} on 127.0.0.1: {error.strerror}; free it or use --config.port=0"
        ) from None
    return sock


def run_server(app: Starlette, sock: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT; requests in progress get five seconds to be answered.

    Raises:
      KeyboardInterrupt: after shutdown, when a signal ended it and Python's own handlers are in place.
    """
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=5
    )
    uvicorn.Server(config).run(sockets=[sock])


async def _read_body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BadRequestError(f"body: more than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _refuse(_: Request, error: Exception) -> Response:
    param = error.param if isinstance(error, BadRequestError) else None
    return JSONResponse(error_body(str(error), "invalid_request_error", param), 400)


async def _unavailable(_: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), "server_error"), 503)


def _response_body(
    engine: Engine, asked: ChatRequest, model_name: str, prepared: Prepared, completions: list[Completion]
) -> dict[str, Any]:
    prompt_tokens = len(prepared.prompt.tokens)
    response_tokens = sum(len(completion.tokens) for completion in completions)
    body = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model_name,
        "choices": [
            {"index": index, **_choice(engine, asked, completion)}
            for index, completion in enumerate(completions)
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": response_tokens,
            "total_tokens": prompt_tokens + response_tokens,
        },
    }
    if asked.return_token_ids:
        body["prompt_token_ids"] = prepared.prompt.tokens.tolist()
    return body


def _choice(engine: Engine, asked: ChatRequest, completion: Completion) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "message": {"role": "assistant", "content": completion.text},
        "finish_reason": completion.finish_reason,
        "logprobs": None,
    }
    if asked.logprobs:
        texts = engine.token_texts(completion.tokens)
        pairs = zip(texts, completion.log_probs, strict=True)
        content = [
            {"token": text, "logprob": value, "bytes": None, "top_logprobs": []} for text, value in pairs
        ]
        choice["logprobs"] = {"content": content}
    if asked.return_token_ids:
        choice["token_ids"] = list(completion.tokens)
    return choice
