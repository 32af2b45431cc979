"""A fleet's ledger in its parent process, which all workers reach by its address.

Only this process opens the file. Workers that open it themselves wait for each other's locks, and need a disk
that all of them share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from collection.llm.ledger import CallLedger

P = ParamSpec("P")
R = TypeVar("R")

_BACKLOG = 4096  # Workers that connect at the same moment.
_PATIENCE_S = 300.0


@dataclasses.dataclass(frozen=True)
class LedgerAddress:
    """Where a ledger is served.

    Attributes:
      key: proves that both sides belong to the same run.
    """

    host: str
    port: int
    key: bytes = dataclasses.field(repr=False)


def _remote(method: Callable[Concatenate[CallLedger, P], R]) -> Callable[Concatenate[RemoteLedger, P], R]:
    """A method of `RemoteLedger` that calls one of the served ledger; arguments go by position."""

    @functools.wraps(method)
    def call(self: RemoteLedger, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs
        return self.ask(method.__name__, args)

    return call


class RemoteLedger:
    """The ledger of another process; threads can share an object.

    Raises:
      ConnectionError: from every method: that process is gone.
    """

    def __init__(self, address: LedgerAddress):
        self._link = Client((address.host, address.port))
        if not self._link.poll(_PATIENCE_S):
            raise ConnectionError("the process of this run's ledger does not answer")
        answer_challenge(self._link, address.key)
        deliver_challenge(self._link, address.key)
        self._lock = threading.Lock()
        self._ahead = self.ask("now", ()) - time.monotonic()

    def now(self) -> float:
        """Returns the time of `CallLedger.now` there; clocks of machines may differ."""
        return self._ahead + time.monotonic()

    def close(self) -> None:
        self._link.close()

    def ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Calls a method of the served ledger, or another function there; raises what it raises."""
        with self._lock:
            try:
                self._link.send((method, arguments))
                if not self._link.poll(_PATIENCE_S):
                    raise ConnectionError("the process of this run's ledger does not answer")
                result, error = self._link.recv()
            except EOFError as lost:
                raise ConnectionError("the process of this run's ledger has ended") from lost
        if error is not None:
            raise error
        return result

    open_call = _remote(CallLedger.open_call)
    extend_call = _remote(CallLedger.extend_call)
    settle_call = _remote(CallLedger.settle_call)
    take = _remote(CallLedger.take)
    give = _remote(CallLedger.give)
    pause = _remote(CallLedger.pause)
    outage = _remote(CallLedger.outage)
    begin_outage = _remote(CallLedger.begin_outage)
    claim_probe = _remote(CallLedger.claim_probe)
    postpone_probe = _remote(CallLedger.postpone_probe)
    end_outage = _remote(CallLedger.end_outage)


@contextlib.contextmanager
def serve_ledger(
    path: Path, host: str = "127.0.0.1", others: Mapping[str, Callable[..., Any]] | None = None
) -> Iterator[tuple[CallLedger, LedgerAddress]]:
    """Opens a ledger for this process alone and answers for it in threads.

    Args:
      host: address to listen on; "" is all of this machine, for workers on others.
      others: functions that `RemoteLedger.ask` can call in addition to the ledger's.

    Yields:
      The ledger, and the address of `RemoteLedger`.

    Raises:
      UserError: as `CallLedger`.
    """
    key, over = secrets.token_bytes(32), threading.Event()
    # Each worker has some connections.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with (
        contextlib.closing(CallLedger(path, alone=True)) as ledger,
        Listener((host, 0), backlog=_BACKLOG) as listener,
    ):
        port = int(listener.address[1])

        def accept() -> None:
            while not over.is_set():
                try:
                    link = listener.accept()
                except OSError:  # Descriptors may be free again later.
                    over.wait(0.1)
                    continue
                threading.Thread(target=_answer, args=(link, ledger, key, others or {}), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield ledger, LedgerAddress(host or own_address(), port, key)
        finally:
            over.set()
            socket.create_connection((host or "127.0.0.1", port)).close()  # It waits for one.
            thread.join()


def _answer(
    link: Connection, ledger: CallLedger, key: bytes, others: Mapping[str, Callable[..., Any]]
) -> None:
    with link, contextlib.suppress(EOFError, OSError, AuthenticationError):
        # Here and not in the listener, which others would wait for.
        deliver_challenge(link, key)
        answer_challenge(link, key)
        while True:
            method, arguments = link.recv()
            try:
                answer = (others.get(method) or getattr(ledger, method))(*arguments), None
            except Exception as error:
                answer = None, error
            link.send(answer)


def own_address() -> str:
    """The address from which this machine reaches others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]
    return "127.0.0.1"
