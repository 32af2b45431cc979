"""Of 200 strings that a page or a model may have injected, nothing runs and nothing leaves."""

import json
import random
import string

from selenium.webdriver.common.by import By

from rmsweb_jax.records.dataset import write_dataset
from tests.viewer.made import hostile
from tests.viewer.serving import open_viewer

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
