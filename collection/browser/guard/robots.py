"""robots.txt (RFC 9309): whether a site allows its documents to `ROBOTS_AGENT`.

The file of an origin is fetched through the browser's egress, over connections that are judged as those of
the browser are. Documents of other origins do not wait for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import ssl
import time
from collections.abc import Callable

import ada_url
import urllib3
from protego import Protego
from urllib3.contrib.socks import SOCKSProxyManager
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InsecureRequestWarning,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from collection.browser.guard.policy import PolicyVerdict

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
_FETCHES = 8  # At a time.
_HEADERS = {"User-Agent": ROBOTS_AGENT, "Accept-Encoding": "gzip", "Connection": "close"}
# No certificate is checked, see `Robots`.
urllib3.disable_warnings(InsecureRequestWarning)


class _FailedError(Exception):
    """There is no answer, which disallows everything; the message says why."""


@dataclasses.dataclass(frozen=True)
class _Rules:
    """What an origin's robots.txt says.

    Attributes:
      until: time until which it is used.
      file: None allows everything.
      failure: why there is no answer, which disallows everything; empty if there is one.
    """

    until: float
    file: Protego | None = None
    failure: str = ""

    def problem(self, url: str) -> str:
        if self.failure:
            return f"robots.txt of the site cannot be read ({self.failure}), which disallows all its pages"
        if self.file is None or self.file.can_fetch(url, ROBOTS_AGENT):
            return ""
        return f"robots.txt of the site disallows this page to {ROBOTS_AGENT}"


class Robots:
    """The robots.txt files of the origins that one browser visits.

    Any certificate is taken, as nothing secret is sent: the browser completes chains of certificates that
    OpenSSL does not, and it judges the one of the document.

    Args:
      port: the egress on this machine.
      judge: the policy; what it refuses is not asked for.
    """

    def __init__(self, port: int, judge: Callable[[str], PolicyVerdict]) -> None:
        self._judge = judge
        self._files: dict[str, asyncio.Task[_Rules]] = {}
        # Not those of the loop: they look up the names that these wait for.
        self._threads = concurrent.futures.ThreadPoolExecutor(_FETCHES, "robots")
        self._http = SOCKSProxyManager(
            f"socks5h://127.0.0.1:{port}",
            cert_reqs=ssl.CERT_NONE,
            assert_hostname=False,
            headers=_HEADERS,
            timeout=urllib3.Timeout(connect=_SECONDS, read=_SECONDS),
            retries=False,
        )

    async def problem(self, url: str) -> str:
        """Returns why robots.txt disallows a document, in one line; empty if it does not."""
        parsed = ada_url.URL(url)
        if parsed.protocol not in ("http:", "https:"):
            return ""
        task = self._files.get(parsed.origin)
        if task is None or (task.done() and task.result().until <= time.monotonic()):
            self._files.pop(parsed.origin, None)
            if len(self._files) >= _MAX_ORIGINS:
                del self._files[next(iter(self._files))]
            task = self._files[parsed.origin] = asyncio.ensure_future(self._read(parsed.origin))
        rules = await asyncio.shield(task)
        # Not for the file itself (RFC 9309, section 2.2.2).
        return "" if parsed.pathname == "/robots.txt" else rules.problem(parsed.href)

    async def _read(self, origin: str) -> _Rules:
        try:
            # A server that sends a byte now and then is within the limit of each read.
            async with asyncio.timeout(2 * _SECONDS):
                url, loop = f"{origin}/robots.txt", asyncio.get_running_loop()
                file = await loop.run_in_executor(self._threads, self._read_file, url)
        except TimeoutError:
            return _Rules(time.monotonic() + _RETRY_S, failure=f"no answer in {_SECONDS:g} s")
        except _FailedError as error:
            return _Rules(time.monotonic() + _RETRY_S, failure=str(error))
        except (NewConnectionError, ConnectTimeoutError, SSLError):
            # The document is not reached either, and the browser says why. It may be its attempt to find
            # https at a site that has http only, after which it asks for the latter.
            return _Rules(time.monotonic() + _RETRY_S)
        return _Rules(time.monotonic() + _KEPT_S, file)

    def _read_file(self, url: str) -> Protego | None:
        body = self._fetch(url)
        return None if body is None else _parse(body)

    def _fetch(self, url: str) -> bytes | None:
        """Returns a file, up to `_MAX_BYTES`; None for an answer without rules.

        Follows redirects. After too many of them the last one counts as an answer without rules.

        Raises:
          NewConnectionError, ConnectTimeoutError, SSLError: there is no connection to the site.
          _FailedError: there is no answer.
        """
        for hops in range(_MAX_REDIRECTS + 1):
            verdict = self._judge(url)
            if not verdict.allowed and hops:
                raise _FailedError(f"{verdict.reason}: {verdict.detail}")
            try:
                response = self._http.request("GET", url, redirect=False, preload_content=False)
                try:
                    body = response.read(_MAX_BYTES) if response.status < 300 else b""
                except SSLError as error:
                    raise _FailedError("its answer is broken") from error
                finally:
                    response.close()
            except (NewConnectionError, ConnectTimeoutError, SSLError) as error:
                if not hops:
                    raise
                raise _FailedError(f"{ada_url.URL(url).host} cannot be reached") from error
            except ReadTimeoutError as error:
                raise _FailedError(f"no answer in {_SECONDS:g} s") from error
            except (HTTPError, ValueError) as error:
                raise _FailedError("its answer is broken") from error
            if response.status >= 500:
                raise _FailedError(f"status {response.status}")
            location = response.get_redirect_location()
            if response.status < 300 or not location:
                return body if response.status < 300 else None
            try:
                url = ada_url.join_url(url, location)
            except ValueError:
                return None
        return None


def _parse(body: bytes) -> Protego:
    if len(body) >= _MAX_BYTES:
        # A rule that was cut off would disallow more than it says.
        body = body[:_MAX_BYTES].rpartition(b"\n")[0]
    return Protego.parse(body.decode("utf-8-sig", "replace"))
