"""Replies that must follow a JSON schema: which tokens may come next, from llguidance."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance
import llguidance.hf
import numpy as np
from llguidance.numpy import fill_next_token_bitmask_par

from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.protocol import BadRequestError

# As replies are trained: without white space between keys and values, which a model could go on with forever.
_JSON_STYLE: Any = {"whitespace_flexible": False}
_KEPT = 64


class GrammarError(Exception):
    """A reply cannot be held to its grammar any further."""


class Grammars:
    """Schemas as grammars over the tokens of a model. Any thread may call.

    Args:
      processor: its tokenizer's text tokens spell the grammars' texts; only its end token ends one.
    """

    def __init__(self, processor: Processor):
        self._processor = processor
        self._compile = functools.lru_cache(maxsize=_KEPT)(self._compile_text)

    def compile(self, schema: Mapping[str, Any]) -> Grammar:
        """A schema's grammar; those used last are kept.

        Raises:
          BadRequestError: no JSON schema, or one with parts that cannot be held to.
        """
        return self._compile(json.dumps(schema))

    @functools.cached_property
    def _tokens(self) -> llguidance.LLTokenizer:
        # Made at the first use, a second with a real vocabulary.
        return llguidance.hf.from_tokenizer(
            self._processor.tokenizer,
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
    """What replies may be, compiled.

    Args:
      start: a matcher that has taken nothing.
    """

    def __init__(self, start: llguidance.LLMatcher):
        self._start = start

    def begin(self) -> Matching:
        """For one reply."""
        return Matching(self._start.deep_copy())


class Matching:
    """How far one reply has come in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self.matcher = matcher

    def take(self, tokens: Sequence[int]) -> None:
        """Goes on by tokens that were allowed.

        Raises:
          GrammarError: the reply has become too intricate for the library, which has limits.
        """
        if not all(map(self.matcher.consume_token, tokens)):
            raise GrammarError(f"response_format: {_line(self.matcher.get_error())}")


def allowed_tokens(matchings: Mapping[int, Matching], rows: int, vocab_size: int) -> np.ndarray:
    """The tokens that may come next in some rows, and all tokens in the others.

    Returns:
      [rows, W] int32, a bit a token, lowest first.
    """
    masks = np.full((rows, (vocab_size + 31) // 32), -1, np.int32)
    pairs = [(matching.matcher, row) for row, matching in matchings.items()]
    fill_next_token_bitmask_par(_executor(), pairs, masks)
    return masks


@functools.cache
def _executor() -> llguidance.LLExecutor:
    return llguidance.LLExecutor()


def _refused(reason: str) -> BadRequestError:
    return BadRequestError(f"response_format: {_line(reason)}", "response_format")


def _line(reason: str) -> str:
    return " ".join(reason.split())[:300] or "unknown error"
