"""An OpenAI-compatible HTTP server: chat and text completions, models, adapters, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import math
import secrets
import socket
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import PromptScores
from rmsweb_jax.decoding.requests import Request as EngineRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.processor import EncodedPrompt, Processor
from rmsweb_jax.serve.bodies import GenerationCall
from rmsweb_jax.serve.config import AppConfig, ServeConfig
from rmsweb_jax.serve.engine import (
    EngineStoppedError,
    OverloadedError,
    PendingRequest,
    Report,
    ServingEngine,
    UnknownModelError,
)
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.protocol import (
    BadRequestError,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
    error_body,
    parse_body,
    to_messages,
)
from rmsweb_jax.serve.replies import Reply

# nginx's status for a client that closed its connection. Only our own counters see it.
_CLIENT_GONE = 499
_RETRY_AFTER_S = "1"


class TooLargeError(Exception):
    """The request body exceeds the size limit."""


class FailedReplyError(Exception):
    """A reply cannot be completed."""


def make_app(
    engine: ServingEngine, processor: Processor, config: ServeConfig, schema: Any = None
) -> Starlette:
    """Builds the ASGI application.

    Args:
      engine: must be started.
      schema: JSON schema that constrains replies when a request names no format.
    """
    server = _Server(engine, processor, config, schema)
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.complete, methods=["POST"]),
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.model),
        Route("/health", server.health),
        Route("/metrics", server.show_metrics),
    ]
    if config.allow_adapters:
        routes += [
            Route("/v1/load_lora_adapter", server.load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", server.unload, methods=["POST"]),
        ]
    handlers: Mapping[Any, Any] = {
        BadRequestError: _answer(400),
        UnknownModelError: server.unknown,
        TooLargeError: _answer(413, headers={"Connection": "close"}),
        TimeoutError: _answer(408, headers={"Connection": "close"}),
        ClientDisconnect: _answer(_CLIENT_GONE),
        EngineStoppedError: _answer(503, headers={"Retry-After": _RETRY_AFTER_S}),
        OverloadedError: _answer(503, headers={"Retry-After": _RETRY_AFTER_S}),
        FailedReplyError: _answer(500),
        HTTPException: _http_error,
        500: _answer(500),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.add_middleware(AuthMiddleware, engine=engine, config=config)
    return app


class _Server:
    """The handlers of one engine."""

    def __init__(self, engine: ServingEngine, processor: Processor, config: ServeConfig, schema: Any):
        self._engine, self._processor, self._config = engine, processor, config
        self._grammars = Grammars(processor)
        self._default = None if schema is None else self._grammars.compile(schema)

    async def chat(self, request: Request) -> Response:
        asked = parse_body(ChatRequest, await _read_json(request, self._config))
        # Decoding and resizing images would block the event loop, so it runs in a thread.
        prepared = await asyncio.to_thread(self._prepare_chat, asked)
        return await self._respond(request, asked, prepared)

    async def complete(self, request: Request) -> Response:
        asked = parse_body(CompletionRequest, await _read_json(request, self._config))
        prepared = await asyncio.to_thread(self._prepare_completion, asked)
        return await self._respond(request, asked, prepared)

    def _prepare_chat(self, asked: ChatRequest) -> GenerationCall:
        messages, images = to_messages(asked)
        if len(images) > self._config.max_images:
            raise BadRequestError(
                f"messages: {len(images)} images, at most {self._config.max_images} are served", "messages"
            )
        grammar = self._default
        forced = asked.forced
        if forced:
            grammar = self._grammars.compile_calls(forced)
        elif asked.response_format is not None:
            schema = asked.response_format.as_schema()
            grammar = None if schema is None else self._grammars.compile(schema)
        elif asked.offered:
            grammar = None
        prompt = self._processor.encode_prompt(messages, images.__getitem__)
        return self._call(asked, prompt, grammar, "messages", bool(asked.offered))

    def _prepare_completion(self, asked: CompletionRequest) -> GenerationCall:
        vocabulary = self._processor.config.text.vocab_size
        if isinstance(asked.prompt, str):
            tokens = self._processor.encode_text(asked.prompt)
        else:
            tokens = asked.prompt
            if any(token >= vocabulary for token in tokens):
                raise BadRequestError(f"prompt: a token is not in the vocabulary of {vocabulary}", "prompt")
            if self._processor.config.image_token_id in tokens:
                raise BadRequestError("prompt: image tokens need images; use chat completions", "prompt")
        return self._call(asked, EncodedPrompt(np.asarray(tokens, np.int32), (), ()), None, "prompt", False)

    def _call(
        self,
        asked: GenerationRequest,
        prompt: EncodedPrompt,
        grammar: Grammar | None,
        param: str,
        tools: bool,
    ) -> GenerationCall:
        """Checks a request; everything that a client can cause is refused here.

        Raises:
          BadRequestError: the request exceeds the engine's sizes, or names tokens that it does not know.
        """
        asked.check(self._processor.end_id, self._processor.banned_ids, self._config.max_new_tokens)
        sampling = asked.sampling(self._config.max_new_tokens)
        length = len(prompt.tokens)
        example = Example("", prompt.tokens, length, np.zeros(0, bool), prompt.patches, prompt.grids)
        try:
            self._engine.engine.check(length, sampling)
        except UserError as error:
            raise BadRequestError(f"{param}: {error}", param) from None
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        name = asked.model or self._config.names[0]
        adapter = 0 if name in self._config.names else self._engine.slot(name)
        work = EngineRequest(
            example,
            sampling,
            # Random keys are folded from 32-bit numbers, so a 64-bit seed is passed in two halves.
            seed & 0xFFFFFFFF,
            (seed >> 32) & 0xFFFFFFFF,
            adapter,
            None if grammar is None else grammar.begin,
        )
        replies = [Reply(self._processor, asked.stop_texts, tools) for _ in range(sampling.num_samples)]
        return GenerationCall(asked, name, work, replies, self._processor)

    async def _respond(self, request: Request, asked: GenerationRequest, call: GenerationCall) -> Response:
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Report | None]()

        def tell(report: Report) -> None:
            # The loop may be closed when the server ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, report)

        pending = self._engine.submit(call.request, tell)
        changes = self._follow(request, call, pending, events)
        if asked.stream:
            return StreamingResponse(_sse(changes, call), media_type="text/event-stream")
        async for _ in changes:
            pass
        return JSONResponse(call.body())

    async def _follow(
        self,
        request: Request,
        call: GenerationCall,
        pending: PendingRequest,
        events: asyncio.Queue[Report | None],
    ) -> AsyncIterator[int | None]:
        """Takes reports until all replies have ended; yields the number of each reply that changed.

        Raises:
          ClientDisconnect: the client went away.
          EngineStoppedError, FailedReplyError: a reply cannot be completed.
        """
        # The body has been read, so the next message can only be a disconnect.
        gone = asyncio.ensure_future(request.receive())
        gone.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while not call.complete:
                found = await events.get()
                if found is None:
                    self._engine.metrics.cancelled()
                    raise ClientDisconnect
                if isinstance(found, EngineStoppedError):
                    raise found
                if isinstance(found, PromptScores):
                    call.scores = found
                    continue
                reply = call.replies[found.sample]
                if reply.finish is not None:
                    continue
                if found.finish == "error":
                    raise FailedReplyError(found.error)
                if reply.take(found):
                    self._engine.cancel(pending, found.sample)
                yield found.sample
            self._engine.metrics.completed(call.replies, pending.submitted)
        finally:
            gone.cancel()
            if not call.complete:
                self._engine.cancel(pending)

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": self._entries()})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        entry = next((entry for entry in self._entries() if entry["id"] == name), None)
        if entry is None:
            raise UnknownModelError(name)
        return JSONResponse(entry)

    def _entries(self) -> list[dict[str, Any]]:
        own, adapters = self._config.names, self._engine.names()
        common = {"object": "model", "created": 0, "owned_by": "rmsweb-jax"}
        limit = {"max_model_len": self._engine.engine.sizes.prompt_width + self._config.max_new_tokens}
        return [{"id": name, "parent": None} | common | limit for name in own] + [
            {"id": name, "parent": own[0]} | common | limit for name in adapters
        ]

    async def health(self, _: Request) -> Response:
        alive = self._engine.alive
        status = {"status": "ok" if alive else "stopped", "model": self._config.names[0]}
        return JSONResponse(status, 200 if alive else 503)

    async def show_metrics(self, _: Request) -> Response:
        return Response(self._engine.metrics.text(), media_type="text/plain; version=0.0.4")

    async def load(self, request: Request) -> Response:
        asked = parse_body(LoadAdapterRequest, await _read_json(request, self._config))
        if asked.lora_name in self._config.names:
            raise BadRequestError(f"lora_name: {asked.lora_name!r} is the model itself", "lora_name")
        await asyncio.to_thread(self._engine.load, asked.lora_name, Path(asked.lora_path))
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        asked = parse_body(UnloadAdapterRequest, await _read_json(request, self._config))
        self._engine.unload(asked.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' removed successfully.")

    async def unknown(self, _: Request, error: Exception) -> Response:
        served = ", ".join(map(repr, [*self._config.names, *self._engine.names()]))
        message = f"model {str(error)!r} is not served here, only {served}"
        body = error_body(message, "invalid_request_error", "model")
        body["error"]["code"] = "model_not_found"
        return JSONResponse(body, 404)


async def _sse(changes: AsyncIterator[int | None], call: GenerationCall) -> AsyncIterator[bytes]:
    """Writes a stream of server-sent events; an error ends it as an event."""

    def event(body: Any) -> bytes:
        return b"data: " + orjson.dumps(body) + b"\n\n"

    try:
        for body in call.first_chunks():
            yield event(body)
        async for number in changes:
            if number is not None and (body := call.chunk(number)) is not None:
                yield event(body)
        if call.asked.with_usage:
            yield event(call.usage_chunk())
    except ClientDisconnect:
        return
    except (EngineStoppedError, FailedReplyError) as error:
        yield event(error_body(str(error), "server_error"))
    yield b"data: [DONE]\n\n"


class AuthMiddleware:
    """ASGI middleware that checks the key, and counts statuses of requests for replies.

    Without a key any page that a browser of this machine shows could send requests, so that those of other
    origins and for other hosts are refused.
    """

    def __init__(self, app: ASGIApp, engine: ServingEngine, config: AppConfig):
        self._app, self._engine = app, engine
        self._expected = f"Bearer {config.api_key}".encode() if config.api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Health checks and metrics need no key: they reveal no prompts and are read by monitoring.
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["path"].endswith("completions"):
                self._engine.metrics.answered(message["status"])
            await send(message)

        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"")
        # Constant-time comparison: response times must not reveal how much of a guess was right.
        if self._expected and not hmac.compare_digest(given, self._expected):
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            refusal = JSONResponse(error_body(message, "authentication_error"), 401)
        elif not self._expected and (foreign := _foreign(headers)):
            message = f"{foreign} is not this machine: start the server with a key for other clients"
            refusal = JSONResponse(error_body(message, "permission_error"), 403)
        else:
            await self._app(scope, receive, counted)
            return
        await refusal(scope, receive, counted)


def _foreign(headers: Mapping[bytes, bytes]) -> str:
    """Returns the Host or Origin of a request that does not name this machine."""
    for name in (b"host", b"origin"):
        value = headers.get(name, b"").decode("latin-1")
        host = urllib.parse.urlsplit(value if "://" in value else f"//{value}").hostname or ""
        if value and value != "null" and not (host == "localhost" or _is_loopback(host)):
            return f"{name.decode()} {value!r}"
        if value == "null":
            return "origin 'null'"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _read_json(request: Request, config: AppConfig) -> bytes:
    """Reads the body of a request.

    Raises:
      BadRequestError: the content is not JSON.
      TooLargeError: it is over the limit.
      TimeoutError: it takes too long to arrive.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A browser sends other types to other origins without asking them.
    if kind != "application/json":
        raise HTTPException(415, f"content-type: {kind or 'none'!r}: send application/json")
    async with asyncio.timeout(config.read_seconds):
        return await _read_body(request, config)


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


