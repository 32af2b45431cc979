"""The viewer's application: addresses, templates, screenshots, labels."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable
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

from collection.viewer import episodes, runs
from collection.viewer.guard import Guard
from collection.viewer.index import RESULTS, result_of
from collection.viewer.labels import CHOICES
from collection.viewer.pages import Asked, NotFoundError, Page, Pages
from rmsweb_jax.errors import UserError

STATIC = Path(__file__).parent / "static"
# Path -> what makes its page. It raises `NotFoundError` for what is not there, and `UserError` for what is
# damaged.
ROUTES: dict[str, Callable[[Pages, Asked], Page]] = {
    "/": runs.all_runs,
    "/run": runs.run,
    "/trainings": runs.trainings,
    "/episodes": episodes.listed,
    "/episode": episodes.one,
    "/chain": episodes.chain,
    "/compare": episodes.compare,
    "/mined": episodes.mined,
    "/pair": episodes.pair,
    "/evaluation": runs.evaluation,
    "/judges": runs.judges,
    "/dates": runs.dates,
}
_IMAGE_HEADERS = {
    # A screenshot is named by its bytes. What is no image runs nothing.
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
}
# A folder that is damaged, of another version, or vanished while it is open.
BROKEN = (UserError, OSError, ValueError, TypeError, LookupError, AttributeError, jinja2.TemplateError)
_MOST_BODY = 4_000
# Seconds of a request in which failures of a run that goes on are explained.
_EXPLAIN_S = 0.5
# (page, parameters) -> address.
Link = Callable[..., str]


def link(path: str, **asked: Any) -> str:
    """The address of a page of the server; empty parameters are left out."""
    query = urllib.parse.urlencode({name: value for name, value in asked.items() if value not in ("", None)})
    return f"{path}?{query}" if query else path


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        # Files of a run may be of another version, or damaged: what they lack is left out.
        undefined=jinja2.ChainableUndefined,
    )


def render(page: Page, link: Link, asset: Callable[[str], str], **values: Any) -> str:
    """Renders a page.

    Args:
      link: makes the address of another page, or of a screenshot (`/image`).
      asset: makes that of a style sheet or a script.
    """
    common = {"title": page.title, "link": link, "asset": asset, "choices_of": CHOICES, "live": False}
    common |= {"results": RESULTS, "result_of": result_of, "exported": False, "note": ""}
    template = _environment().get_template(f"{page.template}.html.j2")
    return template.render(**{**common, **values, **page.values})


def problem(title: str, text: str) -> Page:
    return Page("problem", title, {"text": text})


class Viewer:
    """Answers requests for pages.

    Attributes:
      note: a line on every page, for example what is still being indexed.
    """

    def __init__(self, pages: Pages):
        self._pages = pages
        self.note = ""

    async def page(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, request.url.path, dict(request.query_params))

    def _page(self, path: str, asked: Asked) -> Response:
        try:
            if not self.note:
                self._pages.index.refresh(_EXPLAIN_S)
            return HTMLResponse(self.render(ROUTES[path](self._pages, asked)))
        except NotFoundError as error:
            return HTMLResponse(self.render(problem("Not found", str(error))), 404)
        except BROKEN as error:
            return HTMLResponse(self.render(problem("This cannot be shown", str(error))), 500)

    def render(self, page: Page) -> str:
        return render(page, link, lambda name: f"/static/{name}", note=self.note)

    async def image(self, request: Request) -> Response:
        try:
            png = await run_in_threadpool(self._pages.image, request.query_params)
        except NotFoundError as error:
            return PlainTextResponse(str(error), 404)
        return Response(png, media_type="image/png", headers=_IMAGE_HEADERS)

    async def label(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > _MOST_BODY:
            return PlainTextResponse("too long", 413)
        form = dict(urllib.parse.parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        try:
            self._pages.labels.put(form.get("kind", ""), form.get("name", ""), form.get("label", ""))
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        except OSError as error:
            return PlainTextResponse(f"not saved: {error}", 500)
        return PlainTextResponse(form.get("label", ""))


def make_app(viewer: Viewer, token: str = "") -> Starlette:
    """The application; see `Guard` for `token`."""
    routes = [Route(path, viewer.page) for path in ROUTES]
    routes += [
        Route("/image", viewer.image),
        Route("/label", viewer.label, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token)])
