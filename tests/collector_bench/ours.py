"""Our side: the same steps with and without guard and proxy, snapshots of large pages, fleet episodes."""

from __future__ import annotations

import contextlib
import http.server
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection import fleet
from collection.browser.action_types import ActionContext
from collection.browser.actions import execute_list
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.browser.snapshot import observe, take_snapshot
from collection.environments.miniwob import HOST, MiniWobEpisode, MiniWobServer, make_task
from collection.fleet.config import CollectSettings, fleet_config
from collection.fleet.rounds import Job
from configs.collect import get_config
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.settings import from_config
from tests.collector_bench.pages import make_page

_CONTEXT = ActionContext()


class Ours:
    """One browser with the settings of the collector's demo."""

    def __init__(self, browser: Browser, images: ImageStore, guarded: bool) -> None:
        self._browser, self._images, self._guarded = browser, images, guarded
        self._episode = MiniWobEpisode(browser)

    def play(self, page: str, seed: int, rounds: int) -> dict[str, Any]:
        """Returns the seconds of a reset and of each kind of step, as `browsergym_peer.play`."""
        start = time.perf_counter()
        self._episode.reset(make_task(page, seed))
        self._look()
        seconds: dict[str, Any] = {"reset": time.perf_counter() - start, "noop": [], "click": [], "type": []}
        assert self._browser.snapshot is not None
        targets = self._browser.snapshot.targets.items()
        field = next(index for index, target in targets if target.tag in ("input", "textarea"))
        for number in range(rounds):
            actions = {
                "noop": {"wait": {"seconds": 0}},
                "click": {"click_element_by_index": {"index": field}},
                "type": {"input_text": {"index": field, "text": f"word {number}"}},
            }
            for kind, action in actions.items():
                start = time.perf_counter()
                results = execute_list(self._browser, [normalize_action(action)], _CONTEXT)
                ended = self._episode.status()[0]
                self._look()
                seconds[kind].append(time.perf_counter() - start)
                if ended or results[-1].error:
                    raise RuntimeError(f"{page}: {results[-1].text}")
        return seconds

    def _look(self) -> None:
        observe(self._browser, self._images)
        if self._guarded:
            self._browser.take_incidents()


@contextlib.contextmanager
def players(server: MiniWobServer) -> Iterator[dict[bool, Ours]]:
    """A browser without (False) and one with guard and proxy (True)."""
    settings = get_config("demo").to_dict()["browser"]
    hosts = {HOST: f"127.0.0.1:{server.port}"}
    with contextlib.ExitStack() as stack:
        images = ImageStore(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        free = stack.enter_context(Browser(BrowserConfig(**settings, host_rules=server.host_rules)))
        guard = stack.enter_context(Guard(GuardConfig(private=(f"http://{HOST}",)), hosts))
        held = stack.enter_context(Browser(BrowserConfig(**settings), guard))
        yield {False: Ours(free, images, False), True: Ours(held, images, True)}


def time_looks(kinds: tuple[str, ...], counts: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    """Returns the seconds of a snapshot for each page size, in a 1280x1100 window; the first is separate."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, count = [*self.path.split("/"), "0"][:3]
            body = make_page(kind, int(count)) if kind in kinds else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    rows = []
    try:
        with Browser(BrowserConfig()) as browser:
            for kind in kinds:
                for count in counts:
                    browser.goto(f"http://127.0.0.1:{server.server_address[1]}/{kind}/{count}")
                    seconds, snapshot = [], None
                    for _ in range(repeats + 1):
                        start = time.perf_counter()
                        snapshot = take_snapshot(browser)
                        seconds.append(time.perf_counter() - start)
                    assert snapshot is not None
                    rows.append(
                        {
                            "kind": kind,
                            "count": count,
                            "first": seconds[0],
                            "seconds": seconds[1:],
                            "indexed": len(snapshot.targets),
                            "characters": len(snapshot.page_text),
                        }
                    )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return rows


def episodes_an_hour(workers: int, seeds: range) -> tuple[int, float, float]:
    """Episodes, their success rate, and episodes in an hour: the demo's pages, an unerring scripted teacher.

    The start of workers and browsers and the writing of the data set are part of the time.
    """
    settings = get_config("demo").to_dict()
    settings["actor"]["kind"] = "scripted"
    settings["mistakes"]["rate"] = 0.0
    settings["fleet"]["workers"] = workers
    jobs = [Job(make_task(page, seed), 1, 1, False) for seed in seeds for page in settings["pages"]]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        played = fleet.run_tasks(
            jobs, Path(folder), fleet_config(from_config(CollectSettings, settings)), "collect"
        )
        seconds = time.perf_counter() - start
        solved = [bool(one.success) for one in played.trajectories()]
    return len(solved), sum(solved) / len(solved), 3600 * len(solved) / seconds
