"""Clients that a server must survive, and what others notice of them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def chat(text: str, **settings: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"messages": [{"role": "user", "content": text}]} | settings


def post(url: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=600)


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def half_open(url: str, count: int) -> tuple[float, float]:
    """Opens connections that never finish their headers.

    Returns:
      Seconds from the last one to when the server has closed all, and the longest wait for `/health`.
    """
    waits, done = [], threading.Event()

    def look() -> None:
        while not done.is_set():
            start = time.perf_counter()
            httpx.get(f"{url}/health", timeout=60)
            waits.append(time.perf_counter() - start)
            done.wait(0.5)

    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(count):
            sock = stack.enter_context(connect(url))
            sock.sendall(_HEAD)
            selector.register(sock, selectors.EVENT_READ)
        start = time.perf_counter()
        looking = threading.Thread(target=look)
        looking.start()
        while selector.get_map() and time.perf_counter() - start < 120:
            for key, _ in selector.select(1):
                # Readable without content: the server has closed it.
                selector.unregister(key.fileobj)
        took = time.perf_counter() - start if not selector.get_map() else 120.0
        done.set()
        looking.join()
    return took, max(waits)


def broken_uploads(url: str, count: int) -> None:
    """Begins requests with a body, and goes away in the middle."""
    for number in range(count):
        with connect(url) as sock:
            sock.sendall(_HEAD + b"Content-Length: 1000000\r\n\r\n" + b'{"messages": [' * (1 + number % 50))
            if number % 2:
                # A reset in place of an orderly end.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def drained(url: str, pid: int, count: int, tokens: int) -> tuple[int, int, float]:
    """Sends SIGTERM while requests for many tokens are under way.

    Returns:
      Requests under way at the signal, those of all that are answered, and seconds from the signal on.
    """
    bodies = [chat(f"go {seed}", seed=seed, max_tokens=tokens, ignore_eos=True) for seed in range(count)]
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(post, url, body) for body in bodies]
        while running(url) < count and not any(future.done() for future in futures):
            time.sleep(0.02)
        under_way = int(running(url))
        start = time.perf_counter()
        os.kill(pid, signal.SIGTERM)
        answered = 0
        for future in futures:
            with contextlib.suppress(httpx.HTTPError):
                answered += future.result().status_code == 200
    return under_way, answered, time.perf_counter() - start


def running(url: str) -> float:
    """Requests that the server has taken."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    values = [line.split()[-1] for line in lines if line.startswith("rmsweb_running_requests ")]
    return float(values[0]) if values else 0.0


def short_requests(url: str, count: int) -> list[float]:
    """Seconds of requests for four tokens, one after the other."""
    seconds = []
    with httpx.Client(timeout=600) as client:
        for seed in range(count):
            start = time.perf_counter()
            body = chat("Click the button.", seed=seed, max_tokens=4)
            client.post(f"{url}/v1/chat/completions", json=body).raise_for_status()
            seconds.append(time.perf_counter() - start)
    return seconds


@contextlib.contextmanager
def odd_requests(url: str, words: int, schema: dict[str, Any] | None = None) -> Iterator[list[int]]:
    """Asks for odd shapes while the block runs, one after the other: long prompts, n = 3.

    Args:
      schema: of replies; each request gets a variant that the server has not compiled.
    """
    statuses: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            number = len(statuses)
            text = f"{number} " + "open the page " * (words + number)
            body = chat(text, n=3, seed=number, max_tokens=37, top_p=0.9)
            if schema is not None:
                wanted = {"name": "odd", "schema": schema | {"title": f"schema {number}"}}
                body["response_format"] = {"type": "json_schema", "json_schema": wanted}
            statuses.append(post(url, body).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        thread.join()


def summary(seconds: list[float]) -> dict[str, float]:
    """Median and largest, rounded."""
    return {"median": round(statistics.median(seconds), 4), "largest": round(max(seconds), 4)}
