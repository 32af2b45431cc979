"""Pages that move while an agent is at them, and episodes on these pages in a fleet's worker.

Every page carries its name in its title, its text, its address and its colour, and reports to the server what
is clicked, typed and scrolled on it. So what an observation mixes, and what an action hits, is known without
the code that makes observations and actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from PIL import Image

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.browser.devtools import DevToolsConnection, DocumentGoneError
from collection.browser.guard.config import GuardConfig
from collection.fleet.config import EpisodeSettings
from collection.fleet.worker import Episode as FleetEpisode
from collection.fleet.worker import PlayedEpisode, Worker
from collection.llm.actor import ActorReply
from collection.llm.config import ActorConfig
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Observation, Task, Trajectory
from tests.agent.plain_episode import DONE, reply
from tests.loopback import PageHandler, serving

# (page text that the actor is shown, number of the step) -> actions.
Plan = Callable[[str, int], list[dict[str, Any]]]

ACTOR = ActorConfig(kind="scripted")
COLOURS = {
    "basket": (200, 60, 60),
    "pay": (60, 200, 60),
    "form": (60, 60, 200),
    "results": (200, 200, 60),
    "start": (60, 200, 200),
    "stage": (200, 60, 200),
    "after": (120, 120, 120),
    "inner": (40, 40, 40),
    "blank": (255, 255, 255),
}
_BODIES = {
    "basket": """<button id=delete>Delete basket</button> <button id=open onclick="
        const popup = window.open('/pay?run={run}', '_blank');
        setTimeout(() => popup.close(), {ms})">Open payment</button>""",
    "pay": "<button id=pay>Pay</button> <button id=other>Pay later</button>",
    "form": "<form action=/results><input type=hidden name=ms value={ms}><input name=words id=words></form>",
    "results": "<button id=buy>Buy</button>",
    "start": """<button id=delete>Delete basket</button> <input id=field>
        <button id=open onclick="window.open('/stage?run={run}', '_blank')">Open the stage</button>""",
    "stage": """<button id=button>Go</button> <input id=field>
        <button id=self onclick="window.close()">Close</button>
        <iframe src='/inner?run={run}' width=300 height=220></iframe>""",
    "after": "<button id=danger>Delete basket</button> <input id=field>",
    "inner": "<button id=inside>Inside</button>",
}
_PAGE = """<!doctype html><html style='background: rgb{colour}'><title>{name} page</title>
<link rel=icon href='data:,'><body><h1>{name} page</h1>{script}{body}
<div style='height: 3000px'>A long page.</div></body></html>"""
# The form has none: Chromium keeps a page without scripts for the way back, and with it its nodes.
_SCRIPT = """<script>
const report = (what) => navigator.sendBeacon(`/report?page={name}&run={run}&what=${{what}}`);
addEventListener('click', (event) => report('click ' + event.target.id), true);
addEventListener('input', () => report('input'), true);
addEventListener('scroll', () => report('scroll'), true);
</script>"""


class Site:
    """The pages' server; used with `with`.

    Attributes:
      reports: (page, what) by run, in the order of arrival.
    """

    def __init__(self) -> None:
        self.reports: dict[str, list[tuple[str, str]]] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Site:
        site = self

        class Handler(PageHandler):
            def get(self) -> None:
                place = urlsplit(self.path)
                name, query = place.path.strip("/"), {"ms": "0", "run": ""} | dict(parse_qsl(place.query))
                if name == "results":
                    time.sleep(int(query["ms"]) / 1000)
                if name not in _BODIES:
                    self.send_error(404)
                    return
                values = {"name": name, "colour": COLOURS[name], **query}
                script = "" if name == "form" else _SCRIPT.format(**values)
                with contextlib.suppress(ConnectionError):  # The tab has closed.
                    self.reply(_PAGE.format(script=script, body=_BODIES[name].format(**values), **values))

            def post(self) -> None:
                query = dict(parse_qsl(urlsplit(self.path).query))
                site.reports.setdefault(query["run"], []).append((query["page"], query["what"]))
                with contextlib.suppress(ConnectionError):
                    self.reply("")

        self.url = f"http://{self._open.enter_context(serving(Handler))}"
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class Actor:
    """An actor that follows a plan.

    Attributes:
      ready: called right before each reply, with what a plan gets.
      texts: of pages that it was to read, by the current plan.
    """

    name = "plan"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.plan: Plan = lambda text, step: [DONE]
        self.ready: Callable[[str, int], None] = lambda text, step: None

    def reply(self, request: Any) -> ActorReply:
        text = request.messages[-1].text
        actions = self.plan(text, request.step)
        self.ready(text, request.step)
        return ActorReply(reply(*actions))

    def reflect(self, request: Any) -> ActorReply:
        raise AssertionError(request)

    def extract(self, request: Any) -> ActorReply:
        self.texts.append(request.text)
        return ActorReply("the answer")


