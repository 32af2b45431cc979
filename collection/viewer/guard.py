"""What keeps the viewer safe to open: other sites cannot reach it, and recorded text runs nothing."""

from __future__ import annotations

import hmac
import urllib.parse

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
_HEADERS = {
    # Scripts, styles and images of the viewer alone; nothing else is loaded, framed or sent anywhere.
    "content-security-policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_COOKIE = "rmsweb_view"


class Guard(BaseHTTPMiddleware):
    """Refuses foreign hosts and origins, asks for the token, and sets the policy.

    Starlette's own check of hosts knows no IPv6 address and no origin.

    Args:
      token: must be in the first address that is opened (`?token=`); "" lets loopback's names in without one.
    """

    def __init__(self, app: ASGIApp, token: str = ""):
        super().__init__(app)
        self._token = token

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = self._refusal(request) or await call_next(request)
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        if not self._token and _host(headers.get("host", "")) not in LOOPBACK:
            # A site's name that is made to lead here (DNS rebinding).
            return PlainTextResponse("open this page by its address, http://127.0.0.1", 403)
        origin = headers.get("origin")
        # A link on another site may open a page here, but nothing of it may be embedded or sent from there.
        cross = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        embedded = cross and headers.get("sec-fetch-mode") != "navigate"
        if embedded or (origin is not None and urllib.parse.urlsplit(origin).netloc != headers.get("host")):
            return PlainTextResponse("another site asked for this page", 403)
        if not self._token or self._knows(request.cookies.get(_COOKIE, "")):
            return None
        if not self._knows(request.query_params.get("token", "")):
            return PlainTextResponse("give the token: the address that was printed has it", 401)
        # Out of the address, which people copy.
        answer = RedirectResponse(str(request.url.remove_query_params("token").replace(scheme="", netloc="")))
        answer.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
        return answer

    def _knows(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _host(value: str) -> str:
    """The name in a `Host` header; empty if it is none."""
    try:
        return urllib.parse.urlsplit(f"//{value}").hostname or ""
    except ValueError:
        return ""
