"""Settings of models and of the actor, and list prices."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from collection.llm.calls import Limits
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, internal, part_name, safe

GEMINI_KEY = "GEMINI_API_KEY"
_GEMINI = "gemini-3-pro-preview"
_TABLE = Path(__file__).with_name("prices.json")
# Vendors name snapshots of a model by their date: `gpt-5.1-2025-11-13`, `claude-haiku-4-5-20251001`.
_SNAPSHOT = re.compile(r"-20\d\d-?\d\d-?\d\d$")
# A trained policy knows its format, and its server may enforce it.
_STRUCTURED = {"gemini": "schema", "chat": "schema", "policy": "off"}


@dataclasses.dataclass(frozen=True)
class Prices:
    """US dollars per million tokens; zero if unknown.

    Attributes:
      cached: for prompt tokens read from the provider's cache; zero charges them as other prompt tokens.
      response: includes thinking.
    """

    prompt: float = 0.0
    response: float = 0.0
    cached: float = 0.0

    def cost(self, prompt_tokens: int, response_tokens: int, cached_tokens: int = 0) -> float:
        """Returns the cost in US dollars; `prompt_tokens` includes `cached_tokens`."""
        cached = (self.cached or self.prompt) * cached_tokens
        return (
            (prompt_tokens - cached_tokens) * self.prompt + cached + response_tokens * self.response
        ) / 1e6

    @property
    def known(self) -> bool:
        """True if both prompts and responses have a price."""
        return bool(self.prompt and self.response)


def list_prices(model: str) -> Prices:
    """Returns the list prices of a model; zeros if the table does not have it.

    Args:
      model: the vendor's name, also of a dated snapshot, and with a provider in front (`openai/gpt-5.1`).
    """
    name = _SNAPSHOT.sub("", model.rpartition("/")[2].lower())
    return Prices(**_table().get(name, {}))


@functools.cache
def _table() -> dict[str, dict[str, float]]:
    return json.loads(_TABLE.read_bytes())["models"]


class ModelEndpoint(Settings):
    """A model behind an API.

    Attributes:
      kind: `gemini`, or `chat` for any chat-completions endpoint; sections add kinds of their own.
      model: the endpoint's name of the model; may be empty if it serves only one.
      base_url: address of a chat-completions endpoint, or another address of the Gemini API.
      api_key_env: environment variable with the key of a chat-completions endpoint; empty if it needs none.
      max_tokens: maximum length of a response; most APIs count thinking as part of it.
      timeout_s: longest silence of the endpoint in one attempt.
      calls: maximum number of attempts at one call, which the API's own library makes.
      structured: how replies are constrained to their JSON schema: `schema` by the endpoint's decoder,
        `json` to any JSON, `off` by the prompt alone; `auto` is the first of these that the endpoint takes.
      parameters: further fields of each request, which are sent as they are and replace the fields above:
        `{"top_k": 20, "temperature": None}` of a chat-completions request, or of Gemini's config
        (`{"thinking_config": {"thinking_level": "LOW"}}`). None leaves a field out.
      price: US dollars per million tokens of prompts, of cached prompts and of responses; zeros take those of
        `collection/llm/prices.json`. Without the second, cached prompt tokens cost as others.
    """

    kind: str = "gemini"
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    max_tokens: int = Field(default=2048, ge=1)
    timeout_s: float = safe(120.0, gt=0)
    calls: int = safe(5, ge=1)
    structured: Literal["auto", "schema", "json", "off"] = "auto"
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    price: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def prices(self) -> Prices:
        """The prices given, else the list prices of the model."""
        prompt, cached, response = self.price
        given = Prices(prompt, response, cached)
        return given if given.prompt or given.response else list_prices(self.model)


class ModelConfig(ModelEndpoint):
    """A model that is called within the limits of a run.

    Attributes:
      kind: `none` if no model is called.
      temperature: sampling temperature.
      requests_per_minute, tokens_per_minute: limits over all processes of the run; 0 means no limit.
      cap_usd: US dollars that the run may spend on models, including the runs it resumes; 0 means no limit.
        It needs known prices.
      outage_hours: time that a run waits for a model that has stopped to answer; 0 ends the run instead.
        Running episodes go on afterwards. A policy's own server is not waited for.
    """

    kind: Literal["none", "gemini", "chat"] = "gemini"
    temperature: float = Field(default=1.0, ge=0)
    requests_per_minute: float = safe(0.0, ge=0)
    tokens_per_minute: float = safe(0.0, ge=0)
    cap_usd: float = safe(0.0, ge=0)
    outage_hours: float = safe(0.0, ge=0)

    @property
    def constraint(self) -> str:
        """How replies follow their schema: `structured`, or what `auto` begins with."""
        return _STRUCTURED[self.kind] if self.structured == "auto" else self.structured

    @property
    def longest(self) -> int:
        """Tokens of the longest response, as it is sent."""
        names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
        return next((self.parameters[name] for name in names if self.parameters.get(name)), self.max_tokens)

    @property
    def limits(self) -> Limits:
        return Limits(
            self.requests_per_minute,
            self.tokens_per_minute,
            self.cap_usd,
            # A server that this run has started itself does not come back.
            0.0 if self.kind == "policy" else self.outage_hours * 3600,
            self.timeout_s,
        )

    def resolve(self, section: str = "config.actor") -> Self:
        """The config, checked and with the default model. Warns if calls have no known price.

        Raises:
          UserError: a setting or a key that the kind needs is missing, or one is out of range.
        """
        if self.kind == "gemini" and not self.model:
            return self.model_copy(update={"model": _GEMINI}).resolve(section)
        if self.kind == "gemini" and not os.environ.get(GEMINI_KEY):
            raise UserError(f"{section}.kind=gemini: set {GEMINI_KEY}, or take another kind")
        if self.kind == "chat" and not self.base_url:
            raise UserError(f"{section}.kind=chat: {section}.base_url is empty; give the endpoint's address")
        if self.kind == "chat" and self.api_key_env and not os.environ.get(self.api_key_env):
            raise UserError(
                f"{section}.api_key_env={self.api_key_env}: not set; export {self.api_key_env}=KEY, "
                f"or set {section}.api_key_env= for an endpoint without a key"
            )
        if self.kind in ("gemini", "chat") and not self.prices.known:
            self._handle_unknown_prices(section)
        return self

    def _handle_unknown_prices(self, section: str) -> None:
        reason = f"no price of {self.model or 'an unnamed model'} is known"
        advice = f"set {section}.price=PROMPT,CACHED,RESPONSE (US dollars per million tokens)"
        if self.cap_usd:
            raise UserError(f"{section}: {reason}, and a cap (cap_usd) needs it; {advice}")
        print(f"{section}: {reason}, so its cost is not counted; {advice}", file=sys.stderr, flush=True)


ACTOR_KIND = part_name("auto", "scripted", "gemini", "chat", "policy")
# Default model for writing tasks and labelling failures.
WRITER = ModelConfig(model="gemini-3-pro-preview", max_tokens=4096)


class ActorConfig(ModelConfig):
    """Settings of the actor: a model, the scripted teacher, or a program.

    Attributes:
      kind: `auto` is Gemini if GEMINI_API_KEY is set, else the scripted teacher; `policy` is a
        server that is started from the model folder `model`; `module:name` is an actor of your own
        (docs/own.md).
      label: value of `Trajectory.actor`.
      server: what serves a policy: `own` server, or `vllm` or `sglang`, where that is installed.
      server_python: Python interpreter of the environment with vLLM or SGLang; empty: this one.
      server_flags: flags of the command of vLLM or SGLang, as {"max-model-len": 4096}.
      server_settings: settings of our own server that differ from the defaults of
        `rmsweb_jax.serve.config.ServeSettings`.
      adapters: name of adapters at the policy's server; empty: the model without adapters.
      mistakes: share of the episodes in which the scripted teacher makes a seeded mistake.
    """

    # An actor need not be a model.
    kind: Annotated[str, ACTOR_KIND] = "auto"  # pyright: ignore
    label: str = "teacher"
    server: Literal["own", "vllm", "sglang"] = "own"
    server_python: str = ""
    server_flags: Mapping[str, Any] = Field(default_factory=dict)
    server_settings: Mapping[str, Any] = Field(default_factory=dict)
    adapters: str = internal("")
    mistakes: float = internal(0.0)

    def resolve(self, section: str = "config.actor") -> Self:
        """The config, checked, with `auto` decided.

        Raises:
          UserError: a setting that the kind needs is missing, or one is out of range.
        """
        if self.kind == "auto":
            kind = "gemini" if os.environ.get(GEMINI_KEY) else "scripted"
            return self.model_copy(update={"kind": kind}).resolve(section)
        if self.kind == "policy" and not self.model:
            raise UserError(f"{section}.kind=policy: {section}.model is empty; give a model folder")
        if self.kind != "policy" and self.server != "own":
            raise UserError(f"{section}.server={self.server}: only {section}.kind=policy starts a server")
        return super().resolve(section)
