"""robots.txt (RFC 9309): whether a site allows its documents to `ROBOTS_AGENT`.

The file of an origin is fetched from the proxy's process over connections that the guard has judged, as those
of the browser are. Documents of other origins do not wait for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import zlib

import ada_url
import h11
from protego import Protego

from collection.browser.guard.policy import RequestTarget, read_url
from collection.browser.guard.refusals import RequestRefusedError, UpstreamUnreachableError
from collection.browser.guard.upstream import CHUNK, MAX_HEADER_BYTES, ProxyState, Upstream, header_values
from collection.browser.guard.upstream_proxy import UpstreamProxyError

# The product token that a robots.txt names, and the user agent of requests for it.
ROBOTS_AGENT = "rmsweb-jax"
# Limits of RFC 9309, sections 2.3.1.2 and 2.5.
_MAX_BYTES = 500 * 1024
_MAX_REDIRECTS = 5
_SECONDS = 10.0
# RFC 9309, section 2.4: an answer is used for a day. After a failure the site is asked again soon.
_KEPT_S = 24 * 3600.0
_RETRY_S = 60.0
_MAX_ORIGINS = 500
_FAILURES = (
    RequestRefusedError,
    UpstreamUnreachableError,
    UpstreamProxyError,
    OSError,
    ValueError,  # A name that TLS does not take.
)


@dataclasses.dataclass(frozen=True)
class _Rules:
    """What an origin's robots.txt says.

    Attributes:
      file: None allows everything.
      failure: why there is no answer, which disallows everything; empty if there is one.
    """

    file: Protego | None = None
    failure: str = ""

    def problem(self, url: str) -> str:
        if self.failure:
            return f"robots.txt of the site cannot be read ({self.failure}), which disallows all its pages"
        if self.file is None or self.file.can_fetch(url, ROBOTS_AGENT):
            return ""
        return f"robots.txt of the site disallows this page to {ROBOTS_AGENT}"


@dataclasses.dataclass(frozen=True)
class _Answer:
    status: int
    location: str
    body: bytes


class Robots:
    """The robots.txt files of the origins that one browser visits.

    Args:
      state: makes the connections, under the browser's policy.
    """

    def __init__(self, state: ProxyState) -> None:
        self._state = state
        self._files: dict[str, asyncio.Task[tuple[_Rules, float]]] = {}

    async def problem(self, url: str) -> str:
        """Returns why robots.txt disallows a document, in one line; empty if it does not."""
        parsed = ada_url.URL(url)
        if parsed.protocol not in ("http:", "https:"):
            return ""
        rules = await self._rules(parsed.origin)
        # Not for the file itself (RFC 9309, section 2.2.2).
        return "" if parsed.pathname == "/robots.txt" else rules.problem(parsed.href)

    async def _rules(self, origin: str) -> _Rules:
        now = asyncio.get_running_loop().time()
        task = self._files.get(origin)
        if task is None or (task.done() and task.result()[1] <= now):
            self._files.pop(origin, None)
            if len(self._files) >= _MAX_ORIGINS:
                del self._files[next(iter(self._files))]
            task = self._files[origin] = asyncio.ensure_future(self._read(origin))
        rules, _ = await asyncio.shield(task)
        return rules

    async def _read(self, origin: str) -> tuple[_Rules, float]:
        """Returns an origin's rules, and the time until which they are used."""
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(_SECONDS):
                upstream = await self._connect(f"{origin}/robots.txt")
        except (TimeoutError, *_FAILURES):
            # The document is not reached either, and the browser says why. It may be its attempt to find
            # https at a site that has http only, after which it asks for the latter.
            return _Rules(), now + _RETRY_S
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await self._fetch(f"{origin}/robots.txt", upstream)
            if answer.status < 500:
                return _Rules(_parse(answer.body) if answer.status < 300 else None), now + _KEPT_S
            failure = f"status {answer.status}"
        except TimeoutError:
            failure = f"no answer in {_SECONDS:g} s"
        except (h11.RemoteProtocolError, zlib.error):
            failure = "its answer is broken"
        except _FAILURES as error:
            failure = str(error)
        return _Rules(failure=failure), now + _RETRY_S

    async def _fetch(self, url: str, upstream: Upstream) -> _Answer:
        """Follows redirects. After too many of them the last one counts as an answer without rules."""
        answer = await _exchange(upstream, ada_url.URL(url))
        for _ in range(_MAX_REDIRECTS):
            if answer.status not in (301, 302, 303, 307, 308):
                break
            try:
                url = ada_url.join_url(url, answer.location)
            except ValueError:
                break
            answer = await _exchange(await self._connect(url), ada_url.URL(url))
        return answer

    async def _connect(self, url: str) -> Upstream:
        target = read_url(url)
        if not isinstance(target, RequestTarget):
            raise RequestRefusedError(target.reason.value, target.detail)
        upstream = await self._state.connect(target)
        if target.scheme == "https":
            try:
                await upstream.writer.start_tls(_TLS, server_hostname=target.host.strip("[]"))
            except BaseException:
                upstream.writer.transport.abort()
                raise
        return upstream


async def _exchange(upstream: Upstream, url: ada_url.URL) -> _Answer:
    """Sends a request, reads the response up to `_MAX_BYTES` and a piece more, and closes the connection."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
    headers = [
        ("Host", url.host),
        ("User-Agent", ROBOTS_AGENT),
        ("Accept-Encoding", "gzip"),
        ("Connection", "close"),
    ]
    request = h11.Request(method="GET", target=url.pathname + url.search, headers=headers)
    response, body = None, b""
    try:
        upstream.writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        while len(body) < _MAX_BYTES:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await upstream.reader.read(CHUNK))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                break
    finally:
        upstream.writer.transport.abort()
    if response is None:
        raise UpstreamUnreachableError("the connection was closed")
    if "gzip" in "".join(header_values(response.headers, b"content-encoding")).lower():
        body = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, _MAX_BYTES)
    location = "".join(header_values(response.headers, b"location")[:1])
    return _Answer(response.status_code, location, body)


def _parse(body: bytes) -> Protego:
    if len(body) >= _MAX_BYTES:
        # A rule that was cut off would disallow more than it says.
        body = body[:_MAX_BYTES].rpartition(b"\n")[0]
    return Protego.parse(body.decode("utf-8-sig", "replace"))


def _lenient_tls() -> ssl.SSLContext:
    """Returns TLS that takes any certificate, as nothing secret is sent.

    The browser completes chains of certificates that OpenSSL does not, and it judges the one of the document.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TLS = _lenient_tls()
