"""The viewer in real Chromium: every page, keys, labels, a page that follows, hostile text, and an export."""

import json
import time
import urllib.parse

import pytest
from axe_core_python.selenium import Axe
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from collection.viewer.app import link
from collection.viewer.export import export
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.journal import Journal
from tests.trajectories import DONE, TYPE, numbered, trajectory
from tests.viewer.made import make_runs
from tests.viewer.serving import make_pages, open_viewer, until
from tests.viewer.test_pages import ALL, HOSTILE_ID, TASK


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("viewer")
    make_runs(folder / "runs")
    return folder


@pytest.fixture(scope="module")
def address(work):
    with open_viewer(work / "runs", work) as one:
        yield one


def set_width(driver, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def severe(driver):
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def test_every_page_fits_its_window_and_nothing_of_the_records_runs(driver, address):
    for page in ALL:
        driver.get(address + page)
        assert driver.execute_script("return window.hit") is None, page
        for width in (1280, 800, 390):
            set_width(driver, width)
            # Tables scroll in a frame of their own.
            over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert driver.execute_script(over) <= 0, (page, width)
        loaded = driver.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
        assert all(name.startswith(address) for name in loaded), loaded
    assert not severe(driver)


def test_keys_and_the_slider_go_through_the_steps(driver, address):
    driver.get(address + link("/episode", data="runs/collect", id=f"{TASK}#teacher-2"))
    shown = lambda: [  # noqa: E731
        one.get_attribute("id") for one in driver.find_elements(By.CSS_SELECTOR, ".scrubber > section.shown")
    ]
    until(driver, lambda: shown() == ["step-1"])
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.ARROW_RIGHT, "j")
    assert shown() == ["step-3"] and driver.current_url.endswith("#step-3")
    body.send_keys(Keys.ARROW_LEFT)
    assert shown() == ["step-2"]
    body.send_keys(Keys.END, Keys.ARROW_RIGHT)
    assert shown() == ["step-4"]
    driver.find_element(By.CSS_SELECTOR, "button[aria-label='step before']").click()
    assert shown() == ["step-3"]
    driver.refresh()
    until(driver, lambda: shown() == ["step-3"])


def test_the_first_bad_step_is_one_click_away_and_the_film_has_all_steps(driver, address):
    driver.get(address + link("/episode", data="runs/collect", id=f"{TASK}#teacher-1"))
    shown = lambda: driver.find_element(By.CSS_SELECTOR, ".scrubber > section.shown")  # noqa: E731
    film = driver.find_elements(By.CSS_SELECTOR, ".film a")
    assert [one.text.split("\n")[0] for one in film] == ["1", "2 first bad step"]
    assert shown().get_attribute("id") == "step-1" and film[0].get_attribute("aria-current") == "step"
    driver.find_element(By.CSS_SELECTOR, ".why a[href='#step-2']").click()
    until(driver, lambda: shown().get_attribute("id") == "step-2")
    assert shown().text.startswith("First bad step: ") and film[1].get_attribute("aria-current") == "step"
    film[0].send_keys(Keys.ENTER)
    until(driver, lambda: shown().get_attribute("id") == "step-1")
    film[0].send_keys(Keys.ARROW_RIGHT)
    assert shown().get_attribute("id") == "step-2"


def values_under_the_pointer(driver, title, at):
    """Moves the pointer over a plot, to a share of its width; label -> value in its legend."""
    figure = f"//figure[figcaption/b='{title}']"
    over = until(driver, lambda: driver.find_elements(By.XPATH, f"{figure}//div[@class='u-over']"))[0]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    right = int((at - 0.5) * (over.size["width"] - 4))
    ActionChains(driver).move_to_element_with_offset(over, right, 5).perform()
    legend = driver.find_elements(By.XPATH, f"{figure}//tr[contains(@class, 'u-series')]")
    return {
        row.find_element(By.TAG_NAME, "th").text: row.find_element(By.TAG_NAME, "td").text for row in legend
    }


def test_two_trainings_are_in_one_plot_with_values_under_the_pointer(driver, address):
    driver.get(address)
    driver.find_element(By.LINK_TEXT, "compare the 2 trainings").click()
    last = {"step": "4", "rl": "0.4", "rl2": "0.5"}
    assert until(driver, lambda: values_under_the_pointer(driver, "Held-out prompts", 1)) == last
    assert values_under_the_pointer(driver, "Held-out prompts", 0)["rl"] == "0.1"
    # A share that is zero throughout has no axis below it.
    scale = "return document.evaluate(arguments[0], document).iterateNext().plot.scales.y.min"
    assert driver.execute_script(scale, "//figure[figcaption/b='Clip fraction']") == 0
    assert not severe(driver)


