"""A browser as people have it, without the project's guard, to open pages that the project made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from collection.browser.chromium import find_program


@contextmanager
def open_browser() -> Iterator[webdriver.Chrome]:
    """Headless Chromium that logs its console and its requests."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = find_program("", ("chromium", "chromium-browser", "google-chrome"))
    driver = webdriver.Chrome(options=options, service=Service(find_program("", ("chromedriver",))))
    try:
        yield driver
    finally:
        driver.quit()
