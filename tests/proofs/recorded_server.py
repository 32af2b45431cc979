"""A policy's server on another machine: it gives recorded replies after a time, and takes no processor."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class RecordedServer:
    """Passes all calls to a server on this machine, and answers a repeated completion itself.

    A completion is the same whatever policy it asks for: the training must not change the weights.

    Args:
      upstream: root of the server's URL.
      seconds: how long a recorded reply takes.

    Attributes:
      asked, repeated: number of completions, and of those that were recorded.
      seconds_upstream: of all completions that were not.
    """

    def __init__(self, upstream: str, seconds: float):
        self._upstream, self._seconds = upstream, seconds
        self._known = dict[str, tuple[str, bytes]]()
        self._client = httpx.AsyncClient(timeout=600.0)
        self.asked = self.repeated = 0
        self.seconds_upstream = list[float]()
        methods = ["GET", "POST", "DELETE"]
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=methods)])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    async def _answer(self, request: Request) -> Response:
        body, path = await request.body(), request.url.path
        if not path.endswith("/chat/completions"):
            return await self._pass(request, body)
        call: dict[str, Any] = json.loads(body)
        policy = call.pop("model")
        key = json.dumps(call, sort_keys=True)
        self.asked += 1
        if key in self._known:
            self.repeated += 1
            before, content = self._known[key]
            await asyncio.sleep(self._seconds)
            content = content.replace(json.dumps(before).encode(), json.dumps(policy).encode())
            return Response(content, media_type="application/json")
        start = time.monotonic()
        answer = await self._pass(request, body)
        self.seconds_upstream.append(time.monotonic() - start)
        if answer.status_code == 200:
            self._known[key] = policy, bytes(answer.body)
        return answer

    async def _pass(self, request: Request, body: bytes) -> Response:
        names = ("content-type", "authorization")
        headers = {name: value for name in names if (value := request.headers.get(name))}
        sent = await self._client.request(
            request.method, self._upstream + request.url.path, content=body, headers=headers
        )
        return Response(sent.content, sent.status_code, media_type=sent.headers.get("content-type"))
