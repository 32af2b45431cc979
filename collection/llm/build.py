"""Actors and models, made from their settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from collection.llm.actor import ActorModel, LLMActor
from collection.llm.config import GEMINI_KEY, ActorConfig, ModelConfig
from collection.llm.ledger import CallLedger
from collection.llm.ledger_server import LedgerAddress, RemoteLedger
from collection.llm.metered import MeteredModel, RetryPolicy, UsageLimits
from collection.llm.model import (
    Model,
    ModelRequest,
    Structured,
)
from collection.llm.scripted.mistakes import WEIGHTS, MistakeConfig
from collection.llm.scripted.teacher import ScriptedTeacher
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Message, TextPart

# A trained policy knows its format, and its server may enforce it. Most other endpoints support JSON output,
# and only some a schema.
_STRUCTURED: dict[str, Structured] = {"gemini": "schema", "chat": "json", "policy": "off"}


def make_actor(config: ActorConfig, ledger: Path | LedgerAddress | None = None) -> ActorModel:
    """Creates the actor of a resolved config; a served policy (`policy`) is called at its `base_url`.

    Args:
      ledger: as for `make_model`.
    """
    if config.kind == "scripted":
        return ScriptedTeacher(MistakeConfig(config.mistakes, WEIGHTS))
    return LLMActor(make_model(config, ledger))


def make_model(config: ModelConfig, ledger: Path | LedgerAddress | None = None) -> Model:
    """Creates the model of a resolved config that has one, with its limits.

    Args:
      ledger: file in which all processes of a run enter their calls (`collection.llm.ledger.LEDGER` in its
        workdir), or the process that serves it; None applies the limits to this model in this process only.

    Raises:
      UserError: the config names the scripted teacher, which is not a model, or settings contradict each
        other.
    """
    if config.kind in ("none", "scripted"):
        raise UserError(f"config.actor.kind={config.kind}: no model; take gemini, chat or policy")
    # A server that this run has started itself does not come back.
    outage_s = 0.0 if config.kind == "policy" else config.outage_hours * 3600
    return MeteredModel(
        _endpoint(config),
        RemoteLedger(ledger) if isinstance(ledger, LedgerAddress) else CallLedger(ledger),
        UsageLimits(config.requests_per_minute, config.tokens_per_minute, config.cap_usd),
        RetryPolicy(attempts=config.calls, timeout_s=config.timeout_s, outage_s=outage_s),
        config.prices,
        config.max_tokens,
    )


def check_model(config: ModelConfig, ledger: Path | LedgerAddress) -> None:
    """Makes one small call, so that a run with a wrong key, model or setting ends before it starts anything.

    A reply that is not usable is reported on standard error: it is no reason not to start.

    Args:
      config: resolved; of kind `gemini` or `chat`.
      ledger: as for `make_model`.

    Raises:
      UserError: no answer can be had, as `Model.complete`.
    """
    # OpenAI refuses to answer in JSON unless the messages contain the word.
    text = "This is a test of the connection. Answer with a short JSON object."
    message = Message(role="user", content=(TextPart(text=text),))
    # A model that is down before the run has begun may be a wrong address, so nothing waits for it.
    model = make_model(config.model_copy(update={"outage_hours": 0.0}), ledger)
    reply = model.complete(ModelRequest((message,), "check", 0, schema=reply_schema()))
    if reply.problem:
        print(f"{config.model}: test call: {reply.problem}", file=sys.stderr, flush=True)


def _endpoint(config: ModelConfig) -> Model:
    structured = _STRUCTURED[config.kind] if config.structured == "auto" else config.structured
    # API libraries take seconds to import, in every worker.
    if config.kind == "gemini":
        from collection.llm.gemini import GeminiModel

        return GeminiModel(
            api_key=os.environ[GEMINI_KEY],
            model=config.model,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            timeout_s=config.timeout_s,
            structured=structured,
            base_url=config.base_url,
            reasoning_effort=config.reasoning_effort,
        )
    from collection.llm.chat import ChatModel

    adapters = config.adapters if isinstance(config, ActorConfig) else ""
    return ChatModel(
        base_url=config.base_url,
        # Our server serves one model, so requests need not name it; adapters have names.
        model=adapters if config.kind == "policy" else config.model,
        name=adapters or config.model,
        api_key=os.environ.get(config.api_key_env, "") if config.api_key_env else "",
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout_s=config.timeout_s,
        structured=structured,
        reasoning_effort=config.reasoning_effort,
        extra_body=config.extra_body,
    )
