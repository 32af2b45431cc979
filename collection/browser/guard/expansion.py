"""How large a compressed response is once unpacked, counted as it passes, a piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from collection.browser.guard.config import MB, GuardConfig
from collection.browser.guard.ledger import RefusedError

# What browsers unpack. They ask for the other two on secure connections alone, so nobody misses them here.
_READ = {"gzip", "x-gzip", "deflate"}
_UNREAD = {"br", "zstd", "dcb", "dcz", "compress", "x-compress"}
ACCEPTED = b"gzip, deflate"
_PIECE = 1 << 16
_SMALL = 4 * MB
_LAYERS = 3


class Expansion:
    """Counts what a body unpacks to.

    Args:
      encodings: the values of Content-Encoding, in order.

    Raises:
      RefusedError: it cannot be counted (from here), or is too much (from `feed`).
    """

    def __init__(self, encodings: list[str], config: GuardConfig) -> None:
        names = [name.strip().lower() for line in encodings for name in line.split(",")]
        if unread := sorted(_UNREAD.intersection(names)):
            raise RefusedError("expansion", f"a body in {unread[0]}, which nobody has asked for")
        layers = [name for name in names if name in _READ]
        if len(layers) > _LAYERS:
            raise RefusedError("expansion", f"a body compressed {len(layers)} times")
        self._layers = [_Layer(name) for name in reversed(layers)]
        self._most, self._ratio = config.max_expanded_mb * MB, config.max_expansion
        self._wire = self._expanded = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the body, before anybody else has them."""
        if not self._layers:
            return
        self._wire += len(data)
        for size in self._sizes(data, 0):
            self._expanded += size
            if self._expanded > self._most:
                raise RefusedError("expansion", f"unpacks to more than {self._most / MB:g} MB")
            if self._expanded > max(_SMALL, self._ratio * self._wire):
                raise RefusedError("expansion", f"unpacks to more than {self._ratio:g} times its size")

    def _sizes(self, data: bytes, layer: int) -> Iterator[int]:
        if layer == len(self._layers):
            yield len(data)
            return
        for piece in self._layers[layer].pieces(data):
            yield from self._sizes(piece, layer + 1)


class _Layer:
    """One decoder. What it cannot read a browser shows as it is, or not at all."""

    def __init__(self, name: str) -> None:
        self._raw_deflate = name == "deflate"
        self._zlib: zlib._Decompress | None = None
        self._plain = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._zlib is None and data:
            # "deflate" is zlib's format or the bare one; the first byte tells.
            bare = self._raw_deflate and data[0] & 0x0F != 8
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        while data and not self._plain:
            assert self._zlib is not None
            try:
                yield self._zlib.decompress(data, _PIECE)
            except zlib.error:
                self._plain = True
                break
            data = self._zlib.unconsumed_tail
            if self._zlib.eof:
                self._plain, data = True, self._zlib.unused_data
        if data:
            yield data
