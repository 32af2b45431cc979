"""The policy behind POST /v1/chat/completions, for anything that speaks that protocol."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.engine import Completion, Engine, EngineStoppedError
from rmsweb_jax.serve.protocol import BadRequestError, error_body, parse_request

MAX_BODY_BYTES = 32 * 2**20


def make_app(engine: Engine, model_name: str) -> Starlette:
    """Routes of the server.

    Args:
      engine: started; its replies are what is served.
      model_name: what the server calls its model; requests for another one get 404.
    """

    async def chat(request: Request) -> Response:
        body = await _read_body(request)
        asked = parse_request(body)
        if asked.model not in (None, model_name):
            message = f"model {asked.model!r} is not served here, {model_name!r} is"
            return JSONResponse(error_body(message, "invalid_request_error", "model"), 404)
        # Decoding and resizing images would hold up every other request on the event loop.
        prepared = await asyncio.to_thread(engine.prepare, asked)
        completions = await asyncio.wrap_future(engine.submit(prepared))
        return JSONResponse(_response_body(model_name, len(prepared.prompt.tokens), completions))

    async def health(_: Request) -> Response:
        status = {"status": "ok" if engine.alive else "stopped", "model": model_name, "served": engine.served}
        return JSONResponse(status, 200 if engine.alive else 503)

    async def models(_: Request) -> Response:
        entry = {"id": model_name, "object": "model", "created": 0, "owned_by": "rmsweb-jax"}
        return JSONResponse({"object": "list", "data": [entry]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
        ],
        exception_handlers={BadRequestError: _refuse, EngineStoppedError: _unavailable},
    )


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


def _response_body(model_name: str, prompt_tokens: int, completions: list[Completion]) -> dict[str, Any]:
    response_tokens = sum(completion.tokens for completion in completions)
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model_name,
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": completion.text},
                "finish_reason": completion.finish_reason,
                "logprobs": None,
            }
            for index, completion in enumerate(completions)
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": response_tokens,
            "total_tokens": prompt_tokens + response_tokens,
        },
    }
