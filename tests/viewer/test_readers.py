"""What a reader looks for, found in at most five clicks; and 200 injected strings, of which nothing runs."""

import json
import random
import string

import pytest
from selenium.webdriver.common.by import By

from rmsweb_jax.records.dataset import write_dataset
from tests.trajectories import CLICK, DONE, TYPE, numbered, trajectory
from tests.viewer.made import hostile, make_runs
from tests.viewer.serving import open_viewer, text_of, until

RETRIED = "miniwob/login-user/5"


class Reader:
    """A person who starts at the first page, and whose clicks are counted."""

    def __init__(self, driver, address):
        self.driver, self.clicks = driver, 0
        driver.get(address)

    def click(self, how, what, stays=False):
        """Clicks, and waits for the next page unless the click stays on this one."""
        before = self.driver.current_url
        element = until(self.driver, lambda: self.driver.find_elements(how, what))[0]
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        self.clicks += 1
        until(self.driver, lambda: stays or self.driver.current_url != before)

    def choose(self, name, value):
        self.click(By.CSS_SELECTOR, f"select[name={name}] option[value='{value}']", stays=True)

    def text(self):
        return text_of(self.driver)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    root = make_runs(folder / "runs")
    # Four attempts with three reflections, of a task of its own.
    runs = [
        trajectory(
            *numbered(*acts),
            attempt=number,
            success=number == 4,
            task_id=RETRIED,
            judge="reward",
        )
        for number, acts in enumerate([(CLICK,), (TYPE, CLICK), (TYPE, TYPE, CLICK), (TYPE, CLICK, DONE)], 1)
    ]
    write_dataset(root / "retried", runs, "trajectories")
    guidance = ("Type the name first.", "Type the name, then the word.", "Type the name, then the key.")
    notes = [
        {"task_id": RETRIED, "attempt": number, "guidance": text} for number, text in enumerate(guidance, 1)
    ]
    (root / "retried/reflections.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    with open_viewer(root, folder) as address:
        yield address


def test_why_one_policy_failed_a_task_that_another_solved(driver, address):
    reader = Reader(driver, address)
    reader.click(By.LINK_TEXT, "Evaluation")
    reader.click(By.PARTIAL_LINK_TEXT, "differ")
    reader.click(By.CSS_SELECTOR, "#tasks tbody th a")
    until(driver, lambda: "differs from the first from step 2 on" in reader.text())
    assert reader.clicks <= 5


def test_what_the_third_reflection_changed(driver, address):
    reader = Reader(driver, address)
    reader.click(By.LINK_TEXT, "Episodes")
    reader.choose("attempt", "4")
    reader.click(By.CSS_SELECTOR, ".filters button")
    reader.click(By.CSS_SELECTOR, "#episodes tbody a[aria-label^='all attempts']")
    third = until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".chain > li"))[2]
    assert [one.text for one in third.find_elements(By.CSS_SELECTOR, ".gone")] == ["word."]
    assert [one.text for one in third.find_elements(By.CSS_SELECTOR, ".new")] == ["key."]
    fourth = driver.find_elements(By.CSS_SELECTOR, ".chain > li")[3]
    assert "acts differently from the attempt before from step 2 on" in fourth.text
    assert reader.clicks <= 5


# --- Injected strings ---

# Ways into a page: elements, handlers, addresses, styles, templates, and ends of what surrounds the text.
_CLOSERS = ("", '">', "'>", "-->", "</pre>", "</script>", "</title>", "</textarea>", "]]>", "\x00", "\u2028")
_ATTACKS = (
    "<script>{hit}</script>",
    "<img src=x onerror={hit}>",
    "<svg onload={hit}>",
    "<svg><script>{hit}</script></svg>",
    "<iframe srcdoc='<script>parent.{hit}</script>'></iframe>",
    "<body onload={hit}>",
    "<details open ontoggle={hit}>",
    "<video><source onerror={hit}></video>",
    "<input autofocus onfocus={hit}>",
    "<style>@import 'http://127.0.0.1:9/x.css';</style>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href=http://127.0.0.1:9/>",
    "<form action=http://127.0.0.1:9/><button>filter</button></form>",
    "<a href='javascript:{hit}'>x</a>",
    "javascript:{hit}",
    "data:text/html,<script>{hit}</script>",
    "{{{{ cycler.__init__.__globals__.os }}}}{{% if 1 %}}",
    "' onmouseover='{hit}",
)


def injected(number):
    """One of the strings; the number is in it, so that what ran is known."""
    closer, attack = _CLOSERS[number % len(_CLOSERS)], _ATTACKS[number % len(_ATTACKS)]
    noise = "".join(random.Random(number).choices(string.punctuation, k=number % 7))
    return f"{closer}{noise}{attack.format(hit=f'window.hit={number + 1}')}"


def test_nothing_runs_or_leaves_of_200_injected_strings(driver, tmp_path):
    texts = {injected(number) for number in range(200)}
    assert len(texts) == 200
    # Four to an episode; an address is one only where it begins.
    texts = sorted(texts, key=lambda text: not text.startswith(("javascript:", "data:")))
    four = ["".join(texts[number::50]) for number in range(50)]
    runs = [hostile(f"miniwob/{number}/{text}", text) for number, text in enumerate(four)]
    write_dataset(tmp_path / "runs/collect", runs, "trajectories")
    with open_viewer(tmp_path / "runs", tmp_path) as address:
        addresses = [f"{address}/episodes"]
        driver.get(addresses[0])
        links = driver.find_elements(By.CSS_SELECTOR, "#episodes tbody th a")
        chains = driver.find_elements(By.CSS_SELECTOR, "#episodes tbody a[aria-label^='all attempts']")
        # An episode and its chain have the same fields: a tenth of the chains will do.
        addresses += [link.get_attribute("href") for link in (*links, *chains[::10])]
        assert len(addresses) == 1 + 50 + 5
        driver.get_log("performance")
        for page in addresses:
            driver.get(page)
            assert driver.execute_script("return window.hit") is None, page
            assert driver.current_url.startswith(address), page
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    # Chromium draws its own controls with addresses of data.
    assert sent and all(url.startswith((address, "data:image/svg+xml")) for url in sent)
