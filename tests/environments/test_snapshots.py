"""Episodes that are taken in their middle, and put back in the browser of another process."""

from __future__ import annotations

import collections
import contextlib
import math
import pathlib
import pickle
import urllib.parse
from collections.abc import Iterator
from typing import Literal

import pytest

from collection.browser.config import BrowserConfig, PageError, RestoreError, SnapshotError
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.browser.state import take_state
from collection.environments.apps.tasks import AppEnvironment, AppTask
from collection.environments.base import View
from collection.environments.miniwob import HOST, MiniWobEnvironment, MiniWobServer, make_task
from collection.environments.web import WebEnvironment
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Task
from tests.apps.conftest import Notebook
from tests.environments.forks import Episode, teacher
from tests.loopback import PageHandler, serving

SITE = "http://shop.test"
SECRET = "swordfish-4711"
ASKED: collections.Counter[str] = collections.Counter()
PAGES = {
    "/": "<a href=/second target=_blank>Second</a> <a href=/long>Long</a> <a href=/referrer>From</a>",
    "/second": "<h1>Second tab</h1><input id=note>",
    "/fields": """<form><input id=name name=name><input type=password id=key><textarea id=text>old</textarea>
        <select id=one><option>Red<option>Green<option>Blue</select>
        <select id=many multiple><option selected>A<option>B<option>C</select>
        <input type=checkbox id=box><input type=checkbox id=ticked checked>
        <input type=radio name=way id=left checked><input type=radio name=way id=right>
        <input type=date id=day><input type=range id=size min=0 max=9 value=1><input type=hidden id=token>
        <div id=rich contenteditable>plain</div><details id=more><summary>More</summary>Hidden words</details>
        <div id=pane style='overflow:auto;height:60px'><div style='height:900px'>top</div>its end</div>
        <p id=said></p></form><script>
        const fields = [document.getElementById('name'), one, ticked];
        const say = () => { said.textContent = `${fields[0].value} ${one.value} ${ticked.checked}`; };
        for (const el of fields) el.addEventListener('input', say);</script>""",
    "/long": "<a href=#end>To the end</a><div style='height:3000px'></div><h2 id=end>The end</h2>",
    "/frames": "<h1>Frames</h1><iframe src=/inner width=300 height=220></iframe>",
    "/referrer": "<h1 id=said></h1><script>said.textContent = `from ${document.referrer}`;</script>",
    "/inner": "<input id=inside><div style='height:900px'></div><p>deep</p>",
    "/storage": """<h1 id=said></h1><script>
        said.textContent = `${sessionStorage.step} step, ${localStorage.theme} theme`;
        const go = () => { sessionStorage.step = 'third'; localStorage.theme = 'dark'; location.reload(); };
        </script><button onclick="go()">Go</button>""",
    "/counted": """<h1 id=said></h1><button>Go</button><script>
        sessionStorage.visits = 1 + Number(sessionStorage.visits || 0);
        said.textContent = `visit ${sessionStorage.visits}`;</script>""",
    # As Sphinx does with the words of a search.
    "/once": """<h1 id=said></h1><script>said.textContent = localStorage.word || 'nothing';
        delete localStorage.word;</script>""",
    "/watching": """<a href=/second target=_blank>Second</a><p id=said></p><script>
        addEventListener('storage', (event) => { if (event.newValue === 'old') said.append('went back'); });
        </script>""",
    "/fold": """<button onclick="open_ = !open_; words.hidden = !open_">Change</button>
        <div id=words hidden>Folded words</div><script>let open_ = false;</script>""",
    "/policy": "<h1 id=said>as sent</h1><script>said.textContent = 'changed'</script>",
    "/late": "<h1 id=said>wait</h1><script>setTimeout(() => { said.textContent = 'there'; }, 150);</script>",
    "/random": "<h1 id=said></h1><script>said.textContent = `number ${Math.random()}`;</script>",
    "/database": """<h1>Database</h1><script>indexedDB.open('kept', 1).onupgradeneeded = (event) => {
        event.target.result.createObjectStore('rows').put('x'.repeat(100000), 1); };</script>""",
}


