"""The HTTP API: chat completions, responses, models, adapters, health and metrics.

A request becomes a `Generation`, whose engine request is drawn in the engine's thread; what is drawn comes
back through a queue of the event loop, and the generation makes the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Request as EngineRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.schema import TextPart
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import Report, ServingEngine
from rmsweb_jax.serve.grammar import Grammars
from rmsweb_jax.serve.http import AuthMiddleware, read_json
from rmsweb_jax.serve.protocol import (
    FAILED,
    ApiError,
    ChatRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
    parse_body,
    to_messages,
)
from rmsweb_jax.serve.replies import Generation
from rmsweb_jax.serve.responses import ResponsesGeneration, ResponsesRequest, named_as_here

# nginx's status for a client that closed its connection. Only our own counters see it.
_CLIENT_GONE = 499


def make_app(
    engine: ServingEngine, processor: Processor, settings: ServeSettings, schema: Any = None
) -> Starlette:
    """Builds the ASGI application.

    Args:
      engine: must be started.
      schema: JSON schema that constrains replies when a request names no format.
    """
    handlers = _Handlers(engine, processor, settings, schema)
    routes = [
        Route("/v1/chat/completions", handlers.chat, methods=["POST"]),
        Route("/v1/responses", handlers.responses, methods=["POST"]),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{name:path}", handlers.model),
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
    ]
    if settings.adapters:
        routes += [
            Route("/v1/load_lora_adapter", handlers.load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", handlers.unload, methods=["POST"]),
        ]
    errors: Mapping[Any, Any] = dict.fromkeys((ApiError, ClientDisconnect, HTTPException, 500), _answer_error)
    app = Starlette(routes=routes, exception_handlers=errors)
    app.add_middleware(AuthMiddleware, api_key=settings.api_key, responses=engine.metrics.responses)
    return app


async def _answer_error(_: Request, error: Exception) -> Response:
    """Answers every error with an error object; what is no one's intention is in the log."""
    headers = None
    if isinstance(error, ClientDisconnect):
        error = ApiError("the client is gone", status=_CLIENT_GONE)
    elif isinstance(error, HTTPException):
        headers = error.headers
        error = ApiError(str(error.detail), status=error.status_code)
    elif not isinstance(error, ApiError):
        error = FAILED
    if error.status in (408, 413):
        # The rest of the body is not read.
        headers = {"Connection": "close"}
    elif error.status == 503:
        headers = {"Retry-After": "1"}
    return _json(error.body, error.status, headers)


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")


