"""One guarded application for each file that uses the proxy directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collection.browser.guard.guard import Guard
from tests.browser.guard.app import HOST, LIMITS, App
from tests.browser.guard.servers import answering


@pytest.fixture(scope="module")
def app() -> App:
    return App()


@pytest.fixture(scope="module")
def guard(app: App) -> Iterator[Guard]:
    with answering(app) as port:
        place = f"127.0.0.1:{port}"
        with Guard(LIMITS, {HOST: place, "other.test": place, "gone.test": "127.0.0.1:9"}) as held:
            yield held
