"""Which teacher acts and which model answers, as a config, and how to make them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Literal

from collection.llm.base import Teacher
from collection.llm.ledger import Ledger
from collection.llm.metered import Limits, Metered, Patience
from collection.llm.model import Model, Prices
from collection.llm.scripted.mistakes import MistakeConfig
from collection.llm.scripted.teacher import ScriptedTeacher
from collection.llm.structured import Structured
from collection.llm.teacher import ModelTeacher
from rmsweb_jax.errors import UserError

GEMINI_KEY = "GEMINI_API_KEY"
# A policy has learned its format, and its server may hold it to it; of others, most know JSON and only some
# a schema.
_STRUCTURED: dict[str, Structured] = {"gemini": "schema", "chat": "json", "policy": "off"}


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
      timeout_s: of one call.
      calls: attempts at one call before giving up.
      structured: how replies are held to their JSON schema: `schema` by the endpoint's decoder, `json` to
        some JSON, `off` by the prompt alone; `auto` is what this kind of endpoint is known to take.
      requests_per_minute, tokens_per_minute: of all processes of the run; 0: no limit.
      cap_usd: money the run may spend on models, with the runs it resumes; 0: no limit.
      price_prompt, price_cached, price_response: US dollars for a million tokens; cached prompt tokens
        cost as others where `price_cached` is 0.
      server: config of the server that is started for a policy, FILE:VARIANT.
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
    structured: Literal["auto", "schema", "json", "off"] = "auto"
    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    cap_usd: float = 0.0
    price_prompt: float = 0.0
    price_cached: float = 0.0
    price_response: float = 0.0
    mistakes: MistakeConfig = dataclasses.field(default_factory=MistakeConfig)
    server: str = "configs/serve.py:demo"

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
        if self.structured not in ("auto", "schema", "json", "off"):
            raise UserError(
                f"config.actor.structured={self.structured!r}: unknown; take auto, schema, json or off"
            )
        for name in ("requests_per_minute", "tokens_per_minute", "cap_usd"):
            if getattr(self, name) < 0:
                raise UserError(f"config.actor.{name}={getattr(self, name)}: below 0; 0 is no limit")
        return dataclasses.replace(self, kind=kind)


def make_teacher(config: ActorConfig, ledger: Path | None = None) -> Teacher:
    """The teacher of a resolved config; a served policy (`policy`) is spoken to at its `base_url`.

    Args:
      ledger: as for `make_model`.
    """
    if config.kind == "scripted":
        return ScriptedTeacher(config.mistakes)
    return ModelTeacher(make_model(config, ledger))


def make_model(config: ActorConfig, ledger: Path | None = None) -> Model:
    """The model of a resolved config that has one, within its limits.

    Args:
      ledger: file that all processes of a run enter their calls in (`collection.llm.ledger.LEDGER` in its
        workdir); None: limits hold for this model in this process alone.

    Raises:
      UserError: the scripted teacher is no model; or settings do not fit each other.
    """
    if config.kind == "scripted":
        raise UserError("config.actor.kind=scripted: no model; take gemini, chat or policy")
    return Metered(
        _endpoint(config),
        Ledger(ledger),
        Limits(config.requests_per_minute, config.tokens_per_minute, config.cap_usd),
        Patience(attempts=config.calls, timeout_s=config.timeout_s),
        Prices(config.price_prompt, config.price_response, config.price_cached),
        config.max_tokens,
    )


def _endpoint(config: ActorConfig) -> Model:
    structured = _STRUCTURED[config.kind] if config.structured == "auto" else config.structured
    # API libraries take seconds to import, and every worker would pay for them.
    if config.kind == "gemini":
        from collection.llm.gemini import GeminiModel

        return GeminiModel(
            api_key=os.environ[GEMINI_KEY],
            model=config.model or "gemini-3-pro-preview",
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            timeout_s=config.timeout_s,
            structured=structured,
            base_url=config.base_url,
        )
    from collection.llm.chat import ChatModel

    return ChatModel(
        base_url=config.base_url,
        model="" if config.kind == "policy" else config.model,
        name=config.model,
        api_key=os.environ.get(config.api_key_env, "") if config.api_key_env else "",
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout_s=config.timeout_s,
        structured=structured,
    )
