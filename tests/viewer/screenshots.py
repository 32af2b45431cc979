"""Takes a picture of every page of some runs, at two widths, light and dark.

python -m tests.viewer.screenshots runs/demo pictures
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser.plain import open_browser
from tests.viewer.serving import open_viewer

WIDTHS, SCHEMES, HEIGHT = (1280, 390), ("light", "dark"), 900
# Page -> the page that links to it, and where the link is.
_WAYS = {
    "episode": ("/episodes", "#episodes tbody th a"),
    "chain": ("/episodes?sort=-attempt", "#episodes tbody td.n a"),
    "mined": ("/", "a[href^='/mined']"),
    "pair": ("mined", "tbody th a"),
    "live": ("/", "a[href^='/live']"),
    "training": ("/", "a[href^='/training'][href$='rl']"),
    "evaluation": ("/", "nav a[href^='/evaluation']"),
    "compare": ("/evaluation?differ=1", "#tasks tbody th a"),
}


def addresses(driver: webdriver.Chrome, address: str) -> dict[str, str]:
    """The address of each page, found by its first link; pages that the runs do not have are left out."""
    found = {"runs": f"{address}/", "episodes": f"{address}/episodes"}
    for name, (page, link) in _WAYS.items():
        if page.startswith("/") or page in found:
            driver.get(found.get(page) or address + page)
            links = driver.find_elements(By.CSS_SELECTOR, link)
            if links:
                found[name] = str(links[0].get_attribute("href"))
    return found


def take(runs: Path, folder: Path) -> list[Path]:
    """Writes the pictures; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    with (
        tempfile.TemporaryDirectory() as work,
        open_viewer(runs, Path(work)) as address,
        open_browser() as driver,
    ):
        pages = addresses(driver, address)
        for width in WIDTHS:
            size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for scheme in SCHEMES:
                media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                for name, page in pages.items():
                    driver.get(page)
                    taken.append(folder / f"{name}-{width}-{scheme}.png")
                    driver.save_screenshot(str(taken[-1]))
    return taken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(f"{arguments.folder}: {len(take(arguments.runs, arguments.folder))} pictures")
