"""An OpenEnv server: each session has a browser of its own, at MiniWoB++ pages and applications.

    pip install openenv
    python -m collection.gym.openenv_server --task=miniwob/click-button --port=8000

An action is a call as BrowserGym names it, `{"call": "click('3')"}`. `reset` takes `seed`, and `task` in
place of the server's. With `--text_only` observations have no screenshot, for harnesses that paste them
into prompts. An episode whose browser is lost ends with an error and has no reward.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from typing import Any

import uvicorn
from absl import app, flags
from fastapi import FastAPI  # pyright: ignore[reportMissingImports]
from openenv.core.env_server import create_fastapi_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import (  # pyright: ignore[reportMissingImports]
    Action,
    ConcurrencyConfig,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import ConfigDict, Field, field_validator

from collection.browser.config import BrowserConfig
from collection.environments.base import View
from collection.gym.gymnasium_env import parse_actions
from collection.gym.session import Session, find
from rmsweb_jax.actions import ReplyError
from rmsweb_jax.errors import user_errors

# Longer than the slowest model takes for a reply: OpenEnv closes a session's browser under a slow client.
_IDLE_S = 3600.0

_TASK = flags.DEFINE_string("task", "miniwob/click-button", "Task: miniwob/PAGE or APPLICATION/TEMPLATE.")
_PORT = flags.DEFINE_integer("port", 8000, "Port on loopback.")
_SESSIONS = flags.DEFINE_integer("sessions", 16, "Largest number of sessions, each with a browser.")
_STEPS = flags.DEFINE_integer("max_steps", 20, "An episode ends after so many steps.")
_TEXT_ONLY = flags.DEFINE_bool("text_only", False, "Leave screenshots out of observations.")
_APPS = flags.DEFINE_string("apps_folder", "", "Where applications are installed; empty: the user's cache.")


class WebAction(Action):
    """An action of the agent.

    What a model writes instead, also an object with other keys, is answered by an observation with an error:
    harnesses take a refused message for the end of the session.
    """

    model_config = ConfigDict(extra="ignore", json_schema_extra={"required": ["call"]})

    call: str = Field("", description="One call or several, a line each, such as click('3').")

    @field_validator("call", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)


class WebObservation(Observation):
    """The page, as the agent sees it."""

    goal: str = Field(description="What is to be done.")
    url: str = ""
    page: str = Field("", description="Text of the page, with the numbers of its elements.")
    error: str = Field("", description="Why the last action failed.")
    screenshot: str = Field("", description="PNG in base64, with the numbers; empty in text-only mode.")


class WebState(State):
    """The episode."""

    task_id: str = ""


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """Settings of all sessions of a server.

    Attributes:
      task: name of the task that `reset` begins, unless it names another.
      apps: folder in which applications are installed; "" is the user's cache.
    """

    task: str
    max_steps: int = 20
    text_only: bool = False
    browser: BrowserConfig = BrowserConfig()
    apps: str = ""


class WebEnvironment(Environment[WebAction, WebObservation, WebState]):
    """One session; its browser starts with the first `reset`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, config: ServerConfig):
        super().__init__()
        self._config = config
        self._session = Session(config.browser, apps=config.apps)
        self._goal, self._tabs, self._active = "", tuple[str, ...](), ""
        self._state = WebState(episode_id=None, step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = "", **_: Any
    ) -> WebObservation:
        number = secrets.randbelow(2**31) if seed is None else seed
        begun, view = self._session.reset(find(task or self._config.task, number, self._config.apps))
        self._goal = begun.objective
        self._state = WebState(episode_id=episode_id or begun.task_id, step_count=0, task_id=begun.task_id)
        return self._observation(view)

    def step(self, action: WebAction, timeout_s: float | None = None, **_: Any) -> WebObservation:
        self._state.step_count += 1
        late = self._state.step_count >= self._config.max_steps
        try:
            actions = parse_actions(action.call, self._tabs, self._active)
        except ReplyError as error:
            return self._observation(self._session.look(), str(error), reward=0.0, done=late)
        stepped = self._session.step(actions)
        last = stepped.results[-1] if stepped.results else None
        error = last.text if last is not None and last.error else ""
        return self._observation(stepped.view, error, stepped.reward, stepped.ended or late)

    @property
    def state(self) -> WebState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        text = "Web tasks in a real browser, on pages and applications that are set back at each reset."
        return EnvironmentMetadata(name="rmsweb", description=text)

    def close(self) -> None:
        self._session.close()

    def _observation(
        self, view: View, error: str = "", reward: float | None = None, done: bool = False
    ) -> WebObservation:
        page = view.observation
        self._tabs, self._active = tuple(tab.tab_id for tab in page.tabs), page.current_tab
        shown = "" if self._config.text_only else page.screenshot
        png = self._session.images.get(shown) if shown else b""
        return WebObservation(
            goal=self._goal,
            url=page.url,
            page=page.page_text,
            error=error,
            screenshot=base64.b64encode(png).decode(),
            reward=reward,
            done=done,
        )


def make_app(config: ServerConfig, sessions: int = 16) -> FastAPI:
    """The application, for any ASGI server.

    Raises:
      UserError: there is no such task, or its application is not installed.
    """
    find(config.task, 0, config.apps)
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=_IDLE_S)
    return create_fastapi_app(
        lambda: WebEnvironment(config),
        WebAction,
        WebObservation,
        concurrency_config=limits,
        state_cls=WebState,
    )


def main(argv: list[str]) -> None:
    config = ServerConfig(_TASK.value, _STEPS.value, _TEXT_ONLY.value, apps=_APPS.value)
    uvicorn.run(make_app(config, _SESSIONS.value), host="127.0.0.1", port=_PORT.value)


if __name__ == "__main__":
    with user_errors():
        app.run(main)