def test_labels_are_saved_by_a_key(driver, address, work):
    driver.get(address + link("/pair", data="runs/mine/audit", task=TASK))
    driver.find_element(By.TAG_NAME, "body").send_keys("w")
    pressed = lambda: driver.find_elements(By.CSS_SELECTOR, "button[aria-pressed=true]")  # noqa: E731
    until(driver, lambda: [one.get_attribute("data-label") for one in pressed()] == ["wrong"])
    assert json.loads((work / "labels/mined.jsonl").read_text()) == {"task_id": TASK, "label": "wrong"}
    driver.refresh()
    assert [one.get_attribute("data-label") for one in pressed()] == ["wrong"]


def test_a_page_follows_a_run_that_goes_on(driver, address, work):
    folder = work / "runs/going"

    def publish(attempt):
        run = trajectory(*numbered(TYPE, DONE), attempt=attempt, task_id="miniwob/login-user/7")
        with Journal(folder / EPISODES) as journal:
            journal.append(run.model_dump_json().encode())
        progress = {"stage": "collect", "done": attempt, "total": 9, "eta_s": 5, "note": "two workers"}
        (folder / "progress.json").write_text(json.dumps(progress))

    publish(1)
    time.sleep(2.1)  # Folders are looked through every two seconds.
    driver.get(address)
    text = lambda: driver.find_element(By.TAG_NAME, "main").text  # noqa: E731
    until(driver, lambda: "1/9, 5 s left, two workers" in text())
    publish(2)
    until(driver, lambda: "2/9" in text())
    worker = {"worker": "1", "task_id": "miniwob/login-user/8", "site": "login-user", "attempt": 1, "step": 3}
    (folder / "live").mkdir()
    status = {**worker, "waiting_for": "model", "model": "m", "since": time.time()}
    (folder / "live/1.json").write_text(json.dumps(status))
    driver.find_element(By.LINK_TEXT, "runs/going").click()
    until(driver, lambda: "step 3" in text() and "waits for model (m)" in text())
    assert "login-user 2 solved 2" in text().replace("\n", " ")
    # The first metrics come while the page is open.
    assert not driver.find_elements(By.CSS_SELECTOR, ".plot")
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss/train": 0.5}\n')
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".plot canvas"))
    (folder / "report.json").write_text('{"stage": "collect", "seconds": 1}')
    until(driver, lambda: not driver.find_elements(By.CSS_SELECTOR, "body[data-live]"))


def test_an_export_opens_from_disk(driver, work, tmp_path):
    pages, index, _ = make_pages(work / "runs", tmp_path)
    start = export(pages, index, tmp_path / "out", 500)
    driver.get(start.as_uri())
    driver.find_element(By.LINK_TEXT, "Episodes").click()
    for row in driver.find_elements(By.CSS_SELECTOR, "#episodes tbody tr"):
        if HOSTILE_ID.partition("#")[0] in row.text:
            row.find_element(By.TAG_NAME, "a").click()
            break
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".scrubber > section.shown img"))
    assert driver.execute_script("return window.hit") is None
    image = driver.find_element(By.CSS_SELECTOR, ".shown img")
    until(driver, lambda: driver.execute_script("return arguments[0].naturalWidth", image) == 1)
    mark = until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".shown .mark"))[0]
    assert mark.get_attribute("style") == "left: 0%; top: 0%; width: 100%; height: 100%;"
    driver.find_element(By.LINK_TEXT, "Evaluation").click()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".plot canvas"))
    assert urllib.parse.urlsplit(driver.current_url).scheme == "file"
    assert not severe(driver)


def test_pages_are_accessible(driver, address):
    set_width(driver, 800)
    axe = Axe()
    for page in ALL:
        driver.get(address + page)
        for scheme in ("light", "dark"):
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            # In the dark nothing else changes.
            found = axe.run(driver, options=None if scheme == "light" else {"runOnly": ["color-contrast"]})
            assert found["passes"], (page, scheme)
            where = [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]
            assert not where, (page, scheme, where)
