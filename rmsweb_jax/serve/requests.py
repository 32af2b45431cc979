"""A request as the engine takes it, and what comes of it."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import Future

from rmsweb_jax.qwen3_vl.decode import Generator
from rmsweb_jax.qwen3_vl.processor import Encoded
from rmsweb_jax.serve.grammar import Grammar


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Tokens and patches instead of text and images.

    Attributes:
      max_tokens: of each reply.
      stop: texts that end a reply, which is cut before them.
      grammar: what replies are held to; None: nothing.
    """

    prompt: Encoded
    n: int
    temperature: float
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None


@dataclasses.dataclass(frozen=True)
class Completion:
    """One reply.

    Attributes:
      tokens: of the reply, with its `<|im_end|>`, or up to the token that completes a stop text.
      log_probs: of each token, as it was drawn.
      finish_reason: `stop` when the model ended its reply or wrote a stop text, `length` when a limit cut it.
    """

    text: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: str


@dataclasses.dataclass(eq=False)
class Ticket:
    """A request on its way through the engine.

    Attributes:
      future: its `n` completions.
      submitted: seconds of `time.perf_counter`.
      cancelled: nobody waits for it any longer; set by `cancel`, from any thread.
    """

    prepared: Prepared
    generator: Generator
    future: Future[list[Completion]] = dataclasses.field(default_factory=Future)
    submitted: float = dataclasses.field(default_factory=time.perf_counter)
    cancelled: bool = False

    @property
    def samples(self) -> int:
        """Samples that are drawn: `n` rounded up, so that few numbers of them are compiled."""
        return 1 << (self.prepared.n - 1).bit_length()

    def complete(self, completions: list[Completion]) -> None:
        """Answers whoever still waits."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completions)

    def fail(self, error: Exception) -> None:
        """Tells whoever still waits; the engine drops it."""
        self.cancelled = True
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def cancel(self) -> None:
        """Lets the engine drop it at its next look."""
        self.cancelled = True
        self.future.cancel()
