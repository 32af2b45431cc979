"""The documentation of an invented library: static pages of Sphinx, with a search that runs in the page."""

from __future__ import annotations

import pathlib

from collection.environments.apps.application import digest
from collection.environments.apps.docs.tasks import CARRIED, TEMPLATES
from collection.environments.apps.docs.world import make_world
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World
from collection.environments.miniwob import PageServer

REQUIREMENTS = ("Sphinx==7.4.7", "docutils==0.21.2")
_SCRIPT = pathlib.Path(__file__).with_name("build.py")


class Docs(PythonSite):
    """http://docs.test/; visitors cannot change it, so it always holds the world of its seed."""

    name = "docs"
    host = "docs.test"
    templates = TEMPLATES
    carried = CARRIED
    requirements, script = REQUIREMENTS, _SCRIPT
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)

    def read(self) -> World:
        return self.world(self.seed)

    def _serve(self) -> str:
        self._pages = PageServer(self.data / "html", self.host)
        return f"127.0.0.1:{self._pages.port}"

    def _stop(self) -> None:
        self._pages.close()
