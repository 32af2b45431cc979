"""What guards the server's socket: addresses, the key, origins, sizes and time limits."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import math
import socket
import urllib.parse
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import h11
import uvicorn
from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.protocol import ApiError
from rmsweb_jax.signals import StopRequest


class AuthMiddleware:
    """ASGI middleware that checks the key, and counts statuses of requests for replies.

    Without a key any page that a browser of this machine shows could send requests, so that those of other
    origins and for other hosts are refused.
    """

    def __init__(self, app: ASGIApp, api_key: str, responses: Counter):
        self._app, self._responses = app, responses
        self._expected = f"Bearer {api_key}".encode() if api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Health checks and metrics need no key: they reveal no prompts and are read by monitoring.
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and scope["path"].endswith(
                ("completions", "responses")
            ):
                self._responses.labels(str(message["status"])).inc()
            await send(message)

        error = self._refusal(dict(scope["headers"]))
        answer = JSONResponse(error.body, error.status) if error else self._app
        await answer(scope, receive, counted)

    def _refusal(self, headers: Mapping[bytes, bytes]) -> ApiError | None:
        if self._expected:
            # Constant-time comparison: response times must not reveal how much of a guess was right.
            if hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
                return None
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            return ApiError(message, status=401)
        for name in (b"host", b"origin"):
            value = headers.get(name, b"").decode("latin-1")
            if value and not _is_here(value):
                message = f"{name.decode()} {value!r} is not this machine: start the server with a key"
                return ApiError(message, status=403)
        return None


def _is_here(value: str) -> bool:
    """True if a Host or an Origin is a loopback address."""
    try:
        host = urllib.parse.urlsplit(value if "://" in value else f"//{value}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_json(request: Request, settings: ServeSettings) -> bytes:
    """Reads the body of a request.

    Raises:
      ApiError: the content is not JSON, is over the limit, or takes too long to arrive.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A browser sends other types to other origins without asking them.
    if kind != "application/json":
        raise ApiError(f"content-type: {kind or 'none'!r}: send application/json", status=415)
    limit = int(settings.max_body_mb * 2**20)
    # A declared size is checked before anything is read.
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise ApiError(f"body: {announced} bytes exceed the limit of {limit}", status=413)
    # A chunked body has no declared size, and a declared one may be wrong.
    chunks, size = [], 0
    try:
        async with asyncio.timeout(settings.read_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise ApiError(f"body: exceeds the limit of {limit} bytes", status=413)
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError("the body did not arrive in time", status=408) from None
    return b"".join(chunks)


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
    """Closes connections on which a request's headers do not arrive in time."""

    seconds = 10.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expire = self.loop.call_later(self.seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._expire.cancel()
        elif self._expire.cancelled() and self.cycle.response_complete:
            # The beginning of another request, or the body of one that was answered without it: data ends
            # uvicorn's own limit for idle connections.
            self._expire = self.loop.call_later(self.seconds, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            # The request that goes on wrongly is answered already.
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expire.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Ends when it is requested, and calls a function when the time for running requests is over."""

    def __init__(
        self, config: uvicorn.Config, seconds: float, stop: Callable[[], None], request: StopRequest
    ):
        super().__init__(config)
        self._seconds, self._stop, self._request = seconds, stop, request

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # The request has them.

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._request.requested

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._seconds, loop.run_in_executor, None, self._stop)
        await super().shutdown(sockets)
        late.cancel()


# Seconds in which requests that were stopped are answered, before uvicorn cuts them off.
_LAST_ANSWERS = 10


def make_http_server(
    app: ASGIApp, read_seconds: float, drain_seconds: float, stop: Callable[[], None], request: StopRequest
) -> uvicorn.Server:
    """Makes the server, whose `run` ends when it is requested: it then only finishes running requests.

    Args:
      read_seconds: time limit for the headers of a request.
      drain_seconds: time limit for running requests.
      stop: called in another thread after `drain_seconds`; must fail the requests that still run.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        # Where uvloop is installed: it would take the pipe by which `signals` hears of one.
        loop="asyncio",
        http=type("Protocol", (_TimedProtocol,), {"seconds": read_seconds}),
        ws="none",
        timeout_keep_alive=math.ceil(read_seconds),
        timeout_graceful_shutdown=math.ceil(drain_seconds) + _LAST_ANSWERS,
    )
    return _Server(config, drain_seconds, stop, request)
