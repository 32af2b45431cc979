"""Pages that hang, open dialogs or windows, close or deceive: the browser stays usable, and waits end."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
from selenium.webdriver.support.expected_conditions import title_is
from selenium.webdriver.support.wait import WebDriverWait

from collection.browser import chromium, tabs
from collection.browser.actions import ACCEPT_HINT, execute
from collection.browser.config import BrowserConfig
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext
from collection.browser.session import Browser, BrowserLostError
from collection.browser.snapshot import observe, take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.schema import ActionResult
from tests.browser.hostile_site import hostile_site

# For a busy machine; `/silent` says nothing for 10 s.
PAGE_SECONDS = 6


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with hostile_site() as url:
        yield url


@pytest.fixture(scope="module")
def one_browser() -> Iterator[Browser]:
    config = BrowserConfig(
        width=400,
        height=300,
        quiet_ms=20,
        settle_ms=300,
        page_load_seconds=PAGE_SECONDS,
        script_seconds=5,
        max_tabs=3,
        download_mb=20,
        host_rules=("MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chromium, "_DRIVER_GRACE_S", 10.0)
        patch.setattr(tabs, "_PROBE_S", 3.0)
        with Browser(config) as browser:
            yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Browser:
    one_browser.reset()
    return one_browser


@pytest.fixture
def context(tmp_path: pathlib.Path) -> ActionContext:
    return ActionContext(files=FileFolder(tmp_path / "files"))


def do(browser: Browser, action: str, context: ActionContext | None = None, **params: object) -> ActionResult:
    return execute(browser, normalize_action({action: params}), context or ActionContext())


def go(browser: Browser, url: str) -> ActionResult:
    result = do(browser, "go_to_url", url=url)
    take_snapshot(browser)
    return result


def click(browser: Browser, index: int = 1, context: ActionContext | None = None) -> ActionResult:
    take_snapshot(browser)
    return do(browser, "click_element_by_index", context, index=index)


def wait_for_title(browser: Browser, title: str) -> None:
    """Waits for a title, because pages react with a delay."""
    WebDriverWait(browser.driver, 20, poll_frequency=0.05).until(title_is(title))


def results_until(browser: Browser, context: ActionContext, text: str, what: str) -> str:
    """Returns the result texts of an action and of waits after it, until `what` is among them."""
    for _ in range(200):
        if what in text:
            break
        text += do(browser, "wait", context, seconds=0).text
    return text


def works(browser: Browser, site: str) -> bool:
    """Whether a page can be used; a busy machine may need more than the seconds of one page load."""
    return any(not go(browser, f"{site}/fine").error and not click(browser).error for _ in range(5))


GONE = "The page does not respond; it was closed"


def test_a_page_that_hangs_at_once_or_on_a_click_is_replaced(browser: Browser, site: str) -> None:
    assert go(browser, f"{site}/hang-at-once").text == GONE
    assert [(tab.tab_id, tab.url) for tab in browser.tabs()] == [("0001", "about:blank")]
    go(browser, f"{site}/hang")
    result = click(browser)
    assert result.error and result.text == GONE
    assert works(browser, site)


def test_a_page_that_crashes_is_replaced_also_at_a_snapshot(
    browser: Browser, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(browser, f"{site}/fine")
    with pytest.raises(tabs.PageError, match="has crashed"):
        browser.cdp("Page.crash")
    assert works(browser, site)

    def crash() -> None:
        monkeypatch.undo()
        browser.cdp("Page.crash")

    monkeypatch.setattr(browser, "sweep_if_needed", crash)
    observation, _ = observe(browser, None)
    assert (observation.url, observation.page_text) == ("about:blank", "")
    assert browser.notices == ["The page has crashed; it was closed"]
    assert works(browser, site)


def test_dialogs_are_dismissed_and_recorded_as_incidents(browser: Browser, site: str) -> None:
    go(browser, f"{site}/prompts")
    # The driver may report a dialog again while it closes.
    text = re.sub(r" \(\d times\)", "", click(browser).text)
    assert text == f"Clicked [1]. Dialog dismissed: '1'. Dialog dismissed: '2'. {ACCEPT_HINT}"
    wait_for_title(browser, ",false")
    assert [incident.kind for incident in browser.take_incidents()] == ["dialog", "dialog"]
    assert browser.take_incidents() == ()
    go(browser, f"{site}/stay")
    click(browser)
    assert works(browser, site)
    go(browser, f"{site}/ask")
    click(browser)
    wait_for_title(browser, "1denied")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://nowhere.test/", "ERR_NAME_NOT_RESOLVED"),
        ("http://127.0.0.1:9/", "ERR_UNSAFE_PORT"),
        ("{site}/redirects", "ERR_TOO_MANY_REDIRECTS"),
        ("{site}/nothing", "ERR_EMPTY_RESPONSE"),
        ("{site}/silent", f"no answer in {PAGE_SECONDS} s"),
        ("{site}/login", "the site shows nothing, or wants a login"),
        ("https://{host}/", "ERR_SSL_PROTOCOL_ERROR"),
        ("http://127.0.0.1:99999999/", "invalid argument"),
    ],
)
def test_unreachable_sites_give_a_short_error(browser: Browser, site: str, url: str, reason: str) -> None:
    address = url.format(site=site, host=site.removeprefix("http://"))
    result = go(browser, address)
    assert result.error and result.text == f"Cannot open {address}: {reason}"


def test_only_pages_of_the_web_are_opened(browser: Browser, site: str) -> None:
    for url in ("file:///etc/hostname", "about:settings", "view-source:http://127.0.0.1/"):
        assert go(browser, url).text.startswith("Cannot open")
        assert browser.tabs()[0].url == "about:blank"
    go(browser, f"{site}/links")
    for index in range(1, 5):
        assert not click(browser, index).changed
        assert [tab.url for tab in browser.tabs()] == [f"{site}/links"]


def test_windows_are_limited(browser: Browser, site: str) -> None:
    go(browser, f"{site}/storm")
    assert len(browser.tabs()) == 1
    for _ in range(2):
        # A busy machine may take longer than the time limit to open it.
        assert ", which opened a new tab" in click(browser).text
        browser.switch_tab("0001")
    assert ". 1 new windows closed: at most 3 tabs" in click(browser).text
    assert [incident.kind for incident in browser.take_incidents()] == ["popup"]
    assert do(browser, "go_to_url", url=site, new_tab=True).text == (
        "There are 3 tabs already; close one first"
    )
    assert len(browser.tabs()) == 3


def test_a_window_that_closes_itself_is_left(browser: Browser, site: str) -> None:
    go(browser, f"{site}/opener")
    click(browser)
    observation, _ = observe(browser, None)
    assert observation.url == f"{site}/opener" and observation.current_tab == "0001"


def test_a_window_whose_page_never_comes_is_closed(browser: Browser, site: str) -> None:
    go(browser, f"{site}/never")
    closed = f"Window closed: no answer in {PAGE_SECONDS} s"
    assert click(browser).text == f"Clicked [1], which opened a new tab. {closed}"
    observation, _ = observe(browser, None)
    assert observation.url == f"{site}/never" and len(observation.tabs) == 1
    assert works(browser, site)


def test_a_page_with_an_endless_script_is_used_after_the_limit(browser: Browser, site: str) -> None:
    go(browser, f"{site}/slow-link")
    result = click(browser)
    assert not result.error, result.text
    assert "Buy" in take_snapshot(browser).page_text


def test_an_episode_cannot_go_back_to_pages_of_an_earlier_one(browser: Browser, site: str) -> None:
    go(browser, f"{site}/keep")
    assert browser.script("return [localStorage.a, document.cookie]") == ["a=1", "a=1"]
    browser.reset()
    go(browser, f"{site}/fine")
    assert browser.script("return [localStorage.length, document.cookie]") == [0, ""]
    assert do(browser, "go_back").text == "Went back" and browser.tabs()[0].url == "about:blank"
    assert do(browser, "go_back").text == "There is no page to go back to"


def test_downloads_become_files_of_the_episode(browser: Browser, site: str, context: ActionContext) -> None:
    assert context.files is not None
    go(browser, f"{site}/downloads")
    first = click(browser, 1, context)
    assert "Downloaded data.csv (8 bytes)" in results_until(browser, context, first.text, "Downloaded")
    again = click(browser, 1, context)
    assert again.changed == ("Downloaded" in again.text)
    assert "Downloaded data-2.csv (8 bytes)" in results_until(browser, context, again.text, "Downloaded")
    assert do(browser, "read_file", context, file_name="data.csv").output == "a,b\n1,2\n"
    odd = results_until(browser, context, click(browser, 2, context).text, "Downloaded")
    assert re.search(r"Downloaded .+\.txt \(1 bytes\)", odd)
    assert [incident.kind for incident in browser.take_incidents()] == ["download"] * 3
    assert len(context.files.names()) == 3
    report = do(browser, "go_to_url", context, url=f"{site}/report")
    assert not report.error and "Downloaded report.pdf" in results_until(
        browser, context, report.text, "Downloaded"
    )
    assert do(browser, "read_file", context, file_name="report.pdf").output == "Page 1 of 1\nHello there"


def test_downloads_are_limited_in_size_and_number(
    browser: Browser, site: str, context: ActionContext
) -> None:
    assert context.files is not None and browser.downloads.folder is not None
    text = do(browser, "go_to_url", context, url=f"{site}/big").text
    assert "Download of big.zip failed: larger than 20 MB" in results_until(browser, context, text, "larger")
    go(browser, f"{site}/downloads")
    results_until(browser, context, click(browser, 4, context).text, "Downloaded")
    assert 1 <= len(context.files.names()) <= 10


def test_a_browser_that_uses_too_much_memory_is_given_up(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 20 < browser.memory_mb() < 2000
    monkeypatch.setattr(browser, "config", browser.config.model_copy(update={"memory_mb": 1}))
    monkeypatch.setattr(browser, "_memory_checked", 0.0)
    with pytest.raises(BrowserLostError, match=r"the browser uses [0-9]+ MB, more than 1"):
        browser.sweep()
