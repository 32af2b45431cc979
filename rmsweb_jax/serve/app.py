"""An OpenAI-compatible HTTP server: POST /v1/chat/completions, adapters, health and metrics."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import socket
import time
import uuid
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.adapters import BASE
from rmsweb_jax.serve.batch import Completion, PendingRequest, TokenizedRequest
from rmsweb_jax.serve.config import AppConfig
from rmsweb_jax.serve.engine import EngineStoppedError, OverloadedError, ServingEngine, UnknownPolicyError
from rmsweb_jax.serve.grammar import GrammarError
from rmsweb_jax.serve.protocol import (
    BadRequestError,
    ChatRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
    error_body,
    parse_body,
    parse_request,
)

# nginx's status for a client that closed its connection. Only our own counters see it.
_CLIENT_GONE = 499
_RETRY_AFTER_S = "1"


class TooLargeError(Exception):
    """The request body exceeds the size limit."""


class ClientGoneError(Exception):
    """The client closed its connection before the response was ready."""


def make_app(engine: ServingEngine, config: AppConfig) -> Starlette:
    """Builds the ASGI application.

    Args:
      engine: must be started.
    """
    model_name = config.model

    async def read(request: Request) -> bytes:
        return await _read_body(request, config)

    async def chat(request: Request) -> Response:
        chat_request = parse_request(await read(request))
        name = chat_request.model or model_name
        # Decoding and resizing images would block the event loop, so it runs in a thread.
        prepared = await asyncio.to_thread(engine.prepare, chat_request)
        pending = engine.submit(prepared, BASE if name == model_name else name)
        try:
            completions = await _unless_gone(request, pending)
        except ClientGoneError:
            engine.metrics.cancelled()
            raise
        return JSONResponse(_response_body(engine, chat_request, name, prepared, completions))

    async def health(_: Request) -> Response:
        status = {"status": "ok" if engine.alive else "stopped", "model": model_name}
        return JSONResponse(status, 200 if engine.alive else 503)

    async def metrics(_: Request) -> Response:
        return Response(engine.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(_: Request) -> Response:
        entries = [{"id": name, "parent": model_name} for name in engine.adapters.names()]
        common = {"object": "model", "created": 0, "owned_by": "rmsweb-jax"}
        data = [common | entry for entry in [{"id": model_name, "parent": None}, *entries]]
        return JSONResponse({"object": "list", "data": data})

    async def load(request: Request) -> Response:
        chat_request = parse_body(LoadAdapterRequest, await read(request))
        if chat_request.lora_name == model_name:
            raise BadRequestError(f"lora_name: {model_name!r} is the model itself", "lora_name")
        await asyncio.to_thread(engine.adapters.load, chat_request.lora_name, Path(chat_request.lora_path))
        return PlainTextResponse(f"Success: LoRA adapter '{chat_request.lora_name}' added successfully.")

    async def unload(request: Request) -> Response:
        chat_request = parse_body(UnloadAdapterRequest, await read(request))
        engine.unload(chat_request.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{chat_request.lora_name}' removed successfully.")

    async def unknown(_: Request, error: Exception) -> Response:
        served = ", ".join(map(repr, [model_name, *engine.adapters.names()]))
        message = f"model {str(error)!r} is not served here, only {served}"
        return JSONResponse(error_body(message, "invalid_request_error", "model"), 404)

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    if config.allow_adapters:
        routes += [
            Route("/v1/load_lora_adapter", load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", unload, methods=["POST"]),
        ]
    handlers = {
        BadRequestError: _refuse,
        TooLargeError: _too_large,
        ClientGoneError: _gone,
        EngineStoppedError: _unavailable,
        OverloadedError: _unavailable,
        GrammarError: _failed,
        UnknownPolicyError: unknown,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.add_middleware(AuthMiddleware, engine=engine, api_key=config.api_key)
    return app


class AuthMiddleware:
    """ASGI middleware that checks the API key and counts response statuses of chat requests."""

    def __init__(self, app: ASGIApp, engine: ServingEngine, api_key: str):
        self._app, self._engine = app, engine
        self._expected = f"Bearer {api_key}".encode() if api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Health checks and metrics need no key: they reveal no prompts and are read by monitoring.
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["path"] == "/v1/chat/completions":
                self._engine.metrics.answered(message["status"])
            await send(message)

        given = dict(scope["headers"]).get(b"authorization", b"")
        # Constant-time comparison: response times must not reveal how much of a guess was right.
        if self._expected and not hmac.compare_digest(given, self._expected):
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            refusal = JSONResponse(error_body(message, "authentication_error"), 401)
            await refusal(scope, receive, counted)
        else:
            await self._app(scope, receive, counted)


async def _unless_gone(request: Request, pending: PendingRequest) -> list[Completion]:
    """Waits for the completions; cancels the request when its client disconnects.

    Raises:
      ClientGoneError: the client disconnected.
    """
    # Decoding for a client that has gone would keep a slot from others.
    answer = asyncio.wrap_future(pending.future)
    # The body has been read, so the next message can only be a disconnect.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGoneError
        return answer.result()
    finally:
        gone.cancel()
        if not answer.done():
            pending.cancel()


async def _read_body(request: Request, config: AppConfig) -> bytes:
    limit = int(config.max_body_mb * 2**20)
    # A declared size is checked before anything is read.
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise TooLargeError(f"body: {announced} bytes exceed the limit of {limit}")
    # A chunked body has no declared size, and a declared one may be wrong.
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(f"body: exceeds the limit of {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _too_large(_: Request, error: Exception) -> Response:
    # The rest of the body stays unread, so the connection cannot be reused.
    body = error_body(str(error), "invalid_request_error")
    return JSONResponse(body, 413, headers={"Connection": "close"})


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _failed(_: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), "server_error"), 500)


async def _refuse(_: Request, error: Exception) -> Response:
    param = error.param if isinstance(error, BadRequestError) else None
    return JSONResponse(error_body(str(error), "invalid_request_error", param), 400)


async def _unavailable(_: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), "server_error"), 503, headers={"Retry-After": _RETRY_AFTER_S})


def _response_body(
    engine: ServingEngine,
    chat_request: ChatRequest,
    model_name: str,
    prepared: TokenizedRequest,
    completions: list[Completion],
) -> dict[str, Any]:
    prompt_tokens = len(prepared.prompt.tokens)
    response_tokens = sum(len(completion.tokens) for completion in completions)
    body = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model_name,
        "choices": [
            {"index": index, **_choice(engine, chat_request, completion)}
            for index, completion in enumerate(completions)
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": response_tokens,
            "total_tokens": prompt_tokens + response_tokens,
        },
    }
    if chat_request.return_token_ids:
        body["prompt_token_ids"] = prepared.prompt.tokens.tolist()
    return body


def _choice(engine: ServingEngine, chat_request: ChatRequest, completion: Completion) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "message": {"role": "assistant", "content": completion.text},
        "finish_reason": completion.finish_reason,
        "logprobs": None,
    }
    if chat_request.logprobs:
        texts = engine.token_texts(completion.tokens)
        pairs = zip(texts, completion.log_probs, strict=True)
        content = [
            {"token": text, "logprob": value, "bytes": None, "top_logprobs": []} for text, value in pairs
        ]
        choice["logprobs"] = {"content": content}
    if chat_request.return_token_ids:
        choice["token_ids"] = list(completion.tokens)
    return choice


def read_host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parses the address to listen on.

    Raises:
      UserError: it is not an IP address. Names are refused because they may resolve to several.
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        raise UserError(
            f"config.host={host!r}: not an IP address; use 127.0.0.1 (local) or 0.0.0.0 (all networks)"
        ) from None


def bind(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Binds a socket without listening on it; port 0 takes any free port.

    Raises:
      UserError: the port is taken, or this machine has no such address.
    """
    family = socket.AF_INET6 if read_host(host).version == 6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    # A restarted server can bind while old connections are in TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UserError(f"port {port} on {host}: {error.strerror}; free it or use --config.port=0") from None
    return sock


def base_url(sock: socket.socket) -> str:
    """Returns the base URL under which clients on this machine reach a bound socket."""
    host, port = sock.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host) or host
    return f"http://[{here}]:{port}/v1" if ":" in here else f"http://{here}:{port}/v1"


def run_server(app: Starlette, sock: socket.socket, drain_seconds: float) -> None:
    """Serves until SIGTERM or SIGINT, then refuses new connections and finishes running requests.

    Args:
      drain_seconds: time limit for running requests; a second signal stops at once.

    Raises:
      KeyboardInterrupt: after shutdown by a signal while Python's default handlers are installed.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=math.ceil(drain_seconds),
    )
    uvicorn.Server(config).run(sockets=[sock])
