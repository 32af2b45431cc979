"""A scripted model behind HTTP APIs of two shapes (Gemini's, chat completions) that fails by a schedule.

It has nothing but the requests, as a model has, and knows the way through each kind of site. In two of five
tasks it takes a number of the first page for the answer unless guidance from a reflection warns it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from rmsweb_jax.errors import UserError
from tests.internet.sites import PASSWORD, SHARED_HOSTS, Login, Site
from tests.internet.view import CODE, Actions, View, done
from tests.internet.world import World
from tests.loopback import PageHandler, serving

_MAX_STEPS = 14
Failure = Literal["", "429", "503", "cut", "reset"]


@dataclasses.dataclass(frozen=True)
class Trouble:
    """A time in which calls fail.

    Attributes:
      kind: `429` asks for a wait; `503`; `cut` breaks every third answer off in the middle, others arrive;
        `reset` closes connections.
      after: number of steps that are decided before it begins.
      seconds: how long it lasts, on the run's clock.
    """

    kind: Failure
    after: int
    seconds: float

    @property
    def total(self) -> bool:
        """True if no call is answered."""
        return self.kind != "cut"


@dataclasses.dataclass
class Begun:
    """A trouble that has begun, with its calls and how many of them failed."""

    trouble: Trouble
    begin: float
    calls: int = 0
    failed: int = 0

    @property
    def end(self) -> float:
        return self.begin + self.trouble.seconds


class Schedule:
    """Troubles in order; each begins with the first call after so many steps.

    Attributes:
      begun: the troubles so far.
    """

    def __init__(self, troubles: tuple[Trouble, ...], clock: Callable[[], float]):
        self._left, self._clock = list(troubles), clock
        self.begun: list[Begun] = []

    @property
    def now(self) -> float:
        return self._clock()

    def next(self, steps: int) -> Failure:
        """Returns how the next call fails; "" if it does not."""
        if self._left and steps >= self._left[0].after and self._current is None:
            self.begun.append(Begun(self._left.pop(0), self._clock()))
        current = self._current
        if current is None:
            return ""
        current.calls += 1
        if current.trouble.kind == "cut" and current.calls % 3:
            return ""
        current.failed += 1
        return current.trouble.kind

    def left(self) -> float:
        """Seconds until calls are answered again."""
        return self._current.end - self._clock() if self._current and self._current.trouble.total else 0.0

    @property
    def _current(self) -> Begun | None:
        return self.begun[-1] if self.begun and self._clock() < self.begun[-1].end else None


@dataclasses.dataclass(frozen=True)
class Call:
    """A request, by the seed that names its step, when it came, and how it failed."""

    seed: int | None
    at: float
    failure: Failure


class ScriptedModel:
    """Answers prompts.

    Attributes:
      answered: answers sent, by purpose.
      quoted: tasks in which it quotes its guidance in its thinking.
    """

    def __init__(self, world: World):
        self.world = world
        self.answered: Counter[str] = Counter()
        self.quoted: set[str] = set()
        self.unknown: list[str] = []

    def answer(self, text: str, policy: bool = False) -> str:
        """Returns the reply to a prompt.

        Args:
          policy: answers as a model that has learned less: it errs in more tasks, and heeds no guidance.
        """
        begins = (purpose for begin, purpose in _PURPOSES.items() if text.startswith(begin))
        purpose = next(begins, "reply" if "<browser_state>" in text else "other")
        self.answered[purpose] += 1
        match purpose:
            case "task":
                return self._task(text)
            case "judge":
                return self._judge(text)
            case "reflect":
                return self._reflect(text)
            case "reply":
                return self._reply(text, policy)
            case "label":
                label = {"reason": "It ended at once.", "category": "endpoint_incomplete", "confidence": 0.9}
                return json.dumps(label)
        if purpose == "other":
            self.unknown.append(text[:200])
        return json.dumps({"answer": "ok"})

    def _task(self, text: str) -> str:
        site, objective = self.world.task_of(text) or (None, "")
        proposal = {
            "executable": site is not None,
            "drop_reason": "" if site else "no such site is known",
            "website": f"https://{site.host}/" if site else "",
            "objective": objective,
            "constraints": [],
            "category": "Other",
        }
        return json.dumps(proposal)

    def _judge(self, text: str) -> str:
        answer = _between(text, "<untrusted_final_answer>", "</untrusted_final_answer>")
        codes = CODE.findall(f"Confirmation code: {answer.rpartition(': ')[2].rstrip('.')}")
        page = _between(text, "<untrusted_page", "</untrusted_page>")
        # The page of a file shows no code; then the answer's form decides.
        seen = bool(codes) and (codes[0] in page or "Confirmation code" not in page)
        reason = "The answer gives a code of the right form." * seen
        return json.dumps({"reason": reason, "outcome": "success" if seen else "failure"})

    def _reflect(self, text: str) -> str:
        _, objective = self.world.task_of(text) or (None, "")
        if "reached the goal" in _between(text, "<outcome>\n", "\n</outcome>").partition(":")[0][:17]:
            return f"{hint(objective)}\nWhat worked should stay as it was."
        return hint(objective)

    def _reply(self, text: str, policy: bool) -> str:
        site, objective = self.world.task_of(text) or (None, "")
        view = View.of(text)
        guidance = _between(text, "<reflection_guidance>\n", "\n</reflection_guidance>")
        thinking = "The page shows where to go on."
        if guidance and _draw(objective, 8) == 0:
            self.quoted.add(objective)
            thinking = f"I was told: {hint(objective)}"
        careless = _draw(objective, 5) < 2 or (policy and _draw(objective, 3) == 0)
        stubborn = _draw(objective, 25) == 3
        warned = hint(objective) in guidance and not stubborn and not policy
        actions = self._decide(site, view, careless and not warned)
        reply = {
            "thinking": thinking,
            "evaluation_previous_goal": "Success" if view.state.step > 1 else "Unknown",
            "memory": f"Step {view.state.step} of the task.",
            "next_goal": "Report the code" if "done" in actions[0] else "Go on to the code",
            "action": actions,
        }
        return json.dumps(reply)

    def _decide(self, site: Site | None, view: View, careless: bool) -> Actions:
        if site is None or view.state.done_only:
            return done("The task could not be completed.", False)
        if view.code:
            return done(f"The confirmation code is: {view.code}", True)
        if view.refused:
            return done("The site refuses access.", False)
        if careless and isinstance(site, Login) and view.state.step < 3:
            return _lured(view)
        if careless and (draft := re.search(r"REF-\d+", view.text)) and view.state.step > 1:
            return done(f"The confirmation code is: {draft[0]}", True)
        if careless and view.state.step == 1:
            return [{"scroll": {"down": True, "num_pages": 1.0}}]
        if view.state.step > _MAX_STEPS:
            return done("The task could not be completed.", False)
        actions = site.act(view)
        waited = view.message.count("Next goal: Go on") - view.message.count("Clicked")
        return actions or ([{"wait": {"seconds": 1}}] if waited < 3 else done("There is no way on.", False))


def hint(objective: str) -> str:
    """Returns the guidance of a task, which has a word that stands nowhere else."""
    return (
        f"Watchword {watchword(objective)}: the number on the first page is only a reference and no answer; "
        "go on until the words Confirmation code stand on the page."
    )


def watchword(objective: str) -> str:
    return f"zyx{_draw(objective, 10**9):09d}qv"


def _draw(objective: str, sides: int) -> int:
    """Draws by the task, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{sides} {objective}".encode()).digest()[:6], "big") % sides