class _Handler(PageHandler):
    def get(self) -> None:
        path = self.path.partition("?")[0]
        ASKED[path] += 1
        cookies = self.headers.get("Cookie", "")
        if path == "/login":
            self._answer("<h1>Logged in</h1>", ("sid=secret-1; HttpOnly; Path=/", "seen=yes"))
        elif path == "/account":
            self._answer(f"<h1>Cookies: {'; '.join(sorted(cookies.split('; ')))}</h1>")
        elif path == "/kept":
            self._answer(f"<h1>Kept {ASKED[path]}</h1>", kept="max-age=3600")
        elif path == "/order":
            # As flash messages do, this one goes with its first reader, and every answer has another cookie.
            self._answer(
                f"<h1>Order {ASKED[path]}</h1><a href=/account>Account</a>", (f"token=t{ASKED[path]}",)
            )
        else:
            self._answer(PAGES.get(path, "<h1>Nothing</h1>"))

    def post(self) -> None:
        ASKED[self.path] += 1
        sent = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(f"<h1>Sent {sent['word'][0]} as number {ASKED[self.path]}</h1><input id=after>")

    def _answer(self, body: str, cookies: tuple[str, ...] = (), kept: str = "no-store") -> None:
        data = f"<!doctype html><title>Shop</title><link rel=icon href=data:,>{body}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", kept)
        if self.path == "/policy":
            self.send_header("Content-Security-Policy", "script-src 'none'")
        for cookie in cookies:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def browsing(hosts: dict[str, str], watch: bool) -> Iterator[Browser]:
    private = tuple(f"http://{name}" for name in hosts)
    with (
        Guard(GuardConfig(private=private), hosts, {"word": SECRET}, watch=watch) as guard,
        Browser(BrowserConfig(width=600, height=700, quiet_ms=50), guard) as browser,
    ):
        yield browser


@pytest.fixture(scope="module")
def browsers(miniwob_server: MiniWobServer) -> Iterator[tuple[Browser, Browser]]:
    with serving(_Handler) as address, contextlib.ExitStack() as stack:
        hosts = {"shop.test": address, HOST: f"127.0.0.1:{miniwob_server.port}", "notebook.test": address}
        first, second = (stack.enter_context(browsing(hosts, watch)) for watch in (False, True))
        yield first, second


class Player:
    """An environment with the shorthands of these tests."""

    def __init__(self, browser: Browser, folder: pathlib.Path) -> None:
        self.browser = browser
        self.environment = WebEnvironment(browser, ImageStore(folder), folder / "files")

    def start(self, path: str, environment: Literal["app", "web"] = "app", seed: int = 0) -> View:
        website = f"{SITE}{path}"
        self.environment.reset(
            Task(task_id="shop/1", website=website, objective="Look.", environment=environment, seed=seed)
        )
        return self.environment.observe()

    def go(self, path: str) -> str:
        self.do("go_to_url", url=f"{SITE}{path}")
        return self.environment.observe().observation.page_text

    def do(self, name: str, **params: object) -> tuple[ActionResult, ...]:
        action = normalize_action({name: params})
        return self.environment.act([action], lambda query, text: ("", 0.0), math.inf).results

    def click(self, text: str) -> None:
        view = self.environment.observe()
        index = next(one.index for one in view.observation.elements if one.text == text and one.index)
        (result,) = self.do("click_element_by_index", index=index)
        assert not result.error, result

    def type(self, field: str, text: str) -> None:
        (result,) = self.do("input_text", index=self.index(field), text=text)
        assert not result.error, result

    def index(self, field: str) -> int:
        elements = self.environment.observe().observation.elements
        return next(one.index for one in elements if one.attributes.get("id") == field and one.index)

    def script(self, code: str) -> object:
        return self.browser.page_script(code)

    def snapshot(self) -> bytes:
        return pickle.dumps(self.environment.snapshot())

    def restore(self, snapshot: bytes) -> View:
        self.environment.restore(pickle.loads(snapshot))
        return self.environment.observe()


