"""The policy behind POST /v1/chat/completions, for anything that speaks that protocol."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import time
import uuid
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rmsweb_jax.serve.engine import Engine, EngineStoppedError, OverloadedError, UnknownPolicyError
from rmsweb_jax.serve.grammar import GrammarError
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
from rmsweb_jax.serve.requests import Completion, Prepared, Ticket

# What nginx calls a client that closed its connection; nobody reads it but our own counters.
_CLIENT_GONE = 499
_RETRY_AFTER_S = "1"


class TooLargeError(Exception):
    """A body is larger than the server reads."""


class ClientGoneError(Exception):
    """The client closed its connection before it was answered."""


@dataclasses.dataclass(frozen=True)
class AppConfig:
    """What clients may do.

    Attributes:
      model_name: what the server calls its model; requests for neither it nor loaded adapters get 404.
      api_key: that clients of /v1 must send as a bearer token; empty: none.
      allow_adapters: whether clients may load and unload adapters, as with vLLM's runtime updating.
      max_body_bytes: of a request; larger ones get 413.
    """

    model_name: str
    api_key: str = ""
    allow_adapters: bool = False
    max_body_bytes: int = 32 * 2**20


def make_app(engine: Engine, config: AppConfig) -> Starlette:
    """Routes of the server.

    Args:
      engine: started; its replies are what is served.
    """
    model_name = config.model_name

    async def read(request: Request) -> bytes:
        return await _read_body(request, config)

    async def chat(request: Request) -> Response:
        asked = parse_request(await read(request))
        name = asked.model or model_name
        # Decoding and resizing images would hold up every other request on the event loop.
        prepared = await asyncio.to_thread(engine.prepare, asked)
        ticket = engine.submit(prepared, BASE if name == model_name else name)
        try:
            completions = await _unless_gone(request, ticket)
        except ClientGoneError:
            engine.metrics.cancelled()
            raise
        return JSONResponse(_response_body(engine, asked, name, prepared, completions))

    async def health(_: Request) -> Response:
        status = {"status": "ok" if engine.alive else "stopped", "model": model_name}
        return JSONResponse(status, 200 if engine.alive else 503)

    async def metrics(_: Request) -> Response:
        return Response(engine.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(_: Request) -> Response:
        entries = [{"id": name, "parent": model_name} for name in engine.policies.names()]
        common = {"object": "model", "created": 0, "owned_by": "rmsweb-jax"}
        data = [common | entry for entry in [{"id": model_name, "parent": None}, *entries]]
        return JSONResponse({"object": "list", "data": data})

    async def load(request: Request) -> Response:
        asked = parse_body(LoadAdapterRequest, await read(request))
        if asked.lora_name == model_name:
            raise BadRequestError(f"lora_name: {model_name!r} is the model itself", "lora_name")
        await asyncio.to_thread(engine.policies.load, asked.lora_name, Path(asked.lora_path))
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def unload(request: Request) -> Response:
        asked = parse_body(UnloadAdapterRequest, await read(request))
        engine.unload(asked.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' removed successfully.")

    async def unknown(_: Request, error: Exception) -> Response:
        served = ", ".join(map(repr, [model_name, *engine.policies.names()]))
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
    app.add_middleware(Front, engine=engine, api_key=config.api_key)
    return app


class Front:
    """Lets in who has the key, and counts what chat requests are answered with (ASGI middleware)."""

    def __init__(self, app: ASGIApp, engine: Engine, api_key: str):
        self._app, self._engine = app, engine
        self._expected = f"Bearer {api_key}".encode() if api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["path"] == "/v1/chat/completions":
                self._engine.metrics.answered(message["status"])
            await send(message)

        given = dict(scope["headers"]).get(b"authorization", b"")
        # In constant time, so that answers do not tell how much of a guess was right.
        if self._expected and not hmac.compare_digest(given, self._expected):
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            refusal = JSONResponse(error_body(message, "authentication_error"), 401)
            await refusal(scope, receive, counted)
        else:
            await self._app(scope, receive, counted)


async def _unless_gone(request: Request, ticket: Ticket) -> list[Completion]:
    """The completions; a request whose client goes away is not computed any further.

    Raises:
      ClientGoneError: it went away.
    """
    answer = asyncio.wrap_future(ticket.future)
    # The body has been read, so that what comes next is the end of the connection.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGoneError
        return answer.result()
    finally:
        gone.cancel()
        if not answer.done():
            ticket.cancel()


async def _read_body(request: Request, config: AppConfig) -> bytes:
    limit = config.max_body_bytes
    # One that says how large it is need not be sent at all.
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise TooLargeError(f"body: {announced} bytes, at most {limit} are read")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(f"body: more than {limit} bytes, which is all that is read")
        chunks.append(chunk)
    return b"".join(chunks)


async def _too_large(_: Request, error: Exception) -> Response:
    # What is left of the body is not read, so that nothing else can come over this connection.
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
