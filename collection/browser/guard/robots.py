"""robots.txt (RFC 9309): whether a site allows its documents to `ROBOTS_AGENT`.

The file of an origin is fetched through the browser's egress, over connections that are judged as those of
the browser are. Documents of other origins do not wait for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
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
        # The end of use of each origin's file, and the file: None allows everything, a text is the reason why
        # there is no answer.
        self._files: dict[str, asyncio.Task[tuple[float, Protego | str | None]]] = {}
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
        if task is None or (task.done() and task.result()[0] <= time.monotonic()):
            self._files.pop(parsed.origin, None)
            if len(self._files) >= _MAX_ORIGINS:
                del self._files[next(iter(self._files))]
            task = self._files[parsed.origin] = asyncio.ensure_future(self._read(parsed.origin))
        _, file = await asyncio.shield(task)
        # Not for the file itself (RFC 9309, section 2.2.2).
        if file is None or parsed.pathname == "/robots.txt":
            return ""
        if isinstance(file, str):
            return f"robots.txt of the site cannot be read ({file}), which disallows all its pages"
        allowed = file.can_fetch(parsed.href, ROBOTS_AGENT)
        return "" if allowed else f"robots.txt of the site disallows this page to {ROBOTS_AGENT}"

    async def _read(self, origin: str) -> tuple[float, Protego | str | None]:
        file: Protego | str | None = None
        try:
            # A server that sends a byte now and then is within the limit of each read.
            async with asyncio.timeout(2 * _SECONDS):
                url, loop = f"{origin}/robots.txt", asyncio.get_running_loop()
                file = await loop.run_in_executor(self._threads, self._fetch, url)
            return time.monotonic() + _KEPT_S, file
        except (TimeoutError, ReadTimeoutError):
            file = f"no answer in {_SECONDS:g} s"
        except (NewConnectionError, ConnectTimeoutError, SSLError):
            # The document is not reached either, and the browser says why. It may be its attempt to find
            # https at a site that has http only, after which it asks for the latter.
            pass
        except (HTTPError, ValueError):
            file = "its answer is broken"
        except _FailedError as error:
            file = str(error)
        return time.monotonic() + _RETRY_S, file

    def _fetch(self, url: str) -> Protego | None:
        """Returns a file, up to `_MAX_BYTES`; None for an answer without rules.

        Follows redirects. After too many of them the last one counts as an answer without rules.

        Raises:
          NewConnectionError, ConnectTimeoutError, SSLError: there is no connection to the site.
          _FailedError, HTTPError, ValueError: there is no answer.
        """
        for hops in range(_MAX_REDIRECTS + 1):
            verdict = self._judge(url)
            if not verdict.allowed and hops:
                raise _FailedError(f"{verdict.reason}: {verdict.detail}")
            try:
                response = self._http.request("GET", url, redirect=False, preload_content=False)
            except (NewConnectionError, ConnectTimeoutError, SSLError) as error:
                if not hops:
                    raise
                raise _FailedError(f"{ada_url.URL(url).host} cannot be reached") from error
            try:
                body = response.read(_MAX_BYTES) if response.status < 300 else b""
            except SSLError as error:
                raise _FailedError("its answer is broken") from error
            finally:
                response.close()
            if response.status >= 500:
                raise _FailedError(f"status {response.status}")
            if response.status < 300:
                # A rule that was cut off would disallow more than it says.
                whole = body if len(body) < _MAX_BYTES else body[:_MAX_BYTES].rpartition(b"\n")[0]
                return Protego.parse(whole.decode("utf-8-sig", "replace"))
            location = response.get_redirect_location()
            if not location:
                return None
            try:
                url = ada_url.join_url(url, location)
            except ValueError:
                return None
        return None
