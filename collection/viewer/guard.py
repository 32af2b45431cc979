"""What keeps the viewer safe to open: other sites cannot reach it, and recorded text runs nothing."""

from __future__ import annotations

import hmac
import urllib.parse

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
# Scripts, styles and images of the viewer alone; nothing else is loaded, framed or sent anywhere.
POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_COOKIE = "rmsweb_view"


class Guard:
    """ASGI middleware: refuses foreign hosts and origins, asks for the token, and sets the policy.

    Args:
      token: must be in the first address that is opened (`?token=`); "" lets loopback's names in without one.
    """

    def __init__(self, app: ASGIApp, token: str = ""):
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, with_policy)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        if not self._token and host_of(headers.get("host", "")) not in LOOPBACK:
            # A site's name that is made to lead here (DNS rebinding).
            return PlainTextResponse("open this page by its address, http://127.0.0.1", 403)
        if _is_foreign(headers):
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


def host_of(value: str) -> str:
    """The name in a `Host` header; empty if it is none."""
    try:
        return urllib.parse.urlsplit(f"//{value}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(headers: Headers) -> bool:
    origin = headers.get("origin")
    if origin is not None and urllib.parse.urlsplit(origin).netloc != headers.get("host"):
        return True
    # A link on another site may open a page here, but nothing of it may be embedded or sent from there.
    cross = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return cross and headers.get("sec-fetch-mode") != "navigate"
