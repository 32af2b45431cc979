"""Python 3.11's documentation from Debian's package: static pages with a search that runs in the page."""

from __future__ import annotations

from collection.environments.apps.application import Application
from collection.environments.apps.debian import unpack
from collection.environments.page_server import PageServer

# The pages' own scripts are links to files of the other packages.
PACKAGES = ("python3.11-doc", "libjs-jquery", "libjs-underscore", "libjs-sphinxdoc")


class PythonDocs(Application):
    """http://docs.test/; nobody can change it."""

    name = "docs"
    host = "docs.test"
    version = " ".join(PACKAGES)

    def _stop(self) -> None:
        self._server.close()

    def _make(self) -> None:
        unpack(PACKAGES, self.folder)

    def _serve(self) -> str:
        self._server = PageServer(self.folder / "usr/share/doc/python3.11/html", self.host)
        return f"127.0.0.1:{self._server.port}"