@pytest.fixture
def players(browsers: tuple[Browser, Browser], tmp_path: pathlib.Path) -> tuple[Player, Player]:
    ASKED.clear()
    first, second = (Player(one, tmp_path / str(number)) for number, one in enumerate(browsers))
    second.start("/second")  # Something else is there.
    second.script("localStorage.left = 'over'; document.cookie = 'left=over'")
    return first, second


def assert_same(then: View, now: View) -> None:
    """What the agent is shown is the same, with the marks of new elements."""
    fields = ("url", "title", "page_text", "fingerprint", "tabs", "current_tab", "pages_above", "pages_below")
    for name in fields:
        assert getattr(now.observation, name) == getattr(then.observation, name), name
    assert (now.page_stats, now.notice) == (then.page_stats, then.notice)


def test_fields_focus_and_scroll_positions_come_back(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/fields")
    first.type("name", "Ada Lovelace")
    first.do("select_dropdown_option", index=first.index("one"), text="Green")
    first.do("click_element_by_index", index=first.index("ticked"))
    first.script(
        """key.value = 'hunter2'; text.value = 'two\\nlines'; many.options[0].selected = false;
        many.options[2].selected = true; box.indeterminate = true; right.checked = true;
        day.value = '2027-01-05'; size.value = 7; token.value = 'abc'; more.open = true;
        rich.innerHTML = 'a <b>bold</b> word'; pane.scrollTop = 333; scrollTo(0, 40);
        const field = document.getElementById('name'); field.focus(); field.setSelectionRange(3, 3);"""
    )
    read = """const fields = [...document.querySelectorAll('input, textarea')];
        return fields.map((el) => [el.id, el.value, el.checked]).concat([one.value, box.indeterminate,
        [...many.options].map((el) => el.selected), rich.innerHTML, more.open, pane.scrollTop, scrollY,
        document.activeElement.id, fields[0].selectionStart])"""
    snapshot, held = first.snapshot(), first.script(read)
    now = second.restore(snapshot)
    assert second.script(read) == held
    assert "Ada Lovelace Green false" in now.observation.page_text  # Its script has had the event.
    assert_same(first.environment.observe(), now)
    for one in (first, second):
        one.do("send_keys", keys="X")
        assert one.script("return document.getElementById('name').value") == "AdaX Lovelace"


def test_marks_of_new_elements_and_the_running_episode_stay(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.click("Long")
    snapshot = first.snapshot()
    then = first.environment.observe()
    assert "*[1]<a />" in then.observation.page_text
    assert_same(then, second.restore(snapshot))
    again = first.environment.observe()
    assert "\n[1]<a />" in f"\n{again.observation.page_text}"
    assert_same(again, second.environment.observe())
    other = second.start("/")
    assert "*" not in other.observation.page_text  # Nothing of the snapshot is left.
    snapshot = second.snapshot()
    assert_same(second.environment.observe(), first.restore(snapshot))


def test_tabs_and_what_each_can_go_back_to_come_back(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.click("Second")
    first.type("note", "in the second")
    first.do("switch_tab", tab_id="0001")
    first.environment.observe()
    first.click("Long")
    first.click("To the end")
    then, snapshot = first.environment.observe(), first.snapshot()
    assert then.observation.pages_above > 1
    now = second.restore(snapshot)
    assert_same(first.environment.observe(), now)
    assert [tab.tab_id for tab in now.observation.tabs] == ["0001", "0002"]
    for one in (first, second):
        paths = []
        for _ in range(3):
            (result,) = one.do("go_back")
            paths.append((one.environment.observe().observation.url.removeprefix(SITE), result.text))
        assert paths == [
            ("/long", "Went back"),
            ("/", "Went back"),
            ("/", "There is no page to go back to"),
        ]
        one.do("switch_tab", tab_id="0002")
        page = one.environment.observe().observation
        assert "value=in the second" in page.page_text and page.url == f"{SITE}/second"
        one.do("close_tab", tab_id="0002")
        one.environment.observe()
        one.click("Second")
        assert one.environment.observe().observation.current_tab == "0003"


def test_cookies_come_back_as_the_site_set_them(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/login")
    first.do("go_to_url", url=f"{SITE}/")
    snapshot = first.snapshot()
    second.restore(snapshot)
    assert take_state(second.browser).cookies == pickle.loads(snapshot).browser.cookies
    assert second.script("return document.cookie") == "seen=yes"  # The other one is for the site alone.
    second.do("go_to_url", url=f"{SITE}/account")
    assert "Cookies: seen=yes; sid=secret-1" in second.environment.observe().observation.page_text


def test_storage_is_there_before_the_page_reads_it(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/storage")
    first.click("Go")
    then = first.environment.observe()
    assert "third step, dark theme" in then.observation.page_text
    now = second.restore(first.snapshot())
    assert_same(first.environment.observe(), now)
    assert second.script("return Object.keys(localStorage)") == ["theme"]


def test_a_page_is_told_which_one_has_led_to_it(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.click("From")
    now = second.restore(first.snapshot())
    assert f"from {SITE}/" in now.observation.page_text
    assert_same(first.environment.observe(), now)


@pytest.mark.parametrize("path", ["/counted", "/once"])
def test_storage_is_as_the_page_found_it(players: tuple[Player, Player], path: str) -> None:
    first, second = players
    first.start("/counted")
    first.script("localStorage.word = 'Found'")
    first.go(path)
    then, snapshot = first.environment.observe(), first.snapshot()
    read = "return [Object.entries(localStorage), Object.entries(sessionStorage)]"
    kept = first.script(read)
    assert_same(then, second.restore(snapshot))
    assert second.script(read) == kept
    assert_same(then, first.restore(second.snapshot()))


def test_a_restored_page_loads_nothing_from_the_cache(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    snapshot = first.snapshot()
    for number in (1, 2):  # What was cached may show what has been undone.
        second.restore(snapshot)
        assert f"Kept {number}" in second.go("/kept")


def test_a_tab_is_not_shown_what_its_site_s_storage_was(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/watching")
    first.script("localStorage.word = 'old'")
    first.click("Second")
    first.environment.observe()
    first.script("localStorage.word = 'new'")
    second.restore(first.snapshot())
    second.do("switch_tab", tab_id="0001")
    assert "went back" not in second.environment.observe().observation.page_text
    assert second.script("return localStorage.word") == "new"


def test_an_episode_loads_nothing_from_the_cache_of_an_earlier_one(players: tuple[Player, Player]) -> None:
    for number in (1, 2):
        assert f"Kept {number}" in players[0].start("/kept").observation.page_text


def test_a_page_is_put_back_without_asking_its_site(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/order")
    then, snapshot = first.environment.observe(), first.snapshot()
    assert_same(then, second.restore(snapshot))
    # Also from a state that was put back itself.
    assert_same(then, first.restore(second.snapshot()))
    assert ASKED["/order"] == 1 and "Order 1" in then.observation.page_text
    second.do("go_to_url", url=f"{SITE}/account")
    assert "Cookies: token=t1" in second.environment.observe().observation.page_text


def test_a_page_keeps_its_policy(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/policy")
    assert "as sent" in second.restore(first.snapshot()).observation.page_text
    assert ASKED["/policy"] == 1


def test_the_answer_to_a_form_comes_back(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.script(
        "document.body.innerHTML = '<form method=post action=/sent><input name=word value=tea></form>';"
        "document.forms[0].submit()"
    )
    first.environment.observe()
    first.type("after", "more")
    then, snapshot = first.environment.observe(), first.snapshot()
    assert "Sent tea as number 1" in then.observation.page_text
    assert_same(then, second.restore(snapshot))
    assert ASKED["/sent"] == 1


def test_what_only_the_page_s_script_knows_is_repeated(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/fold")
    first.click("Change")
    then, snapshot = first.environment.observe(), first.snapshot()
    assert "Folded words" in then.observation.page_text
    assert_same(then, second.restore(snapshot))
    second.click("Change")  # The script agrees that the part is open.
    assert "Folded words" not in second.environment.observe().observation.page_text
    first.script("words.hidden = false; open_ = true; document.body.append(' by no action')")
    with pytest.raises(RestoreError, match="by no action"):
        second.restore(first.snapshot())


def test_after_a_restore_the_episode_goes_on_without_incidents_or_another_look(
    players: tuple[Player, Player],
) -> None:
    first, second = players
    first.start("/fold")
    snapshot = first.snapshot()
    with pytest.raises(PageError, match="Refused"):
        second.browser.goto("http://evil.test/")
    assert second.restore(snapshot).incidents == ()
    second.environment.restore(pickle.loads(snapshot))
    (result,) = second.do("click_element_by_index", index=1)
    assert not result.error, result
    then = second.environment.observe()
    assert "Folded words" in then.observation.page_text
    assert_same(then, first.restore(second.snapshot()))


def test_an_error_shows_no_part_of_a_secret(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.script(f"document.body.innerHTML = '<p>{'x' * 72} {SECRET}</p>'")
    with pytest.raises(RestoreError, match="in place of 'xxxx") as caught:
        second.restore(first.snapshot())
    assert SECRET[:6] not in str(caught.value)


def test_storage_that_no_tab_shows_is_refused(players: tuple[Player, Player]) -> None:
    first, _ = players
    first.start("/storage")
    assert first.browser.guard is not None
    first.browser.guard.admit(("notebook.test",), f"{SITE}/")
    first.do("go_to_url", url="http://notebook.test/second")
    first.environment.observe()
    with pytest.raises(SnapshotError, match=f"can go back to another site, {SITE}/storage"):
        first.snapshot()
    first.do("go_to_url", url="http://notebook.test/second", new_tab=True)
    first.do("close_tab", tab_id="0001")
    first.environment.observe()
    with pytest.raises(SnapshotError, match=f"no tab shows {SITE}"):
        first.snapshot()


def test_a_refused_snapshot_leaves_the_browser_at_its_tab(players: tuple[Player, Player]) -> None:
    first, _ = players
    first.start("/database")
    first.script("document.body.innerHTML = '<a href=/second target=_blank>Second</a>'")
    first.click("Second")
    then = first.environment.observe().observation
    assert then.url == f"{SITE}/second"
    with pytest.raises(SnapshotError, match="indexeddb"):
        first.snapshot()
    assert first.environment.observe().observation.current_tab == then.current_tab


def test_frames_come_back(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/frames")
    first.type("inside", "deep text")
    first.script("frames[0].scrollTo(0, 100)")
    then, snapshot = first.environment.observe(), first.snapshot()
    assert_same(then, second.restore(snapshot))
    read = "return [frames[0].inside.value, frames[0].scrollY, frames[0].document.activeElement.id]"
    assert second.script(read) == ["deep text", 100, "inside"]


def test_a_page_that_needs_time_is_waited_for(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/late")
    first.do("wait", seconds=1)
    then, snapshot = first.environment.observe(), first.snapshot()
    assert "there" in then.observation.page_text
    assert_same(then, second.restore(snapshot))


def test_one_snapshot_is_for_any_number_of_browsers(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/fields")
    first.type("name", "Ada")
    then, snapshot = first.environment.observe(), first.snapshot()
    first.do("go_to_url", url=f"{SITE}/long")
    for one in (second, first, second):
        assert_same(then, one.restore(snapshot))
        one.type("name", "Grace")


def test_files_come_back(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/")
    first.do("write_file", file_name="todo.md", content="one")
    then, snapshot = first.environment.observe(), first.snapshot()
    first.do("write_file", file_name="todo.md", content="two", append=True)
    now = second.restore(snapshot)
    assert (now.todo_contents, now.file_system) == (then.todo_contents, then.file_system)
    assert now.todo_contents.strip() == "one"


def test_what_cannot_come_back_is_refused(players: tuple[Player, Player]) -> None:
    first, second = players
    first.start("/random")
    with pytest.raises(RestoreError, match=r"the page shows 'number 0.* in place of 'number 0"):
        second.restore(first.snapshot())
    with pytest.raises(SnapshotError, match="call reset first"):
        second.snapshot()
    first.start("/database")
    with pytest.raises(SnapshotError, match="the page keeps something in indexeddb"):
        first.snapshot()
    first.start("/", environment="web")
    with pytest.raises(SnapshotError, match="a live site cannot be set back"):
        first.snapshot()
    assert first.browser.source(200) is None  # Responses are kept for snapshots alone.
    snapshot = pickle.dumps(second.environment.snapshot()) if second.start("/fields") else b""
    assert first.browser.guard is not None
    blocked = pickle.loads(snapshot.replace(b"shop.test", b"evil.test"))
    with pytest.raises(RestoreError, match="Refused to open"):
        first.environment.restore(blocked)


def test_an_application_is_put_back_with_its_page(
    players: tuple[Player, Player], tmp_path: pathlib.Path
) -> None:
    Notebook(tmp_path).prepare()
    task = Task(task_id="notebook/write/5", website=f"{SITE}/", objective="Write.", environment="app", seed=5)
    with Notebook(tmp_path) as one, Notebook(tmp_path) as other:
        environments = []
        for application, player in zip((one, other), players, strict=True):
            note = application.data / "note"
            check = lambda end, note=note: end.answer == "7" and note.read_text() == "changed"  # noqa: E731
            environments.append(AppEnvironment(player.environment, [AppTask(task, application, check)]))
        first, second = environments
        with pytest.raises(SnapshotError, match="call reset first"):
            first.snapshot()
        first.reset(task)
        (one.data / "note").write_text("changed")
        view, snapshot = first.observe(), pickle.dumps(first.snapshot())
        (one.data / "note").write_text("changed again")
        second.restore(pickle.loads(snapshot))
        assert (other.data / "note").read_text() == "changed" and second.reward() == 0.0
        assert other.seed == one.seed == 5
        assert_same(view, second.observe())
        second.finish(normalize_action({"done": {"text": "7", "success": True}}))
        assert second.reward() == 1.0 and first.reward() == 0.0
        with pytest.raises(RestoreError, match="Refused to open"):
            second.restore(pickle.loads(snapshot.replace(b"shop.test", b"evil.test")))
        assert second.reward() is None


MINIWOB = (
    *("login-user", "click-checkboxes", "enter-text", "focus-text-2", "click-tab-2", "enter-password"),
    *("click-collapsible-2", "click-button-sequence", "choose-list", "click-dialog-2"),
)


@pytest.mark.parametrize("page", MINIWOB)
def test_an_episode_of_miniwob_is_finished_in_another_browser(
    page: str, browsers: tuple[Browser, Browser], tmp_path: pathlib.Path
) -> None:
    images = ImageStore(tmp_path)
    first, second = (MiniWobEnvironment(one, images) for one in browsers)
    with pytest.raises(SnapshotError, match="call reset first"):
        first.snapshot()
    played, taken = Episode(first, first.reset(make_task(page, 3))), []
    for _ in played.steps(teacher):
        taken.append((pickle.dumps(first.snapshot()), played.fork(second)))
    assert first.reward() == 1.0
    number = len(taken) // 2
    snapshot, rest = taken[number]
    second.restore(pickle.loads(snapshot))
    for _ in rest.steps(teacher):
        pass
    assert second.reward() == 1.0 and rest.texts == played.texts
    # Chance is not a part of the seed.
    first.restore(pickle.loads(snapshot))
    first.browser.page_script("document.body.append('something else')")
    with pytest.raises(RestoreError, match="something else"):
        second.restore(first.snapshot())
    with pytest.raises(SnapshotError, match="call reset first"):
        second.snapshot()


def test_a_page_of_miniwob_that_has_closed_cannot_be_put_back(
    browsers: tuple[Browser, Browser], tmp_path: pathlib.Path
) -> None:
    environment = MiniWobEnvironment(browsers[0], ImageStore(tmp_path))
    environment.reset(make_task("click-test", 1))
    environment.browser.driver.close()
    with pytest.raises(SnapshotError, match="cannot be read"):
        environment.snapshot()