# The beginning of `Episode.death` where the worker says in one line that no episode can be played.
RUN_ENDS = "the run ends"


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode.

    Attributes:
      trajectory: None if its worker died.
      death: what the worker died of, or the run's failure; "" if it lived.
      tracebacks: number of exceptions that were logged meanwhile.
    """

    run: str
    trajectory: Trajectory | None
    death: str
    tracebacks: int


class Stage(contextlib.AbstractContextManager["Stage"]):
    """A site, and a worker that plays episodes there; a worker that dies is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._runs, self._workers = folder, 0, 0
        self.site, self.actor = Site(), Actor()
        self.images = ImageStore(folder)
        self._open = contextlib.ExitStack()
        self._side: tuple[str, DevToolsConnection] | None = None

    def __enter__(self) -> Stage:
        self._open.enter_context(self.site)
        self.worker = self._new_worker()
        return self

    def __exit__(self, *_: object) -> None:
        if self._side is not None:
            self._side[1].close()
        self.worker.close()
        self._open.close()

    def play(self, page: str, plan: Plan, **query: object) -> Episode:
        """Plays an episode that starts at a page; the plan's texts are those of the prompt."""
        self._runs += 1
        run = str(self._runs)
        address = f"{self.site.url}/{page}?{urlencode({'run': run, **query})}"
        task = Task(
            task_id=f"moving/{run}", website=address, objective="Go on.", environment="web", site=page
        )
        self.actor.plan, self.actor.texts = plan, []
        trajectory, death = None, ""
        log = io.StringIO()
        with contextlib.redirect_stderr(log):
            try:
                done = self.worker.play(self.episode(task))
                if isinstance(done, PlayedEpisode):
                    trajectory = Trajectory.model_validate_json(done.record)
                else:
                    death = f"{RUN_ENDS}: {done.reason}"
            except Exception as error:
                death = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
        print(log.getvalue(), end="", file=sys.stderr)
        if death:
            with contextlib.suppress(Exception):
                self.worker.close()
            self.worker = self._new_worker()
        return Episode(run, trajectory, death, log.getvalue().count("Traceback (most recent call last)"))

    def episode(self, task: Task) -> FleetEpisode:
        return FleetEpisode(task, 1, "", 0, self._folder, ACTOR, None)

    def happens(self, kind: str, after_ms: int) -> None:
        """Navigates, closes or crashes the current tab in so many milliseconds, over its own connection."""
        browser = self.worker._browsers._browser
        assert browser is not None
        target, url = browser.current_handle, browser._process.devtools_url
        if self._side is None or self._side[0] != url:
            self._side = (url, DevToolsConnection(url, lambda event: None))
        connection = self._side[1]
        method, params = {
            "navigate": ("Page.navigate", {"url": f"{self.site.url}/after?run={self._runs}"}),
            "close": ("Page.close", {}),
            "crash": ("Page.crash", {}),
        }[kind]
        session = connection.send("", "Target.attachToTarget", targetId=target, flatten=True)

        def send() -> None:
            with contextlib.suppress(ConnectionError, DocumentGoneError):
                connection.send(session.result(10)["sessionId"], method, **params)

        session.result(10)
        threading.Timer(after_ms / 1000, send).start()

    def reported(self, played: Episode) -> list[tuple[str, str]]:
        return self.site.reports.get(played.run, [])

    def mixed(self, played: Episode) -> list[str]:
        """Describes the observations that have parts of several pages."""
        steps = played.trajectory.steps if played.trajectory else ()
        found = []
        for step in steps:
            names = parts_of(step.observation, self.images)
            if len(set(names.values())) > 1:
                found.append(f"step {step.number}: " + ", ".join(f"{k} {v}" for k, v in names.items()))
        return found

    def _new_worker(self) -> Worker:
        self._workers += 1
        settings = EpisodeSettings(
            actor=ACTOR,
            browser=BrowserConfig(width=500, height=320),
            guard=GuardConfig(private=(self.site.url,)),
            prompt=PromptConfig(style="compact"),
            limits=EpisodeLimits(max_steps=6),
            extra_actions=("click_coordinates",),
        )
        worker = Worker(self._workers, settings)
        worker._actor = lambda episode: self.actor  # In the place of the one that the settings name.
        return worker


