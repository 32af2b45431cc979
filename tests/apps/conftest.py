"""An application without dependencies."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from collection.environments.apps.application import Application
from collection.environments.apps.templates import Draw, change, drawn
from collection.environments.apps.world import World
from rmsweb_jax.errors import UserError


def note(draw: Draw) -> str:
    return f"note {draw.randint(0, 10**9)}"


class Notebook(Application):
    """A file that visitors write to."""

    name, host, version = "notebook", "notebook.test", "1"
    templates = {"write": change('Write "{new_text}".', "notes", text=drawn(note))}  # noqa: RUF012
    made = filled = 0
    broken = False

    def make_world(self, draw: Draw) -> World:
        return {"notes": {1: {"text": note(draw)}}}

    def read(self) -> World:
        return {"notes": {1: {"text": (self.data / "note").read_text()}}}

    def _make(self) -> None:
        type(self).made += 1
        (self.kept / "note").write_text("")
        if self.broken:
            raise UserError("cannot download")

    def _fill(self, world: World, data: pathlib.Path) -> None:
        type(self).filled += 1
        (data / "note").write_text(world["notes"][1]["text"])

    def _serve(self) -> str:
        return "127.0.0.1:1"

    def _stop(self) -> None:
        pass


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Notebook]]:
    monkeypatch.setattr(Notebook, "made", 0)
    monkeypatch.setattr(Notebook, "filled", 0)
    yield Notebook
