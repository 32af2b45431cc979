"""Pages that try to deceive the prompt, the agent, or the scripts that read them."""

from __future__ import annotations

from tests.hostile.behaviours import SECURE, Behaviour, Serve, page, with_pages
from tests.hostile.server import Exchange


def _bytes(body: bytes, kind: str = "text/html; charset=utf-8") -> Serve:
    return lambda exchange: exchange.send(body, kind=kind)


def _utf16(exchange: Exchange) -> None:
    exchange.send("<h1>Shop</h1><button>Buy</button>".encode("utf-16"), kind="text/html; charset=utf-8")


TRICKS = with_pages(
    "tricks",
    Behaviour("lines", plan=("click 1", "click 4", "done"), outcomes=("done", "failures")),
    Behaviour(
        "orders-dialog",
        plan=("click 1", "look", "done"),
        incidents=("dialog",),
    ),
    Behaviour(
        "bad-utf8",
        "bytes that are no UTF-8",
        _bytes(b"<h1>Sh\xff\xfe\xc3op\xed\xa0\x80</h1><button>B\x80uy</button>\xf8\x88"),
    ),
    Behaviour("utf16", "UTF-16 said to be UTF-8", _utf16),
    Behaviour(
        "controls",
        "control and null characters",
        page("<h1>Sh&#1;o&#8;p&#27;[31m</h1><button>B\x00u\x0by</button>"),
        outcomes=("done",),
    ),
    Behaviour(
        "directions",
        "right-to-left and invisible characters",
        page(
            "<h1>Shop \u202egnipohs\u202c \u200b\u200d\u2066\ufeff</h1>"
            "<button>\u200bB\u200bu\u200by\U000e0041\U000e0042</button>"
        ),
    ),
    Behaviour("clickjack", outcomes=("done", "failures")),
    Behaviour("overlay", outcomes=("done", "failures")),
    Behaviour("overrides", outcomes=("done", "failures")),
    Behaviour(
        "clobbers",
        outcomes=("done", "failures", "timeout"),
    ),
    Behaviour("steps-on-marks", outcomes=("done", "failures")),
    Behaviour("permissions", domain=SECURE),
    Behaviour(
        "clipboard",
        plan=(
            "type 2 <secret>HOSTILE_PASSWORD</secret>",
            "keys Control+a",
            "keys Control+c",
            "click 1",
            "done",
        ),
        domain=SECURE,
    ),
    Behaviour("file-link", outcomes=("done", "timeout")),
    Behaviour(
        "file-agent",
        plan=("open file:///etc/passwd", "open view-source:file:///etc/passwd", "done"),
    ),
    Behaviour(
        "chrome-agent",
        plan=("open chrome://settings", "open view-source:http://chrome-agent.hostile.test/", "done"),
    ),
    Behaviour(
        "script-agent",
        plan=(
            "open javascript:fetch('http://FORBIDDEN/')",
            "open data:text/html,<script>location='http://FORBIDDEN/'</script>",
            "done",
        ),
    ),
    Behaviour("devtools", outcomes=("done", "failures")),
    Behaviour(
        "upload",
        plan=("click 2", "look", "done"),
        outcomes=("done", "failures"),
    ),
)
