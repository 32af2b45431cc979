"""Which teacher acts, as a config, and how to make it."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal

from collection.llm.base import Prices, Teacher
from collection.llm.scripted.mistakes import MistakeConfig
from collection.llm.scripted.teacher import ScriptedTeacher
from rmsweb_jax.errors import UserError

GEMINI_KEY = "GEMINI_API_KEY"


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """Who answers.

    Attributes:
      kind: `auto` is Gemini when GEMINI_API_KEY is set, else the scripted teacher; `policy` is our own
        server, started from the model folder `model`.
      label: `Trajectory.actor`.
      model: what the endpoint calls its model; empty where there is only one.
      base_url: of a chat-completions endpoint, or of another Gemini address.
      api_key_env: environment variable with the endpoint's key; may be unset.
      calls: attempts at one call before giving up.
      price_prompt, price_response: US dollars for a million tokens.
    """

    kind: Literal["auto", "scripted", "gemini", "chat", "policy"] = "auto"
    label: str = "teacher"
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    temperature: float = 1.0
    max_tokens: int = 2048
    timeout_s: float = 120.0
    calls: int = 5
    price_prompt: float = 0.0
    price_response: float = 0.0
    mistakes: MistakeConfig = dataclasses.field(default_factory=MistakeConfig)

    def resolve(self) -> ActorConfig:
        """The config with `auto` decided.

        Raises:
          UserError: an unknown kind, or a setting that the kind needs is missing.
        """
        kind = self.kind
        if kind == "auto":
            kind = "gemini" if os.environ.get(GEMINI_KEY) else "scripted"
        if kind == "gemini" and not os.environ.get(GEMINI_KEY):
            raise UserError(f"config.actor.kind=gemini: set {GEMINI_KEY}, or take another kind")
        if kind == "chat" and not self.base_url:
            raise UserError(
                "config.actor.kind=chat: config.actor.base_url is empty; give the endpoint's address"
            )
        if kind == "policy" and not self.model:
            raise UserError("config.actor.kind=policy: config.actor.model is empty; give a model folder")
        if kind not in ("scripted", "gemini", "chat", "policy"):
            raise UserError(
                f"config.actor.kind={kind!r}: unknown; take auto, scripted, gemini, chat or policy"
            )
        return dataclasses.replace(self, kind=kind)


def make_teacher(config: ActorConfig) -> Teacher:
    """The teacher of a resolved config; a served policy (`policy`) is spoken to at its `base_url`."""
    if config.kind == "scripted":
        return ScriptedTeacher(config.mistakes)
    prices = Prices(config.price_prompt, config.price_response)
    # API libraries take seconds to import, and every worker would pay for them.
    if config.kind == "gemini":
        from collection.llm.gemini import GeminiTeacher

        return GeminiTeacher(
            api_key=os.environ[GEMINI_KEY],
            model=config.model or "gemini-3-pro-preview",
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            timeout_s=config.timeout_s,
            attempts=config.calls,
            prices=prices,
            base_url=config.base_url,
        )
    from collection.llm.chat import ChatTeacher

    return ChatTeacher(
        base_url=config.base_url,
        model="" if config.kind == "policy" else config.model,
        name=config.model,
        api_key=os.environ.get(config.api_key_env, "") if config.api_key_env else "",
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout_s=config.timeout_s,
        attempts=config.calls,
        prices=prices,
        json_mode=config.kind == "chat",
    )
