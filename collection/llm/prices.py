"""Prices of model calls: given by the user, or list prices from the table `prices.json`."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path

_TABLE = Path(__file__).with_name("prices.json")
# Vendors name snapshots of a model by their date: `gpt-5.1-2025-11-13`, `claude-haiku-4-5-20251001`.
_SNAPSHOT = re.compile(r"-20\d\d-?\d\d-?\d\d$")


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
