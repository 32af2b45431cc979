"""The socket that the application listens on, and its life until a signal."""

from __future__ import annotations

import ipaddress
import math
import socket

import uvicorn
from starlette.applications import Starlette

from rmsweb_jax.errors import UserError


def read_host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address to listen on.

    Raises:
      UserError: it is a name, which may stand for several.
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        raise UserError(
            f"config.host={host!r}: no IP address; 127.0.0.1 serves this machine, 0.0.0.0 all others too"
        ) from None


def bind(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A socket that does not listen yet; port 0 takes any free one.

    Raises:
      UserError: the port is taken, or this machine has no such address.
    """
    family = socket.AF_INET6 if read_host(host).version == 6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UserError(f"port {port} on {host}: {error.strerror}; free it or use --config.port=0") from None
    return sock


def base_url(sock: socket.socket) -> str:
    """Where clients on this machine find what a bound socket serves."""
    host, port = sock.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host) or host
    return f"http://[{here}]:{port}/v1" if ":" in here else f"http://{here}:{port}/v1"


def run_server(app: Starlette, sock: socket.socket, drain_seconds: float) -> None:
    """Serves until SIGTERM or SIGINT: then no new connections are taken, and requests are still answered.

    Args:
      drain_seconds: what they have for it; a second signal ends it at once.

    Raises:
      KeyboardInterrupt: after shutdown, when a signal ended it and Python's own handlers are in place.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=math.ceil(drain_seconds),
    )
    uvicorn.Server(config).run(sockets=[sock])
