"""An official judge: its own code in a child process, with the run's model behind its client."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from collection.judges.base import Verdict
from collection.judges.model_judge import ModelJudge, NoVerdictError, Questions, UnusableReplyError
from collection.judges.notes import TaskNotes
from collection.judges.official import driver
from collection.judges.official.checkouts import OFFICIAL, VERDICTS
from collection.judges.official.evidence import episode
from collection.llm.model import Model
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import ChildProcess, bypass_proxy_locally
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory

NO_SCREENSHOTS = "[no verdict: the run has no screenshots]"
# Calls of one judgement at a time.
_CONCURRENT = 8
# A process that has closed its output ends within this time.
_END_S = 5.0
# The child needs a path and a home; keys and settings of this process are none of its business.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "no_proxy", "NO_PROXY")


class OfficialJudge(ModelJudge):
    """Judges by the code of a benchmark's authors; implements `collection.judges.base.Judge`.

    Prompts, order of calls and reading of replies are theirs. A reply in which their code finds no verdict is
    asked for again once; then the run is unjudged, also where their code calls it a failure.

    Args:
      checkout: checked by `check_checkout`.
      python: interpreter with the packages of the checkout; empty: this one.
    """

    def __init__(
        self,
        method: str,
        checkout: Path,
        model: Model,
        notes: Mapping[str, TaskNotes] | None = None,
        temperature: float = 0.0,
        python: str = "",
    ):
        super().__init__(method, model, notes)
        self._official, self._checkout = OFFICIAL[method], checkout.resolve()
        self._python, self._children = python, threading.local()
        self._endpoint: JudgeEndpoint | None = None
        self._lock = threading.Lock()
        self.sees, self.needs_answer = self._official.sees, self._official.needs_answer
        repository = self._official.repository
        self.fingerprint = JudgeFingerprint(
            method=method,
            source=f"{repository.address}@{repository.commit}",
            model=model.name,
            temperature=temperature,
            evidence={name: str(limit) for name, limit in self._official.evidence.items()},
        )

    def _decide(self, trajectory: Trajectory, notes: TaskNotes, questions: Questions) -> Verdict:
        if not any(step.observation.screenshot for step in trajectory.steps):
            raise NoVerdictError(NO_SCREENSHOTS)
        with tempfile.TemporaryDirectory(prefix="judge-") as folder:
            shown = episode(trajectory, questions.images, notes.rubric, Path(folder))
            judgement = _Judgement(questions)
            try:
                return self._ask_code(shown, judgement)
            except UnusableReplyError:
                if self._official.retries:
                    raise
                judgement.begin_again()
                return self._ask_code(shown, judgement)

    def _ask_code(self, shown: dict[str, Any], judgement: _Judgement) -> Verdict:
        """Runs the judge's code on an episode once.

        Raises:
          UnusableReplyError: it found no verdict in the last reply, or failed.
          NoVerdictError, UserError: a call got no answer.
        """
        found = self._child().judge(shown, judgement)
        if judgement.error is not None:
            raise judgement.error
        text, value = found.get("text") or judgement.reply, found.get("value")
        if "error" in found or value is None or not self._official.reads(judgement.reply):
            reason = " ".join(str(found.get("error") or f"its code reads {value!r}").split())
            raise UnusableReplyError(f"{text}\n[no verdict: {reason}]".strip())
        # An undecided judge has answered in its form and is not asked again.
        return Verdict(VERDICTS.get(value), text, score=found.get("score"))

    def _child(self) -> _Child:
        """Returns the process of this thread; it ends with the thread."""
        child: _Child | None = getattr(self._children, "one", None)
        if child is None or not child.alive:
            with self._lock:
                if self._endpoint is None:
                    self._endpoint = JudgeEndpoint()
                    weakref.finalize(self, self._endpoint.close)
            child = _Child(self.method, self._checkout, self._python, self._endpoint, self.model.name)
            self._children.one = child
        return child


def check_code(method: str, checkout: Path, python: str) -> None:
    """Starts a judge's code once, so that what it lacks is reported before anything is played.

    Raises:
      UserError: as `_Child`.
    """
    endpoint = JudgeEndpoint()
    try:
        _Child(method, checkout.resolve(), python, endpoint, "none").stop()
    finally:
        endpoint.close()


class _Judgement:
    """The calls that a judge's code makes about one run.

    Attributes:
      reply: the last reply.
      error: reason why a call got no answer, which ends the judgement.
    """

    def __init__(self, questions: Questions):
        self._questions, self._lock = questions, threading.Lock()
        # Calls so far by their content: the judge's code wants a new reply to a repeated question.
        self._repeats: Counter[str] = Counter()
        self._last = self.reply = ""
        self.error: BaseException | None = None

    def begin_again(self) -> None:
        """From now on known replies are used again, but not that to the last question."""
        self._repeats = Counter({self._last: self._repeats[self._last]})
        self.reply = ""

    def answer(self, body: dict[str, Any]) -> str:
        """Answers a chat-completions request by the run's model.

        Raises:
          NoVerdictError, UserError: as `Questions.pass_on`; and sets `error`.
        """
        chat = {name: body[name] for name in ("messages", "response_format") if name in body}
        question = hashlib.sha256(json.dumps(chat, sort_keys=True).encode()).hexdigest()
        with self._lock:
            self._last, repeat = question, self._repeats[question]
            self._repeats[question] += 1
        try:
            self.reply = self._questions.pass_on(chat, repeat)
        except BaseException as error:
            self.error = error
            raise
        return self.reply


class _Child:
    """A process that runs a judge's code, one episode after another.

    Raises:
      UserError: the interpreter or a package of the checkout is missing, or its code cannot be imported.
    """

    def __init__(self, method: str, checkout: Path, python: str, endpoint: JudgeEndpoint, model: str):
        official = OFFICIAL[method]
        bypass_proxy_locally()
        self._scratch = tempfile.TemporaryDirectory(prefix="official-judge-")
        scratch = Path(self._scratch.name)
        self._endpoint, self._judgement = endpoint, None
        self._key = endpoint.add(self._answer)
        kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
        command = ["env", "-i", *kept, "PYTHONUTF8=1", "ANONYMIZED_TELEMETRY=false", python or sys.executable]
        # No compiled files: neither written into the checkout nor taken from it.
        command += ["-B", "-X", f"pycache_prefix={scratch / 'pycache'}", driver.__file__]
        self._process = ChildProcess(
            f"the {method} judge", command, scratch / "log.txt", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        ready = self._ask(
            {
                "method": method,
                "checkout": str(checkout),
                "scratch": str(scratch / "data"),
                "base_url": endpoint.url,
                "key": self._key,
                "model": model,
                "images": official.evidence.get("screenshots", 0),
            }
        )
        if ready is None or ready:
            failure = self._ended()
            self.stop()
            if ready and "missing" in ready:
                raise UserError(
                    f"the {method} judge: its code needs the Python package {ready['missing']}: give "
                    "config.judge.official_python=PYTHON of an environment with it, made with: "
                    f"pip install {official.repository.packages}"
                )
            raise UserError(f"the {method} judge: {ready['error'] if ready else failure}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def judge(self, shown: dict[str, Any], judgement: _Judgement) -> dict[str, Any]:
        """Returns the answer of the judge's code; `error` if it failed, which ends the process."""
        self._judgement = judgement
        found = self._ask(shown)
        self._judgement = None
        if found is None:
            reason = self._ended()
            self.stop()
            return {"error": reason}
        return found

    def stop(self) -> None:
        self._endpoint.remove(self._key)
        self._process.kill()
        self._scratch.cleanup()

    def _ended(self) -> str:
        """Returns why the process ended: its last line, or its exit code."""
        self._process.wait(_END_S)
        return str(self._process.failure()).partition(": ")[2].rpartition(" (log:")[0]

    def _ask(self, content: dict[str, Any]) -> dict[str, Any] | None:
        """Sends a line and returns the answer; None if the process has ended."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(content).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        return None

    def _answer(self, body: dict[str, Any]) -> str:
        judgement = self._judgement
        if judgement is None:
            raise ValueError("no episode is being judged")
        try:
            return judgement.answer(body)
        except BaseException:
            # The judge's code may repeat a failed call for ever.
            self._process.kill()
            raise


class JudgeEndpoint:
    """A chat-completions endpoint for judges' own clients on this machine, each of which has its own key.

    What a client sends goes to its function, which returns the reply or raises to refuse the request.

    Attributes:
      url: address up to and including the version.
    """

    def __init__(self) -> None:
        self._clients: dict[str, tuple[Callable[[dict[str, Any]], str], anyio.CapacityLimiter]] = {}
        app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])
        config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="off", ws="none")
        listening = config.bind_socket()
        # From here on clients wait for the server, which starts in its own time.
        listening.listen(config.backlog)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        self._server = uvicorn.Server(config)
        run = threading.Thread(target=self._server.run, args=([listening],), name="judges", daemon=True)
        run.start()

    def add(self, answer: Callable[[dict[str, Any]], str]) -> str:
        """Returns the key of a new client, whose requests `answer` answers in other threads."""
        key = secrets.token_urlsafe(32)
        self._clients[key] = answer, anyio.CapacityLimiter(_CONCURRENT)
        return key

    def remove(self, key: str) -> None:
        self._clients.pop(key, None)

    def close(self) -> None:
        self._server.should_exit = self._server.force_exit = True

    async def _complete(self, request: Request) -> JSONResponse:
        # A judge may run several event loops one after another, which cannot share a connection.
        headers = {"Connection": "close"}
        client = self._clients.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if client is None:
            return JSONResponse({"error": {"message": "not found"}}, 404, headers)
        answer, limiter = client
        try:
            body = await request.json()
            text = await anyio.to_thread.run_sync(answer, body, limiter=limiter)
            model = body["model"]
        except Exception as error:
            # Not an error that a client would try again.
            return JSONResponse({"error": {"message": str(error)}}, 400, headers)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        # Tokens are counted by the run, not by the judge's code.
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        completion = {"id": "judge", "object": "chat.completion", "created": 0, "model": model}
        return JSONResponse({**completion, "choices": [choice], "usage": usage}, headers=headers)