def parts_of(observation: Observation, images: ImageStore) -> Mapping[str, str]:
    """Names the page that each part of an observation comes from; parts that name none are left out."""
    tab = next((tab for tab in observation.tabs if tab.tab_id == observation.current_tab), None)
    titles = {"text": observation.page_text, "title": observation.title}
    addresses = {"url": observation.url}
    if tab is not None:
        titles["tab's title"], addresses["tab's url"] = tab.title, tab.url
    found = {}
    for part, text in titles.items():
        names = pages_in(text)
        if names:
            found[part] = names[0]
        if len(set(names)) > 1:
            found[f"{part} also"] = names[1]
    for part, text in addresses.items():
        name = urlsplit(text).path.strip("/")
        found[part] = "blank" if text in ("", "about:blank") else name
    if tab is None:
        found["current tab"] = "none"
    if observation.screenshot is not None:
        image = Image.open(io.BytesIO(images.get(observation.screenshot))).convert("RGB")
        pixel = image.getpixel((image.width - 30, image.height - 3))
        found["screenshot"] = next((name for name, colour in COLOURS.items() if colour == pixel), f"{pixel}")
    return found


def pages_in(text: str) -> list[str]:
    """Names the pages whose headings or titles a text has, without the frame's, which is part of one."""
    return [name for name in re.findall(r"(\w+) page\b", text) if name in COLOURS and name != "inner"]


def index_of(text: str, element: str) -> int:
    """The number of an element in the prompt, by its id; 0 if it is not there."""
    found = re.search(rf"\[(\d+)\]<\w+[^\n]*\bid={element}\b", text)
    return int(found[1]) if found else 0


def click(text: str, element: str) -> dict[str, Any]:
    return {"click_element_by_index": {"index": index_of(text, element)}}


def shows(text: str, page: str) -> bool:
    """True if the prompt shows a page of that name."""
    return f"{page} page" in text


# --- Plans ---


def type_and_enter(text: str, step: int) -> list[dict[str, Any]]:
    """Sends the form with the Enter key."""
    if step > 1:
        return [DONE]
    return [{"input_text": {"index": index_of(text, "words"), "text": "cats\n"}}]


def pay_in_popup(text: str, step: int) -> list[dict[str, Any]]:
    """Opens the popup, and pays there if it is shown; nothing else is ever clicked."""
    if shows(text, "pay") and step < 5:
        return [click(text, "pay")]
    return [click(text, "open")] if step == 1 else [DONE]


ACTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "click": lambda text: click(text, "button"),
    "input": lambda text: {"input_text": {"index": index_of(text, "field"), "text": "hello"}},
    "scroll": lambda text: {"scroll": {"down": True, "num_pages": 1.0}},
    "extract": lambda text: {"extract_structured_data": {"query": "what", "extract_links": False}},
    "keys": lambda text: {"send_keys": {"keys": "Tab Tab Enter"}},
    "coordinates": lambda text: {"click_coordinates": {"x": 30, "y": 80}},
}


def tour(text: str, step: int) -> list[dict[str, Any]]:
    """Uses a tab, a field, a frame, the page's whole length and its text."""
    return [
        click(text, "open"),
        {"input_text": {"index": index_of(text, "field"), "text": "hello"}},
        click(text, "inside"),
        ACTIONS["scroll"](text),
        ACTIONS["extract"](text),
        DONE,
    ][step - 1 : step]


def act_on_stage(action: str) -> Plan:
    """Opens the stage in a tab of its own, carries out one action there, and ends."""

    def plan(text: str, step: int) -> list[dict[str, Any]]:
        if step == 1:
            return [click(text, "open")]
        return [ACTIONS[action](text)] if step == 2 and shows(text, "stage") else [DONE]

    return plan


@contextlib.contextmanager
def moving_when(stage: Stage, kind: str, after_ms: int) -> Iterator[None]:
    """While the block runs: that happens to the stage so long after its action begins."""

    def ready(text: str, step: int) -> None:
        if step == 2 and shows(text, "stage"):
            stage.happens(kind, after_ms)

    stage.actor.ready = ready
    try:
        yield
    finally:
        stage.actor.ready = lambda text, step: None
