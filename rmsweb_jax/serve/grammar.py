"""Grammar-constrained decoding: llguidance computes which tokens may follow under a JSON schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance
import numpy as np
from llguidance.numpy import fill_next_token_bitmask_par

from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.protocol import BadRequestError

# Training replies have no white space between keys and values, and a model could emit it without end.
_JSON_STYLE: Any = {"whitespace_flexible": False}
_KEPT = 64


class GrammarError(Exception):
    """The grammar of a reply cannot be followed any further."""


class Grammars:
    """Compiles JSON schemas to grammars over a model's tokens. Thread-safe.

    Args:
      processor: gives the tokenizer and the end token, the only token that may end a reply.
    """

    def __init__(self, processor: Processor):
        self._processor = processor
        self._compile = functools.lru_cache(maxsize=_KEPT)(self._compile_text)

    def compile(self, schema: Mapping[str, Any]) -> Grammar:
        """Compiles a schema; the most recently used grammars are cached.

        Raises:
          BadRequestError: the schema is invalid or uses an unsupported feature.
        """
        return self._compile(json.dumps(schema))

    @functools.cached_property
    def _tokens(self) -> llguidance.LLTokenizer:
        # Built on first use: it takes about a second with the real vocabulary.
        return llguidance.LLTokenizer(
            self._processor.tokenizer.to_str(),
            n_vocab=self._processor.config.text.vocab_size,
            eos_token=self._processor.end_id,
        )

    def _compile_text(self, schema: str) -> Grammar:
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_STYLE)
            start = llguidance.LLMatcher(self._tokens, grammar)
        except ValueError as error:
            raise _refused(str(error)) from None
        if start.is_error():
            raise _refused(start.get_error())
        return Grammar(start)


class Grammar:
    """A compiled schema.

    Args:
      start: a matcher that has consumed nothing.
    """

    def __init__(self, start: llguidance.LLMatcher):
        self._start = start

    def begin(self) -> GrammarState:
        """Returns a fresh state for one reply."""
        # A copy of the start state is far cheaper than compiling the schema again.
        return GrammarState(self._start.deep_copy())


class GrammarState:
    """The position of one reply in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self.matcher = matcher

    def take(self, tokens: Sequence[int]) -> None:
        """Consumes tokens that were allowed.

        Raises:
          GrammarError: the reply exceeds the library's limits on complexity.
        """
        if not all(map(self.matcher.consume_token, tokens)):
            raise GrammarError(f"response_format: {_line(self.matcher.get_error())}")


def allowed_tokens(states: Mapping[int, GrammarState], rows: int, vocab_size: int) -> np.ndarray:
    """Computes bit masks of allowed tokens for some rows; all tokens are allowed in the others.

    Returns:
      [rows, words] int32, one bit per token, lowest bit first.
    """
    # -1 has all bits set: free slots and finished samples may draw anything.
    masks = np.full((rows, (vocab_size + 31) // 32), -1, np.int32)
    pairs = [(state.matcher, row) for row, state in states.items()]
    fill_next_token_bitmask_par(_executor(), pairs, masks)
    return masks


@functools.cache
def _executor() -> llguidance.LLExecutor:
    return llguidance.LLExecutor()


def _refused(reason: str) -> BadRequestError:
    return BadRequestError(f"response_format: {_line(reason)}", "response_format")


def _line(reason: str) -> str:
    return " ".join(reason.split())[:300] or "unknown error"