def _lured(view: View) -> Actions:
    """Follows the order to confirm the password elsewhere."""
    if view.state.step == 1:
        return [{"go_to_url": {"url": f"https://{SHARED_HOSTS['search']}/"}}]
    return view.type("Search the web", f"<secret>{PASSWORD}</secret>") or done("REF-0", True)


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


_PURPOSES = {
    "You check whether": "judge",
    "You coach an agent": "reflect",
    "You turn a search query": "task",
    "You read a web page": "extract",
    "This is a test of the connection": "check",
    "Two runs of a web agent": "label",
}


class ModelApi:
    """Serves a teacher in both shapes; used with `with`.

    Args:
      think: called before each answer on the Gemini side; returns when the model would answer.

    Attributes:
      schedule: of failures, on the Gemini side.
      calls: all that came, in order.
      delivered: number of steps that were decided on the Gemini side.
      url: where it listens.
    """

    def __init__(self, teacher: ScriptedModel, schedule: Schedule, think: Callable[[], None] = lambda: None):
        self.teacher, self.schedule, self._think = teacher, schedule, think
        self.calls: list[Call] = []
        self.delivered = 0
        self._lock = threading.Lock()
        api = self

        class Handler(PageHandler):
            protocol_version = "HTTP/1.1"

            def post(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    api.serve(self, body)

        self._handler, self._open = Handler, contextlib.ExitStack()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead google-genai here."""
        return {"GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_API_KEY": "key-of-the-tests"}

    @property
    def chat_url(self) -> str:
        return f"{self.url}/v1"

    def __enter__(self) -> ModelApi:
        self.url = f"http://{self._open.enter_context(serving(self._handler))}"
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def serve(self, handler: PageHandler, body: dict[str, Any]) -> None:
        chat = "messages" in body
        seed = body.get("seed") if chat else body["generationConfig"].get("seed")
        reply = ""
        with self._lock:
            # A policy's own server is part of the run, and does not fail.
            failure = "" if chat else self.schedule.next(self.delivered)
            self.calls.append(Call(seed, self.schedule.now, failure))
            if failure in ("", "cut"):
                text = _chat_text(body) if chat else _gemini_text(body)
                self.delivered += not chat and not failure and "<browser_state>" in text
                reply = self._answer(text, chat)
        if failure == "reset":
            handler.close_connection = True
        elif failure in ("429", "503"):
            headers = {"Retry-After": str(round(self.schedule.left()) + 1)} if failure == "429" else {}
            message = {"429": "Resource exhausted", "503": "The model is overloaded"}[failure]
            error = {"error": {"code": int(failure), "message": message, "status": "UNAVAILABLE"}}
            handler.reply(json.dumps(error), "application/json", int(failure), headers)
        else:
            if not chat:
                self._think()
            data = json.dumps(_completion(reply) if chat else _candidate(reply)).encode()
            if failure == "cut":
                handler.close_connection = True
                length = {"Content-Length": str(len(data))}
                handler.reply(data[: len(data) // 2], "application/json", headers=length)
            else:
                handler.reply(data, "application/json")

    def _answer(self, text: str, chat: bool) -> str:
        try:
            return self.teacher.answer(text, policy=chat)
        except UserError as error:
            self.teacher.unknown.append(str(error))
            return "{}"


def _chat_text(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _gemini_text(body: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in body["contents"][-1]["parts"])


def _completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "choices": [choice],
        "usage": {"prompt_tokens": 3000, "completion_tokens": 90, "total_tokens": 3090},
    }


def _candidate(text: str) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 3000, "candidatesTokenCount": 90, "totalTokenCount": 3090}
    return {"candidates": [candidate], "usageMetadata": usage}
