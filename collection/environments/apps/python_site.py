"""Applications of packages from PyPI, each in a Python environment of its own."""

from __future__ import annotations

import abc
import pathlib
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from collection.environments.apps.application import Application, run_quietly
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.sqlite import content, restore


class PythonSite(Application):
    """A site that a script of ours makes and serves, by the Python of the site's own environment.

    Attributes:
      requirements: packages, pinned.
      script: called with `serve`, `_served`, and a port.
      ready: a path that answers as soon as the site is there.
      database: path of its SQLite database in `kept` and in `data`.
      by_views: tables that looking at pages writes, left out of `content`.
    """

    requirements: ClassVar[Sequence[str]]
    script: ClassVar[pathlib.Path]
    ready: ClassVar[str]
    database: ClassVar[str]
    by_views: ClassVar[Collection[str]] = ()

    def reset(self) -> None:
        if self.address:  # The server has it open.
            restore(self.kept / self.database, self.data / self.database)
        else:
            shutil.copytree(self.kept, self.data, dirs_exist_ok=True)

    def content(self) -> dict[str, Any]:
        return content(self.data / self.database, without=self.by_views)

    def _make(self) -> None:
        run_quietly([sys.executable, "-m", "venv", str(self.folder / "environment")])
        pip = (str(self._python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run_quietly([*pip, *self.requirements])
        self._seed()

    @abc.abstractmethod
    def _seed(self) -> None:
        """Fills `kept`, by `run_script`."""

    def _serve(self) -> str:
        command = ServerCommand(
            arguments=lambda port: [*self._command, "serve", *self._served, str(port)],
            host=self.host,
            path=self.ready,
            log=self.live / "log",
            folder=self.folder,
        )
        self._server = ServerProcess(command)
        return self._server.address

    def _stop(self) -> None:
        self._server.close()

    @property
    def _served(self) -> Sequence[str]:
        """Folders that the script serves from."""
        return (str(self.data),)

    def run_script(self, *arguments: str) -> None:
        run_quietly([*self._command, *arguments])

    @property
    def _command(self) -> list[str]:
        # Isolated, because modules of ours in the same folder must not be imported instead of packages.
        return [str(self._python), "-I", str(self.script)]

    @property
    def _python(self) -> pathlib.Path:
        return self.folder / "environment/bin/python"