def _answer(status: int, headers: Mapping[str, str] | None = None) -> Callable[[Request, Exception], Any]:
    """Makes a handler that answers errors of a kind with an error object."""

    async def answer(_: Request, error: Exception) -> Response:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        param = error.param if isinstance(error, BadRequestError) else None
        message = (
            "the server failed; see its log"
            if status == 500 and not isinstance(error, FailedReplyError)
            else str(error) or "the request did not arrive in time"
        )
        return JSONResponse(error_body(message, kind, param), status, headers)

    return answer


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body(str(error.detail), "invalid_request_error")
    return JSONResponse(body, error.status_code, error.headers)


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


class _TimedProtocol(H11Protocol):
    """Closes connections whose headers do not arrive in time."""

    seconds = 10.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expire = self.loop.call_later(self.seconds, self._close_idle)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self._expire is not None:
            self._expire.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expire.cancel()
        super().connection_lost(exc)

    def _close_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def run_server(app: Starlette, sock: socket.socket, drain_seconds: float, read_seconds: float = 10.0) -> None:
    """Serves until SIGTERM or SIGINT, then refuses new connections and finishes running requests.

    Args:
      read_seconds: time limit for the headers of a new connection.
      drain_seconds: time limit for running requests; a second signal stops at once.

    Raises:
      KeyboardInterrupt: after shutdown by a signal while Python's default handlers are installed.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=type("Protocol", (_TimedProtocol,), {"seconds": read_seconds}),
        timeout_keep_alive=math.ceil(read_seconds),
        timeout_graceful_shutdown=math.ceil(drain_seconds),
    )
    uvicorn.Server(config).run(sockets=[sock])
