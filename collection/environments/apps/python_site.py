"""Applications of packages from PyPI, each in a Python environment of its own."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar

from collection.environments.apps import sqlite
from collection.environments.apps.application import Application, run_quietly
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.world import World

_WORLD = "world.json"


class PythonSite(Application):
    """A site that a script of ours makes, fills and serves, by the Python of the site's own environment.

    The script is called with `make KEPT`, `fill DATA` (the world is `DATA/world.json`: by table, pairs of key
    and row, and for `Accepts` an example), and `serve DATA PORT`.

    Attributes:
      requirements: packages, pinned.
      script: path of the script.
      ready: a path that answers as soon as the site is there.
      database: path of its SQLite database in `data`.
      tables: a SELECT by table of the world; see `sqlite.rows`.
    """

    requirements: ClassVar[Sequence[str]]
    script: ClassVar[pathlib.Path]
    ready: ClassVar[str]
    database: ClassVar[str]
    tables: ClassVar[Mapping[str, str]]

    def read(self) -> World:
        return sqlite.rows(self.data / self.database, self.tables)

    def _make(self) -> None:
        run_quietly([sys.executable, "-m", "venv", str(self.folder / "environment")])
        pip = (str(self._python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run_quietly([*pip, *self.requirements])
        self._run("make", str(self.kept))

    def _fill(self, world: World, data: pathlib.Path) -> None:
        rows = {table: list(rows.items()) for table, rows in world.items()}
        text = json.dumps(rows, default=lambda value: value.example)
        (data / _WORLD).write_text(text, encoding="utf-8")
        self._run("fill", str(data))
        (data / _WORLD).unlink()

    def _serve(self) -> str:
        command = ServerCommand(
            arguments=lambda port: [*self._command, "serve", str(self.data), str(port)],
            host=self.host,
            path=self.ready,
            log=self.live / "log",
            folder=self.folder,
        )
        self._server = ServerProcess(command)
        return self._server.address

    def _stop(self) -> None:
        self._server.close()

    def _run(self, *arguments: str) -> None:
        run_quietly([*self._command, *arguments])

    @property
    def _command(self) -> list[str]:
        # Isolated, because modules of ours in the same folder must not be imported instead of packages.
        return [str(self._python), "-I", str(self.script)]

    @property
    def _python(self) -> pathlib.Path:
        return self.folder / "environment/bin/python"
