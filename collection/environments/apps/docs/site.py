"""Python 3.11's documentation from Debian's package: static pages with a search that runs in the page."""

from __future__ import annotations

import functools

from collection.environments.apps.application import Application, unpack
from collection.environments.apps.docs.pages import Pages
from collection.environments.miniwob import PageServer

# The pages' own scripts are links to files of the other packages.
PACKAGES = ("python3.11-doc", "libjs-jquery", "libjs-underscore", "libjs-sphinxdoc")
_HTML = "usr/share/doc/python3.11/html"


class PythonDocs(Application):
    """http://docs.test/; visitors cannot change it."""

    name = "docs"
    host = "docs.test"
    version = " ".join(PACKAGES)

    @functools.cached_property
    def pages(self) -> Pages:
        """What the installed files say, by which answers are checked."""
        return Pages(self.folder / _HTML)

    def _stop(self) -> None:
        self._server.close()

    def _make(self) -> None:
        unpack(PACKAGES, self.folder)

    def _serve(self) -> str:
        self._server = PageServer(self.folder / _HTML, self.host)
        return f"127.0.0.1:{self._server.port}"
