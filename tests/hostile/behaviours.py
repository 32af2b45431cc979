"""Behaviours of the hostile site: the answer of a page, the agent's plan there, and the expected outcome."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.hostile.server import Exchange, Serve

_PAGES = Path(__file__).with_name("pages")
NAME = "hostile.test"
# A secure context: some of what pages can do (service workers, the clipboard) they can do only there.
SECURE = "hostile.localhost"
BUTTON = "<h1>Shop</h1><button onclick='void 0'>Buy</button>"


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """One endpoint.

    Attributes:
      name: the first label of its host.
      about: what it does, for the table of results; "" where its page says it.
      serve: how it answers; None: with its page in `pages/`.
      plan: what the scripted model does, a step each (`tests.hostile.model`).
      outcomes: how an episode there may end.
      incidents: kinds that its record must hold.
      domain: the rest of its host's name.
      start: path of the page where the episode begins.
      leaks: its page connects to the forbidden server, and succeeds in an unguarded browser.
    """

    name: str
    about: str = ""
    serve: Serve | None = None
    plan: tuple[str, ...] = ("click 1", "done")
    outcomes: tuple[str, ...] = ("done",)
    incidents: tuple[str, ...] = ()
    domain: str = NAME
    start: str = "/"
    leaks: bool = False

    @property
    def host(self) -> str:
        return f"{self.name}.{self.domain}"

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.start}"


def document(text: str) -> str:
    """Returns a page; its scripts can send a text to their own server by `home(text)`."""
    title = "" if "<title>" in text else "<title>Shop</title>"
    return (
        f"<!doctype html><meta charset=utf-8>{title}<script>"
        "function home(text) { fetch('/home', {method: 'POST', body: text}); }"
        f"</script>\n{text}"
    )


def page(text: str) -> Serve:
    """Answers every path with one document, and sets a cookie that no other episode may send."""
    html = document(text)

    def serve(exchange: Exchange) -> None:
        name, _, domain = exchange.host.partition(".")
        if exchange.path == "/favicon.ico":
            exchange.send(b"", status="404 Not Found")
        else:
            exchange.send(html, headers={"Set-Cookie": f"visited={name}; Domain={domain}"})

    return serve


def with_pages(kind: str, *listed: Behaviour, **usual: Any) -> tuple[Behaviour, ...]:
    """Returns the listed behaviours, and those of the pages in `pages/KIND.html` that need no entry.

    In that file, each page is the text after a line `=== name: about`.

    Args:
      usual: of a behaviour without an entry.
    """
    pages: dict[str, tuple[str, str]] = {}
    for part in ("\n" + _PAGES.joinpath(f"{kind}.html").read_text(encoding="utf-8")).split("\n=== ")[1:]:
        head, _, text = part.partition("\n")
        name, _, about = head.partition(": ")
        assert name not in pages, name
        pages[name] = (about, text.strip())
    given = {one.name for one in listed}
    made = (*listed, *(Behaviour(name, **usual) for name in pages if name not in given))
    assert {one.name for one in made if one.serve is None} == set(pages)
    return tuple(
        dataclasses.replace(one, about=pages[one.name][0], serve=page(pages[one.name][1]))
        if one.serve is None
        else one
        for one in made
    )
