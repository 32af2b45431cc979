"""An application without dependencies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collection.environments.apps.application import Application
from rmsweb_jax.errors import UserError


class Notebook(Application):
    """A file that visitors write to."""

    name, host, version = "notebook", "notebook.test", "1"
    made = 0
    broken = False

    def _make(self) -> None:
        type(self).made += 1
        (self.kept / "note").write_text(f"version {self.version}")
        if self.broken:
            raise UserError("cannot download")

    def _serve(self) -> str:
        return "127.0.0.1:1"

    def _stop(self) -> None:
        pass


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Notebook]]:
    monkeypatch.setattr(Notebook, "made", 0)
    yield Notebook
