"""Web servers on loopback."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import pathlib
import random
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def free_port() -> int:
    """A port that nothing listens on, and that no other process gets when it asks for any."""
    while True:
        port = random.SystemRandom().randrange(61_000, 65_536)  # Above those that Linux gives.
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class PageHandler(http.server.BaseHTTPRequestHandler):
    """Answers requests without a log, by `get` and `post` of a subclass, which call `reply`."""

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    def do_DELETE(self) -> None:
        self.delete()

    def get(self) -> None:
        self.send_error(405)

    def post(self) -> None:
        self.send_error(405)

    def delete(self) -> None:
        self.send_error(405)

    def reply(
        self,
        body: str | bytes,
        kind: str = "text/html; charset=utf-8",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def move(self, where: str, status: int = 302) -> None:
        self.reply("", status=status, headers={"Location": where})

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Runs a server of raw connections, a thread each; yields its port of 127.0.0.1.

    Args:
      handle: serves a connection, which is closed when it returns; its errors end that connection alone.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            handle(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close, request_queue_size = True, False, 256

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def serving(handler: Any, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Runs a server; yields its address, `127.0.0.1:PORT`.

    Args:
      handler: makes a `BaseHTTPRequestHandler`.
      tls: serves HTTPS, see `tls_context`.
    """
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            # The handshake belongs to the connection's thread; here it would block all others.
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def tls_context(folder: pathlib.Path) -> ssl.SSLContext:
    """Returns a server's TLS with a certificate for every name; Chromium takes it with `ANY_CERTIFICATE`."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("*.test"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "server.pem"
    file.write_bytes(secret + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


ANY_CERTIFICATE = "--ignore-certificate-errors"
