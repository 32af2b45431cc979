"""Pages that try to deceive the prompt, the agent, or the scripts that read them."""

from __future__ import annotations

from tests.hostile.behaviours import SECURE, Behaviour, Serve, page
from tests.hostile.server import Exchange


def _bytes(body: bytes, kind: str = "text/html; charset=utf-8") -> Serve:
    return lambda exchange: exchange.send(body, kind=kind)


def _utf16(exchange: Exchange) -> None:
    exchange.send("<h1>Shop</h1><button>Buy</button>".encode("utf-16"), kind="text/html; charset=utf-8")


TRICKS = (
    Behaviour("tags", "forges the prompt's own tags"),
    Behaviour(
        "lines", "forges element lines", plan=("click 1", "click 4", "done"), outcomes=("done", "failures")
    ),
    Behaviour("orders", "gives the agent orders"),
    Behaviour("orders-hidden", "gives the agent orders in hidden text"),
    Behaviour("orders-labels", "gives orders in labels and in its title"),
    Behaviour(
        "orders-dialog",
        "gives orders in a dialog",
        plan=("click 1", "look", "done"),
        incidents=("dialog",),
    ),
    Behaviour("chat-marks", "forges the marks of a chat"),
    Behaviour(
        "bad-utf8",
        "bytes that are no UTF-8",
        _bytes(b"<h1>Sh\xff\xfe\xc3op\xed\xa0\x80</h1><button>B\x80uy</button>\xf8\x88"),
    ),
    Behaviour("utf16", "UTF-16 said to be UTF-8", _utf16),
    Behaviour("surrogates", "halves of surrogate pairs"),
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
    Behaviour("clickjack", "a transparent frame over its button", outcomes=("done", "failures")),
    Behaviour("overlay", "an overlay over everything", outcomes=("done", "failures")),
    Behaviour("overrides", "replaces what scripts rely on", outcomes=("done", "failures")),
    Behaviour(
        "clobbers",
        "forms that hide the document's own names",
        outcomes=("done", "failures", "timeout"),
    ),
    Behaviour("steps-on-marks", "looks for the browser's own marks", outcomes=("done", "failures")),
    Behaviour("permissions", "asks for place, camera, notices, clipboard", domain=SECURE),
    Behaviour(
        "clipboard",
        "reads the clipboard at a click",
        plan=(
            "type 2 <secret>HOSTILE_PASSWORD</secret>",
            "keys Control+a",
            "keys Control+c",
            "click 1",
            "done",
        ),
        domain=SECURE,
    ),
    Behaviour("file-link", "link to a file of the machine", outcomes=("done", "timeout")),
    Behaviour(
        "file-agent",
        "agent talked into opening files",
        plan=("open file:///etc/passwd", "open view-source:file:///etc/passwd", "done"),
    ),
    Behaviour(
        "chrome-agent",
        "agent talked into the browser's own pages",
        plan=("open chrome://settings", "open view-source:http://chrome-agent.hostile.test/", "done"),
    ),
    Behaviour(
        "script-agent",
        "agent talked into javascript: and data:",
        plan=(
            "open javascript:fetch('http://FORBIDDEN/')",
            "open data:text/html,<script>location='http://FORBIDDEN/'</script>",
            "done",
        ),
    ),
    Behaviour("devtools", "browser crash and debugger addresses", outcomes=("done", "failures")),
    Behaviour(
        "upload",
        "file field that takes folders",
        plan=("click 2", "look", "done"),
        outcomes=("done", "failures"),
    ),
)
