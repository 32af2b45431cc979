"""The viewer's application: addresses, templates, screenshots, labels."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from collection.viewer.guard import Guard
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import CHOICES, Labels
from collection.viewer.pages import NotFoundError, Page, Pages
from rmsweb_jax.errors import UserError

STATIC = Path(__file__).parent / "static"
_TEMPLATES = Path(__file__).parent / "templates"
_IMAGE_HEADERS = {
    # A screenshot is named by its bytes. What is no image runs nothing.
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
}
_MOST_BODY = 4_000
# (page, parameters) -> address.
Link = Callable[..., str]


def link(path: str, **asked: Any) -> str:
    """The address of a page of the server; empty parameters are left out."""
    query = urllib.parse.urlencode({name: value for name, value in asked.items() if value not in ("", None)})
    return f"{path}?{query}" if query else path


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        # Files of a run may be of another version, or damaged: what they lack is left out.
        undefined=jinja2.ChainableUndefined,
    )


def render(page: Page, link: Link, asset: Callable[[str], str], **values: Any) -> str:
    """Renders a page.

    Args:
      link: makes the address of another page, of a screenshot (`/image`) or of a plot.
      asset: makes that of a style sheet or a script.
    """
    template = _environment().get_template(f"{page.template}.html.j2")
    common = {"title": page.title, "link": link, "asset": asset, "choices_of": CHOICES, "live": False}
    return template.render(**{**common, "exported": False, "note": "", **values, **page.values})


class Viewer:
    """Answers requests for pages.

    Args:
      note: a line on every page, for example what is still being indexed.
    """

    def __init__(self, pages: Pages, index: EpisodeIndex, labels: Labels):
        self._pages, self._index, self._labels = pages, index, labels
        self.note = ""

    async def page(self, request: Request) -> Response:
        make = self._pages.routes[request.url.path]
        return await run_in_threadpool(self._page, make, dict(request.query_params))

    def _page(self, make: Callable[[Mapping[str, str]], Page], asked: Mapping[str, str]) -> Response:
        try:
            if not self.note:
                self._index.refresh()
            return HTMLResponse(self.render(make(asked)))
        except NotFoundError as error:
            return HTMLResponse(self.render(_problem("Not found", str(error))), 404)
        except (UserError, OSError, ValueError, TypeError, LookupError, jinja2.TemplateError) as error:
            # A folder that is damaged, of another version, or vanished while it is open.
            return HTMLResponse(self.render(_problem("This cannot be shown", str(error))), 500)

    def render(self, page: Page) -> str:
        return render(page, link, lambda name: f"/static/{name}", note=self.note)

    async def image(self, request: Request) -> Response:
        asked = request.query_params
        try:
            png = await run_in_threadpool(self._pages.image, asked.get("data", ""), asked.get("sha", ""))
        except NotFoundError as error:
            return PlainTextResponse(str(error), 404)
        return Response(png, media_type="image/png", headers=_IMAGE_HEADERS)

    async def plot(self, request: Request) -> Response:
        asked = dict(request.query_params)
        try:
            svg = await run_in_threadpool(self._pages.plot, asked)
        except NotFoundError as error:
            return PlainTextResponse(str(error), 404)
        # matplotlib's own styles; shown as an image, it runs no script anyway.
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return Response(svg, media_type="image/svg+xml", headers={"content-security-policy": policy})

    async def label(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > _MOST_BODY:
            return PlainTextResponse("too long", 413)
        form = dict(urllib.parse.parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        try:
            self._labels.put(form.get("kind", ""), form.get("name", ""), form.get("label", ""))
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        except OSError as error:
            return PlainTextResponse(f"not saved: {error}", 500)
        return PlainTextResponse(form.get("label", ""))


def _problem(title: str, text: str) -> Page:
    return Page("problem", title, {"text": text})


def make_app(viewer: Viewer, pages: Pages, token: str = "") -> Starlette:
    """The application; see `Guard` for `token`."""
    routes = [Route(path, viewer.page) for path in pages.routes]
    routes += [
        Route("/image", viewer.image),
        Route("/plot", viewer.plot),
        Route("/label", viewer.label, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token)])
