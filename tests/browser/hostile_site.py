"""A site whose pages hang, open dialogs, open windows, close themselves or deceive."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tests.browser.pdfs import make_pdf
from tests.loopback import PageHandler, serving

_PAGES = {
    "/fine": "<title>fine</title><button>Fine</button>",
    "/hang": "<button onclick='for (;;);'>Hang</button>",
    "/hang-at-once": "x<script>for (;;);</script>",
    "/prompts": "<button onclick='document.title = [prompt(1), confirm(2)]'>On</button>",
    "/stay": "<input><script>onbeforeunload = (e) => { e.preventDefault(); return 'stay' }</script>",
    "/storm": "<button onclick='for (let i = 0; i < 200; i++) window.open(\"/fine\")'>Open</button>"
    "<script>for (let i = 0; i < 50; i++) window.open('/fine')</script>",
    "/slow": "<title>Slow</title><button>Buy</button><script src=/silent></script>Later",
    "/slow-link": "<a href=/slow>Slow page</a>",
    "/never": "<a href=/silent target=_blank>Never</a>",
    "/opener": "<button onclick='window.open(\"/closer\")'>Open</button>",
    "/closer": "<title>closer</title><script>close()</script>",
    "/ask": '<button onclick="navigator.geolocation.getCurrentPosition(() => {}, (e) => {'
    ' Notification.requestPermission().then((r) => document.title = e.code + r) })">Ask</button>',
    "/links": "<a href='file:///etc/hostname'>f</a><a href='chrome://settings'>c</a>"
    "<a href='view-source:http://127.0.0.1/'>v</a><a href='mailto:a@b.test'>m</a>",
    "/downloads": "<a href='/data.csv'>csv</a><a href='/odd'>odd</a><a href='/big'>big</a>"
    "<button onclick=\"for (let i = 0; i < 30; i++) { const a = document.createElement('a');"
    " a.href = '/data.csv'; a.download = i + '.csv'; a.click() }\">storm</button>",
    "/keep": "<script>localStorage.a = document.cookie = 'a=1'</script>",
}


class _Handler(PageHandler):
    closing = threading.Event()

    def get(self) -> None:
        # The browser may have stopped to listen. What has no answer ends without a word.
        with contextlib.suppress(OSError):
            self._answer()

    def _answer(self) -> None:
        if self.path in _PAGES:
            self.reply(_PAGES[self.path])
        elif self.path == "/data.csv":
            self.reply("a,b\n1,2\n", "text/csv")
        elif self.path == "/report":
            self.reply(make_pdf("Hello there"), "application/pdf")
        elif self.path == "/odd":
            name = 'attachment; filename="../../e $(v).txt"'
            self.reply("x", "text/plain", headers={"Content-Disposition": name})
        elif self.path == "/redirects":
            self.reply("", status=302, headers={"Location": "/redirects"})
        elif self.path == "/login":
            self.reply("", status=401, headers={"WWW-Authenticate": "Basic realm=x"})
        elif self.path == "/big":
            self.reply(bytes(100_000_000), "application/zip")
        elif self.path == "/silent":
            self.closing.wait(10)


@contextlib.contextmanager
def hostile_site() -> Iterator[str]:
    """The URL of the site, at `http://127.0.0.1:PORT`."""
    _Handler.closing.clear()
    with serving(_Handler) as address:
        yield f"http://{address}"
        _Handler.closing.set()