class _Handlers:
    """The handlers of one engine."""

    def __init__(self, engine: ServingEngine, processor: Processor, settings: ServeSettings, schema: Any):
        self._engine, self._processor, self._settings = engine, processor, settings
        self._grammars = Grammars(processor)
        self._default = None if schema is None else self._grammars.compile(schema)

    # --- replies

    def _generation(self, asked: ChatRequest, kind: Callable[..., Generation]) -> Generation:
        """Begins a request; everything that a client can cause is refused here.

        Args:
          kind: the answer's form.

        Raises:
          ApiError: the request is wrong, or exceeds the engine's sizes.
        """
        if self._settings.turns == "last":
            asked = asked.last_turn()
        messages, images = to_messages(asked, self._settings.max_images)
        parts = (part for message in messages for part in message.content)
        size = sum(len(part.text) for part in parts if isinstance(part, TextPart))
        width = self._engine.engine.sizes.prompt_width
        # Before it is tokenized, which takes memory many times its size.
        if size > width * self._processor.longest_token:
            text = f"messages: {size:,} characters do not fit the limit of {width:,} tokens"
            raise ApiError(text, "messages")
        schema = None if asked.response_format is None else asked.response_format.as_schema()
        if forced := asked.forced:
            grammar = self._grammars.compile(None, forced)
        elif schema is not None:
            grammar = self._grammars.compile(schema, asked.offered)
        else:
            grammar = None if asked.offered or asked.response_format is not None else self._default
        try:
            prompt = self._processor.encode_prompt(messages, images.__getitem__)
        except UserError as error:
            raise ApiError(f"messages: {error}", "messages") from None
        limit = self._settings.max_new_tokens
        asked.check(self._processor.end_id, self._processor.banned_ids, limit)
        sampling, length = asked.sampling(limit), len(prompt.tokens)
        if sampling.ignore_eos and grammar is not None:
            raise ApiError("ignore_eos: a reply that follows a schema has an end", "ignore_eos")
        try:
            self._engine.engine.check(length, sampling)
        except UserError as error:
            raise ApiError(f"messages: {error}", "messages") from None
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        example = Example("", prompt.tokens, length, np.zeros(0, bool), prompt.patches, prompt.grids)
        # Random keys are folded from 32-bit numbers, so a 64-bit seed is passed in two halves.
        halves = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
        request = EngineRequest(example, sampling, *halves, constrain=grammar)
        return kind(asked, asked.model or self._settings.names[0], request, self._processor)

    async def chat(self, request: Request) -> Response:
        return await self._reply(
            request, lambda body: self._generation(parse_body(ChatRequest, body), Generation)
        )

    async def responses(self, request: Request) -> Response:
        def begin(body: bytes) -> Generation:
            with named_as_here():
                asked = parse_body(ResponsesRequest, body)
                return self._generation(asked.as_chat(), functools.partial(ResponsesGeneration, asked))

        return await self._reply(request, begin)

    async def _reply(self, request: Request, begin: Callable[[bytes], Generation]) -> Response:
        body = await read_json(request, self._settings)
        # Parsing, resizing images and compiling a schema would block the event loop.
        generation = await asyncio.to_thread(begin, body)
        loop, reports = asyncio.get_running_loop(), asyncio.Queue[Report | None]()

        def on_report(report: Report) -> None:
            # The loop may be closed when the server ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(reports.put_nowait, report)

        adapter = "" if generation.name in self._settings.names else generation.name
        try:
            self._engine.submit(generation.request, on_report, adapter)
        except KeyError:
            raise self._unknown(adapter) from None
        changes = self._follow(generation, reports)
        if generation.asked.stream:
            return StreamingResponse(generation.events(changes), media_type="text/event-stream")
        # The body has been read, so the next message can only be a disconnect; a stream's response waits for
        # one itself.
        gone = asyncio.ensure_future(request.receive())
        gone.add_done_callback(lambda _: reports.put_nowait(None))
        try:
            async for _ in changes:
                pass
        finally:
            gone.cancel()
        # Many replies with their likely tokens take seconds to write.
        return await asyncio.to_thread(lambda: _json(generation.body()))

    async def _follow(
        self, generation: Generation, reports: asyncio.Queue[Report | None]
    ) -> AsyncIterator[int]:
        """Takes reports until all replies have ended; yields the index of each reply that may have changed.

        Raises:
          ClientDisconnect: the client went away.
          ApiError: a reply cannot be completed.
        """
        metrics = self._engine.metrics
        try:
            while not generation.complete:
                report = await reports.get()
                if report is None:
                    raise ClientDisconnect
                if isinstance(report, ApiError):
                    raise report
                index = generation.take(report)
                if index is None:
                    continue
                if generation.replies[index].cut:
                    self._engine.cancel(generation.request, index)
                yield index
            for reply in generation.replies:
                metrics.generated_tokens.inc(len(reply.tokens))
                metrics.replies.labels(reply.finish).inc()
        finally:
            self._engine.cancel(generation.request)

    # --- models and adapters

    async def models(self, _: Request) -> Response:
        return _json({"object": "list", "data": self._entries()})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        for entry in self._entries():
            if entry["id"] == name:
                return _json(entry)
        raise self._unknown(name)

    def _entries(self) -> list[dict[str, Any]]:
        own = self._settings.names
        limit = self._engine.engine.sizes.prompt_width + self._settings.max_new_tokens
        common = {"object": "model", "created": 0, "owned_by": "rmsweb-jax", "max_model_len": limit}
        parents = dict.fromkeys(own) | dict.fromkeys(self._engine.adapters, own[0])
        return [{"id": name, "parent": parent} | common for name, parent in parents.items()]

    def _unknown(self, name: str) -> ApiError:
        served = ", ".join(map(repr, [*self._settings.names, *self._engine.adapters]))
        message = f"model {name!r} is not served here, only {served}"
        return ApiError(message, "model", 404, "model_not_found")

    async def load(self, request: Request) -> Response:
        asked = parse_body(LoadAdapterRequest, await read_json(request, self._settings))
        if asked.lora_name in self._settings.names:
            raise ApiError(f"lora_name: {asked.lora_name!r} is the model itself", "lora_name")
        await asyncio.to_thread(self._engine.load, asked.lora_name, Path(asked.lora_path))
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        asked = parse_body(UnloadAdapterRequest, await read_json(request, self._settings))
        self._engine.unload(asked.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' removed successfully.")

    # --- operations

    async def health(self, _: Request) -> Response:
        alive = self._engine.alive
        status = {"status": "ok" if alive else "stopped", "model": self._settings.names[0]}
        return _json(status, 200 if alive else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._engine.metrics.text(), media_type="text/plain; version=0.0.4")
