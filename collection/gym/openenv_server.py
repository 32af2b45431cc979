"""An OpenEnv server: each session has a browser of its own, at MiniWoB++ pages and applications.

    pip install openenv
    python -m collection.gym.openenv_server --task=miniwob/click-button --port=8000

An action is a call as BrowserGym names it, `{"call": "click('3')"}`, or a reply of our agents. `reset` takes
`seed`, and `task` in place of the server's. With `--text_only` observations have no screenshot, for harnesses
that paste them into prompts. With `--prompt=compact` they are our prompt, as chat messages.

An episode that is lost has no reward: its steps are errors whose message begins with `episode_lost`, until
`reset`, and `state` says `lost`.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from absl import app, flags
from fastapi import FastAPI, Request  # pyright: ignore[reportMissingImports]
from fastapi.responses import JSONResponse  # pyright: ignore[reportMissingImports]
from openenv.core.env_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import (  # pyright: ignore[reportMissingImports]
    Action,
    ConcurrencyConfig,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import ConfigDict, Field, model_validator

from collection.browser.config import BrowserConfig
from collection.gym.errors import LOST, EpisodeLostError
from collection.gym.session import find
from collection.gym.turns import PromptStyle, Turn, Turns
from collection.llm.chat import to_chat
from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.records.schema import ImagePart

# Longer than the slowest model takes for a reply: OpenEnv closes a session's browser under a slow client.
_IDLE_S = 3600.0

_TASK = flags.DEFINE_string("task", "miniwob/click-button", "Task: miniwob/PAGE or APPLICATION/TEMPLATE.")
_PORT = flags.DEFINE_integer("port", 8000, "Port on loopback.")
_SESSIONS = flags.DEFINE_integer("sessions", 16, "Largest number of sessions, each with a browser.")
_STEPS = flags.DEFINE_integer("max_steps", 20, "An episode ends after so many steps.")
_TEXT_ONLY = flags.DEFINE_bool("text_only", False, "Leave screenshots out of observations.")
_PROMPT = flags.DEFINE_enum("prompt", "", ["", "compact", "full"], "Style of our prompt, if it is shown.")
_WINDOW = flags.DEFINE_string("window", "1280x1100", "WIDTHxHEIGHT of the browser, and of screenshots.")
_APPS = flags.DEFINE_string("apps_folder", "", "Where applications are installed; empty: the user's cache.")


class WebAction(Action):
    """An action of the agent.

    What a model writes instead, also an object with other keys, is answered by an observation with an error:
    harnesses take a refused message for the end of the session.
    """

    model_config = ConfigDict(extra="ignore", json_schema_extra={"required": ["call"]})

    call: str = Field("", description="One call or several, a line each, such as click('3').")

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and "call" not in value and "action" in value:
            value = {"call": value}  # A reply of our agents, which a harness has decoded.
        if isinstance(value, dict) and not isinstance(call := value.get("call", ""), str):
            value = {**value, "call": json.dumps(call)}
        return value


class WebObservation(Observation):
    """The page, as the agent sees it."""

    goal: str = Field(description="What is to be done.")
    url: str = ""
    page: str = Field("", description="Text of the page, with the numbers of its elements.")
    error: str = Field("", description="Why the last action failed.")
    screenshot: str = Field("", description="PNG in base64, with the numbers; empty in text-only mode.")
    messages: list[dict[str, Any]] = Field(
        [], description="With --prompt, in place of page and screenshot: the chat that the agent answers."
    )


class WebState(State):
    """The episode."""

    task_id: str = ""
    lost: bool = Field(False, description="The episode was lost and has no reward: reset.")


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """Settings of all sessions of a server.

    Attributes:
      task: name of the task that `reset` begins, unless it names another.
      prompt: style of our prompt in observations; "" for none.
      apps: folder in which applications are installed; "" is the user's cache.
    """

    task: str
    max_steps: int = 20
    text_only: bool = False
    prompt: PromptStyle = ""
    browser: BrowserConfig = BrowserConfig()
    apps: str = ""


class WebEnvironment(Environment[WebAction, WebObservation, WebState]):
    """One session; its browser starts with the first `reset`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, config: ServerConfig):
        super().__init__()
        self._config = config
        self._turns = Turns(config.task, config.max_steps, config.prompt, config.browser, config.apps)
        self._state = WebState(episode_id=None, step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = "", **_: Any
    ) -> WebObservation:
        with self._losses():
            turn = self._turns.reset(secrets.randbelow(2**31) if seed is None else seed, task)
        begun = self._turns.task.task_id if self._turns.task else ""
        self._state = WebState(episode_id=episode_id or begun, step_count=0, task_id=begun)
        return self._observation(turn)

    def step(self, action: WebAction, timeout_s: float | None = None, **_: Any) -> WebObservation:
        self._state.step_count += 1
        with self._losses():
            turn = self._turns.step(action.call)
        return self._observation(turn, turn.reward, turn.ended or turn.cut)

    @property
    def state(self) -> WebState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        text = "Web tasks in a real browser, on pages and applications that are set back at each reset."
        return EnvironmentMetadata(name="rmsweb", description=text)

    def close(self) -> None:
        self._turns.close()

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except EpisodeLostError:
            self._state.lost = True
            raise

    def _observation(self, turn: Turn, reward: float | None = None, done: bool = False) -> WebObservation:
        page, images = turn.view.observation, self._turns.session.images
        shown = WebObservation(goal=turn.goal, url=page.url, error=turn.error, reward=reward, done=done)
        if self._config.prompt:
            for message in turn.messages:
                if self._config.text_only:
                    parts = tuple(part for part in message.content if not isinstance(part, ImagePart))
                    message = message.model_copy(update={"content": parts})
                shown.messages.append(to_chat(message, images))
            return shown
        shown.page = page.page_text
        if page.screenshot and not self._config.text_only:
            shown.screenshot = base64.b64encode(images.get(page.screenshot)).decode()
        return shown


def make_app(config: ServerConfig, sessions: int = 16) -> FastAPI:
    """The application, for any ASGI server.

    Raises:
      UserError: there is no such task, or its application is not installed.
    """
    find(config.task, 0, config.apps)
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=_IDLE_S)
    made = create_fastapi_app(
        lambda: WebEnvironment(config),
        WebAction,
        WebObservation,
        concurrency_config=limits,
        state_cls=WebState,
    )

    @made.exception_handler(EpisodeLostError)
    def lost(_: Request, error: EpisodeLostError) -> JSONResponse:
        return JSONResponse({"code": LOST, "message": str(error)}, status_code=503)

    return made


def main(argv: list[str]) -> None:
    width, _, height = _WINDOW.value.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise UserError(f"--window={_WINDOW.value}: write WIDTHxHEIGHT")
    browser = BrowserConfig(width=int(width), height=int(height))
    prompt = cast(PromptStyle, _PROMPT.value)
    config = ServerConfig(_TASK.value, _STEPS.value, _TEXT_ONLY.value, prompt, browser, apps=_APPS.value)
    uvicorn.run(make_app(config, _SESSIONS.value), host="127.0.0.1", port=_PORT.value)


if __name__ == "__main__":
    with user_errors():
        app.run(main)
