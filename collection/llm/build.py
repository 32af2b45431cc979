"""Actors and models, made from their settings."""

from __future__ import annotations

import io
import sys
from typing import TypeVar

from PIL import Image

from collection.llm.actor import ActorModel, LLMActor
from collection.llm.calls import Calls
from collection.llm.config import ActorConfig, ModelConfig
from collection.llm.model import Model, ModelRequest
from collection.teacher.mistakes import WEIGHTS, MistakeConfig
from collection.teacher.teacher import ScriptedTeacher
from rmsweb_jax import own
from rmsweb_jax.actions import ReplyError, parse_reply
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import ImagePart, Message, TextPart

M = TypeVar("M", bound=ModelConfig)


def make_actor(config: ActorConfig, calls: Calls | None = None) -> ActorModel:
    """Creates the actor of a resolved config; a served policy (`policy`) is called at its `base_url`.

    Args:
      calls: as for `make_model`.
    """
    if config.kind == "scripted":
        return ScriptedTeacher(MistakeConfig(config.mistakes, WEIGHTS))
    if ":" in config.kind:
        return own.make("actor.kind", config.kind, ActorModel)
    return LLMActor(make_model(config, calls))


def make_model(config: ModelConfig, calls: Calls | None = None) -> Model:
    """Creates the model of a resolved config that has one.

    Args:
      calls: those of the run (`collection.llm.calls`); None applies the limits to this model alone.

    Raises:
      UserError: the config names the scripted teacher, which is not a model, or settings contradict each
        other.
    """
    if config.kind in ("none", "scripted"):
        raise UserError(f"config.actor.kind={config.kind}: no model; take gemini, chat or policy")
    # API libraries take seconds to import, in every worker.
    if config.kind == "gemini":
        from collection.llm.gemini import GeminiModel

        return GeminiModel(config, calls)
    from collection.llm.chat import ChatModel

    return ChatModel(config, calls)


def check_model(config: M, calls: Calls, sees: bool) -> M:
    """Makes one small call, so that a run with a wrong key, model or setting ends before it starts anything.

    A reply that is not usable is reported on standard error: it is no reason not to start.

    Args:
      config: resolved; of kind `gemini` or `chat`.
      sees: the run sends it screenshots, so the call has an image, too.

    Returns:
      The config with what `structured=auto` has come to at this endpoint.

    Raises:
      UserError: no answer can be had, as `Model.complete`.
    """
    # OpenAI refuses to answer in JSON unless the messages contain the word.
    text = TextPart(text="This is a test of the connection. Answer with a short JSON object.")
    message = Message(role="user", content=(text, *((ImagePart(sha256=""),) if sees else ())))
    # A model that is down before the run has begun may be a wrong address, so nothing waits for it.
    model = make_model(config.model_copy(update={"outage_hours": 0.0}), calls)
    reply = model.complete(ModelRequest((message,), "check", 0, _White(), reply_schema()))
    if reply.problem:
        print(f"{config.model}: test call: {reply.problem}", file=sys.stderr, flush=True)
    if config.kind != "chat":
        return config
    from collection.llm.chat import ChatModel

    assert isinstance(model, ChatModel)
    if model.constraint == "schema" and not reply.problem:
        try:
            parse_reply(reply.text)
        except ReplyError as error:
            # Some endpoints take any schema and know a part of it, or none.
            model.weaken("schema", f"in a test call {error}")
    return config.model_copy(update={"structured": model.constraint})


class _White:
    """A store that has a small white image under every name."""

    def get(self, sha256: str) -> bytes:
        png = io.BytesIO()
        Image.new("RGB", (64, 64), "white").save(png, "PNG")
        return png.getvalue()
