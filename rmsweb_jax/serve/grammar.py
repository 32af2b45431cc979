"""Grammar-constrained decoding: llguidance computes which tokens may follow under a JSON schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llguidance
import numpy as np
from jaxtyping import Int32
from llguidance.numpy import fill_next_token_bitmask

from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.serve.protocol import ApiError, Tool
from rmsweb_jax.serve.tools import CLOSE, OPEN, write_grammar

_KEPT = 64
# Characters of a schema. One with a hundred thousand entries takes seconds to compile, and others wait.
_LARGEST = 200_000


class GrammarState:
    """The position of one reply in its grammar; a `decoding.requests.Constraint`."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def allowed(self, mask: Int32[np.ndarray, " words"]) -> None:
        """Writes the bits of the tokens that may follow."""
        fill_next_token_bitmask(self._matcher, mask[None])

    def take(self, tokens: Sequence[int]) -> None:
        """Consumes tokens that were allowed.

        Raises:
          ValueError: the reply exceeds the library's limits on complexity.
        """
        if not all(map(self._matcher.consume_token, tokens)):
            raise ValueError(f"response_format: {_line(self._matcher.get_error())}")


# Makes the state in which a reply begins.
Grammar = Callable[[], GrammarState]


class Grammars:
    """Compiles JSON schemas to grammars over a model's tokens, and keeps those used last. Thread-safe.

    Args:
      processor: gives the tokenizer and the end token, the only token that may end a reply.
    """

    def __init__(self, processor: Processor):
        self._processor = processor
        self._compile = functools.lru_cache(maxsize=_KEPT)(self._compile_text)

    def compile(self, schema: Mapping[str, Any] | None, tools: Sequence[Tool] = ()) -> Grammar:
        """Compiles the grammar of a text that follows a schema, or is one call of one of the tools.

        Raises:
          ApiError: a schema is invalid, too large, or uses an unsupported feature.
        """
        are_tokens = {OPEN, CLOSE} <= self._processor.tokenizer.get_vocab().keys()
        return self._compile(write_grammar(schema, [tool.signature() for tool in tools], are_tokens))

    @functools.cached_property
    def _tokens(self) -> llguidance.LLTokenizer:
        # Built on first use: it takes about a second with the real vocabulary.
        return llguidance.LLTokenizer(
            self._processor.tokenizer.to_str(),
            n_vocab=self._processor.config.text.vocab_size,
            eos_token=self._processor.end_id,
        )

    def _compile_text(self, text: str) -> Grammar:
        if len(text) > _LARGEST:
            raise _refused(f"{len(text):,} characters of schema, at most {_LARGEST:,} are compiled")
        try:
            grammar = llguidance.LLMatcher.grammar_from_lark(text)
            start = llguidance.LLMatcher(self._tokens, grammar)
        except ValueError as error:
            raise _refused(str(error)) from None
        if start.is_error():
            raise _refused(start.get_error())
        mask = np.zeros(-(-self._processor.config.text.vocab_size // 32), np.int32)
        GrammarState(start.deep_copy()).allowed(mask)
        end = self._processor.end_id
        if mask[end // 32] >> end % 32 & 1:
            # An empty reply is no JSON; the library allows it where a schema only refers to itself.
            raise _refused("no text follows this schema")
        # A copy of the start state is far cheaper than compiling the schema again.
        return lambda: GrammarState(start.deep_copy())


def _refused(reason: str) -> ApiError:
    return ApiError(f"response_format: {_line(reason)}", "response_format")


def _line(reason: str) -> str:
    # Of the grammar's compiler: where in the grammar, and the grammar itself, are not the client's.
    reason = reason.partition("\n   1 |")[0].partition("failed to compile JSON schema: ")[2] or reason
    return " ".join(reason.split())[:300] or "unknown error"
