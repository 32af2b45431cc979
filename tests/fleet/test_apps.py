"""Applications in a worker: started with its first task, reached through the guard, set back, and ended."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys

import psutil
import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.environments.apps import suite
from collection.environments.apps.application import Application
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.tasks import AppEnvironment, make_task, tasks_of
from collection.environments.apps.templates import Draw, change
from collection.environments.apps.world import World
from collection.environments.web import WebEnvironment
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import CollectSettings, RecyclePolicy, resolved
from collection.fleet.fleet import run_tasks
from collection.fleet.rounds import Job
from configs.collect import get_config
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.settings import from_config

# A counter: each press of its button adds one, and it is kept in a file.
SITE = """
import http.server, pathlib, sys
path = pathlib.Path(sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/add"):
            path.write_text(str(int(path.read_text()) + 1))
        body = f"<title>Counter</title>{path.read_text()}<form action=/add><button>Add one</button></form>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Counter(Application):
    name, host, version = "counter", "counter.test", "1"
    templates = {"once": change("Press the button once.", "counter", presses=1)}  # noqa: RUF012

    def make_world(self, draw: Draw) -> World:
        return {"counter": {"all": {"presses": 0}}}

    def read(self) -> World:
        return {"counter": {"all": {"presses": int((self.data / "count").read_text())}}}

    def _make(self) -> None:
        pass

    def _fill(self, world: World, data: pathlib.Path) -> None:
        (data / "count").write_text(str(world["counter"]["all"]["presses"]))

    def _serve(self) -> str:
        command = ServerCommand(
            lambda port: [sys.executable, "-S", "-c", SITE, str(port), str(self.data / "count")],
            self.host,
            "/",
            self.live / "log",
            self.folder,
        )
        self._server = ServerProcess(command)
        return self._server.address

    def _stop(self) -> None:
        self._server.close()


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "collection.environments.apps.counter", sys.modules[__name__])
    monkeypatch.setitem(suite._CLASSES, "counter", "counter:Counter")
    config = BrowserConfig(width=400, height=300, quiet_ms=20, settle_ms=300)
    with BrowserPool(config, GuardConfig(), RecyclePolicy(), apps=str(tmp_path / "apps")) as one:
        yield one


def test_an_application_is_played_in_a_worker_and_ends_with_it(pool, tmp_path):
    (counter,) = suite.prepared(["counter"], str(tmp_path / "apps"))
    tasks = [one.task for one in tasks_of(counter, 3)]
    assert tasks[0].task_id == "counter/once/3" and tasks[0].environment == "app"
    for _ in range(2):  # It is set back in between.
        browser = pool.browser(tasks[0])
        running = pool.application("counter")
        inner = WebEnvironment(browser, ImageStore(tmp_path), tmp_path / "files")
        environment = AppEnvironment(inner, [suite.find_task(running, tasks[0].task_id)])
        environment.reset(tasks[0])
        assert environment.reward() == 0.0
        page = environment.observe().observation
        assert page.title == "Counter" and "Add one" in page.page_text
        press = normalize_action({"click_element_by_index": {"index": 1}})
        environment.act([press], lambda query, text: ("", 0.0), float("inf"))
        assert environment.reward() == 1.0
        inner.close()
    server = running._server.pid
    pool.close()
    assert not psutil.pid_exists(server) or psutil.Process(server).status() == psutil.STATUS_ZOMBIE
    assert list((tmp_path / "apps/counter/live").iterdir()) == []


def test_what_is_not_there_is_one_line(pool, tmp_path):
    with pytest.raises(UserError, match=r"no application 'other': use docs, .*, trac, "):
        suite.make_application("other", tmp_path)
    counter = suite.make_application("counter", tmp_path / "apps")
    with pytest.raises(UserError, match=r"call prepare\(\) first"):
        pool.browser(tasks_of(counter, 0)[0].task)
    for name in ("counter/twice/0", "counter/once/x"):
        with pytest.raises(UserError, match="is not one of counter"):
            suite.find_task(counter, name)


@pytest.mark.parametrize(
    ("check", "content", "message"),
    [
        (lambda ending: False, None, ""),
        (lambda ending: True, None, "counter/add/0: its check pays 1 to who has done nothing"),
        (lambda ending: -1, None, r"counter/add/0: its check pays -1: make that 0 to 1"),
        (lambda ending: False, itertools.count().__next__, "holds something else than before"),
        (
            lambda ending: False,
            lambda: "the same",
            r"its content\(\) is the same although its data was damaged",
        ),
    ],
)
def test_checks_and_resets_are_tried_before_a_run(pool, tmp_path, monkeypatch, check, content, message):
    (counter,) = suite.prepared(["counter"], str(tmp_path / "apps"))
    monkeypatch.setattr(
        suite, "tasks_of", lambda application, seed: [make_task(counter, "add", 0, "", check)]
    )
    if content is not None:
        monkeypatch.setattr(counter, "content", content)
    with counter, pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        suite.check_application(counter, 0)


def test_the_scripted_teacher_is_refused(pool, tmp_path):
    (counter,) = suite.prepared(["counter"], str(tmp_path / "apps"))
    jobs = [Job(one.task, 1) for one in tasks_of(counter, 0)]
    settings = resolved(from_config(CollectSettings, get_config("demo")))
    with pytest.raises(UserError, match=r"scripted teacher knows MiniWoB\+\+ alone; name a model"):
        run_tasks(jobs, tmp_path / "run", settings, None, "play")


def test_a_reset_that_restores_nothing_is_found_although_visits_change_nothing(pool, tmp_path, monkeypatch):
    (counter,) = suite.prepared(["counter"], str(tmp_path / "apps"))
    with counter:
        monkeypatch.setattr(counter, "reset", lambda seed: None)
        with pytest.raises(
            UserError, match="holds something else than before: name the tables that visits write"
        ):
            suite.check_application(counter, 0)
