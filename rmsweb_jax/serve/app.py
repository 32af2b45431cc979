"""The HTTP API: chat and text completions, models, adapters, health and metrics.

A request becomes a `Call`, whose engine request is drawn in the engine's thread; what is drawn comes back
through a queue of the event loop, and the call makes the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Request as EngineRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.processor import EncodedPrompt, Processor
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import Report, ServingEngine
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.http import AuthMiddleware, read_json
from rmsweb_jax.serve.protocol import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
    parse_body,
    to_messages,
)
from rmsweb_jax.serve.replies import Call

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
        Route("/v1/completions", handlers.complete, methods=["POST"]),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{name:path}", handlers.model),
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
    ]
    if settings.allow_adapters:
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
        error = ApiError("the server failed; see its log", status=500)
    if error.status in (408, 413):
        # The rest of the body is not read.
        headers = {"Connection": "close"}
    elif error.status == 503:
        headers = {"Retry-After": "1"}
    return JSONResponse(error.body, error.status, headers)


class _Handlers:
    """The handlers of one engine."""

    def __init__(self, engine: ServingEngine, processor: Processor, settings: ServeSettings, schema: Any):
        self._engine, self._processor, self._settings = engine, processor, settings
        self._grammars = Grammars(processor)
        self._default = None if schema is None else self._grammars.compile(schema)

    # --- replies

    async def chat(self, request: Request) -> Response:
        asked = parse_body(ChatRequest, await read_json(request, self._settings))
        # Decoding and resizing images would block the event loop, so it runs in a thread.
        return await self._respond(request, await asyncio.to_thread(self._chat_call, asked))

    async def complete(self, request: Request) -> Response:
        asked = parse_body(CompletionRequest, await read_json(request, self._settings))
        return await self._respond(request, await asyncio.to_thread(self._completion_call, asked))

    def _chat_call(self, asked: ChatRequest) -> Call:
        messages, images = to_messages(asked)
        grammar = self._default
        if forced := asked.forced:
            grammar = self._grammars.compile_calls(forced)
        elif asked.response_format is not None:
            schema = asked.response_format.as_schema()
            grammar = None if schema is None else self._grammars.compile(schema)
        elif asked.offered:
            grammar = None
        try:
            prompt = self._processor.encode_prompt(messages, images.__getitem__)
        except UserError as error:
            raise ApiError(f"messages: {error}", "messages") from None
        if len(prompt.grids) > self._settings.max_images:
            limit = self._settings.max_images
            raise ApiError(f"messages: {len(prompt.grids)} images, at most {limit} are served", "messages")
        return self._call(asked, prompt, grammar, "messages")

    def _completion_call(self, asked: CompletionRequest) -> Call:
        config, tokens = self._processor.config, asked.prompt
        if isinstance(tokens, str):
            tokens = self._processor.encode_text(tokens)
        if any(token >= config.text.vocab_size for token in tokens):
            raise ApiError(f"prompt: a token is not in the vocabulary of {config.text.vocab_size}", "prompt")
        if config.image_token_id in tokens:
            raise ApiError("prompt: image tokens need images; use chat completions", "prompt")
        return self._call(asked, EncodedPrompt(np.asarray(tokens, np.int32), (), ()), None, "prompt")

    def _call(
        self, asked: GenerationRequest, prompt: EncodedPrompt, grammar: Grammar | None, param: str
    ) -> Call:
        """Checks a request; everything that a client can cause is refused here.

        Raises:
          ApiError: the request exceeds the engine's sizes, or names what it does not know.
        """
        most = self._settings.max_new_tokens
        asked.check(self._processor.end_id, self._processor.banned_ids, most)
        sampling, length = asked.sampling(most), len(prompt.tokens)
        if sampling.ignore_eos and grammar is not None:
            raise ApiError("ignore_eos: a reply that follows a schema has an end", "ignore_eos")
        try:
            self._engine.engine.check(length, sampling)
        except UserError as error:
            raise ApiError(f"{param}: {error}", param) from None
        name = asked.model or self._settings.names[0]
        adapter = 0 if name in self._settings.names else self._engine.adapters.get(name)
        if adapter is None:
            raise self._unknown(name)
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        example = Example("", prompt.tokens, length, np.zeros(0, bool), prompt.patches, prompt.grids)
        # Random keys are folded from 32-bit numbers, so a 64-bit seed is passed in two halves.
        halves = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
        return Call(asked, name, EngineRequest(example, sampling, *halves, adapter, grammar), self._processor)

    async def _respond(self, request: Request, call: Call) -> Response:
        loop, reports = asyncio.get_running_loop(), asyncio.Queue[Report | None]()

        def tell(report: Report) -> None:
            # The loop may be closed when the server ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(reports.put_nowait, report)

        self._engine.submit(call.request, tell)
        changes = self._follow(request, call, reports)
        if call.asked.stream:
            return StreamingResponse(_events(changes, call), media_type="text/event-stream")
        async for _ in changes:
            pass
        return JSONResponse(call.body())

    async def _follow(
        self, request: Request, call: Call, reports: asyncio.Queue[Report | None]
    ) -> AsyncIterator[int]:
        """Takes reports until all replies have ended; yields the index of each reply that may have changed.

        Raises:
          ClientDisconnect: the client went away.
          ApiError: a reply cannot be completed.
        """
        metrics = self._engine.metrics
        # The body has been read, so the next message can only be a disconnect.
        gone = asyncio.ensure_future(request.receive())
        gone.add_done_callback(lambda _: reports.put_nowait(None))
        try:
            while not call.complete:
                report = await reports.get()
                if report is None:
                    metrics.cancelled.inc()
                    raise ClientDisconnect
                if isinstance(report, ApiError):
                    raise report
                index = call.take(report)
                if index is None:
                    continue
                if call.replies[index].cut:
                    self._engine.cancel(call.request, index)
                yield index
            for reply in call.replies:
                metrics.generated_tokens.inc(len(reply.tokens))
                metrics.replies.labels(reply.finish).inc()
        finally:
            gone.cancel()
            self._engine.cancel(call.request)

    # --- models and adapters

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": self._entries()})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        for entry in self._entries():
            if entry["id"] == name:
                return JSONResponse(entry)
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
        return JSONResponse(status, 200 if alive else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._engine.metrics.text(), media_type="text/plain; version=0.0.4")


async def _events(changes: AsyncIterator[int], call: Call) -> AsyncIterator[bytes]:
    """Writes a stream of server-sent events; an error ends it as an event."""

    def event(body: Any) -> bytes:
        return b"data: " + orjson.dumps(body) + b"\n\n"

    try:
        async for index in changes:
            if (body := call.chunk(index)) is not None:
                yield event(body)
        for body in call.last_chunks():
            yield event(body)
    except ClientDisconnect:
        return
    except ApiError as error:
        yield event(error.body)
    yield b"data: [DONE]\n\n"
