import pytest

from tests.browser.plain import open_browser


@pytest.fixture(scope="module")
def driver():
    with open_browser() as one:
        yield one
