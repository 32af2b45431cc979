"""The HTTP client under both API libraries: a limit on the whole call, and errors in one form."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from collection.llm.model import TransientError

# Far above what any answer is; a server that sends without end is left.
_MAX_BYTES = 32 * 2**20
# A line for every call would bury what a run has to say; calls are in the ledger.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class Client(httpx2.Client):
    """A client whose timeout holds for the whole answer: httpx2's own begins anew with every piece of it.

    Args:
      timeout_s: for connecting, for each piece, and for all of it.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic):
        super().__init__(timeout=timeout_s)
        self._timeout_s, self._clock = timeout_s, clock

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Raises `ReadTimeout` where the answer is not whole in time, `ReadError` where it has no end."""
        end = self._clock() + self._timeout_s
        response = super().send(request, stream=True, **options)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Limited(response.stream, end, self._clock, request)
        if not stream:
            try:
                response.read()
            finally:
                response.close()
        return response


class _Limited(httpx2.SyncByteStream):
    def __init__(
        self, stream: httpx2.SyncByteStream, end: float, clock: Callable[[], float], request: httpx2.Request
    ):
        self._stream, self._end, self._clock, self._request = stream, end, clock, request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > _MAX_BYTES:
                raise httpx2.ReadError(f"an answer of more than {_MAX_BYTES} bytes", request=self._request)
            if self._clock() > self._end:
                raise httpx2.ReadTimeout("the answer is not whole in time", request=self._request)
            yield piece

    def close(self) -> None:
        self._stream.close()


def transport_error(endpoint: str, error: httpx2.TransportError) -> TransientError:
    """What a broken or late connection means for the call."""
    reason = f"{endpoint}: {type(error).__name__}: {error}"
    # Once the request is out, the model may have worked for it.
    lost = (httpx2.ReadTimeout, httpx2.ReadError, httpx2.RemoteProtocolError)
    return TransientError(" ".join(reason.split()), billed=isinstance(error, lost))
