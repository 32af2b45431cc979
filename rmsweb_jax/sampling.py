"""Responses of a policy to many prompts, in calls of few shapes: for RL and for evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rmsweb_jax.data.batching import (
    Example,
    Shapes,
    batch_axes,
    choose_widths,
    collate,
    group_by_length,
)
from rmsweb_jax.data.encoding import Measure
from rmsweb_jax.mesh import check_rows, process_rows, shard_batch
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.decode import Generated, Generator
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.splits import stable_hash


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How responses are drawn.

    Attributes:
      num_samples: K.
      max_response_tokens: a response is cut there and counts as truncated.
      temperature: 0 is greedy.
      eos: `<|im_end|>`, part of the response.
      banned: vision tokens, which would break the next batch.
    """

    num_samples: int
    max_response_tokens: int
    temperature: float
    eos: int
    banned: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Responses:
    """The K responses to one prompt.

    Attributes:
      tokens: per sample [R_i] int32, the end token included.
      log_probs: per sample [R_i] float32, as the sampler saw them.
      truncated: [K] bool, no end token within the limit.
    """

    tokens: tuple[np.ndarray, ...]
    log_probs: tuple[np.ndarray, ...]
    truncated: np.ndarray


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Responses that are being drawn."""

    _draw: Callable[[], list[Responses]]

    def result(self) -> list[Responses]:
        """Waits for them: one entry a prompt, in order."""
        return self._draw()


class Sampler:
    """Draws responses to prompts, in batches of few shapes.

    Args:
      shapes: rows of a call, prompt widths, image places.
      mesh: of the policies; `data` and `fsdp` split the rows.

    Raises:
      UserError: the rows do not divide over the mesh.
    """

    def __init__(self, config: Qwen3VLConfig, shapes: Shapes, mesh: Mesh):
        check_rows(mesh, shapes.rows, "rollout_rows")
        self._config, self._shapes, self._mesh = config, shapes, mesh
        self._rows = process_rows(mesh, shapes.rows)

    def draw(
        self, policy: Generator, examples: Sequence[Example], seeds: Sequence[int], sampling: Sampling
    ) -> list[Responses]:
        """The responses to the prompt of each example, in order; its target is not read.

        A response depends on the policy, its prompt, the seed and the sample's number alone. With several
        processes all of them must call this with the same arguments, and all get all responses.

        Args:
          seeds: per prompt; the same prompt (by its sample id) under the same seed gives the same responses.
        """
        out: list[Responses | None] = [None] * len(examples)
        ids = [stable_hash(example.sample_id) for example in examples]
        for numbers in group_by_length([example.prompt_length for example in examples], self._shapes.rows):
            # Empty rows would be decoded to the limit: repeat a prompt instead.
            filled = numbers + [numbers[-1]] * (self._shapes.rows - len(numbers))
            drawn = policy(
                self._inputs([examples[number] for number in filled]),
                num_samples=sampling.num_samples,
                max_new_tokens=sampling.max_response_tokens,
                eos=sampling.eos,
                seed=np.asarray([seeds[number] for number in filled], np.uint32),
                prompt_ids=np.asarray([ids[number] for number in filled], np.uint32),
                temperature=sampling.temperature,
                banned=sampling.banned,
            )
            on_host = _gather(drawn)
            for row, number in enumerate(numbers):
                out[number] = _responses(on_host, row, sampling.eos)
        return [responses for responses in out if responses is not None]

    def start(
        self, policy: Generator, examples: Sequence[Example], seeds: Sequence[int], sampling: Sampling
    ) -> Drawing:
        """As `draw`, which waits for the result."""
        return Drawing(lambda: self.draw(policy, examples, seeds, sampling))

    def _inputs(self, examples: Sequence[Example]) -> ModelInputs:
        """The prompts of a call on the mesh, made of this process's rows."""
        width = self._shapes.width(max(example.prompt_length for example in examples))
        rows = [[_prompt_alone(examples[row])] for row in self._rows]
        batch = collate(rows, self._shapes, width, self._config, self._rows)
        return shard_batch(batch.inputs, self._mesh, batch_axes(batch).inputs)


def prompt_shapes(measures: Sequence[Measure], rows: int, multiple: int, count: int) -> Shapes:
    """Shapes of sampling calls: `rows` prompts padded to at most `count` widths."""
    return Shapes(
        rows=rows,
        widths=choose_widths([measure.length - measure.num_targets for measure in measures], multiple, count),
        num_targets=1,
        images=max(measure.images for measure in measures),
        window=max(measure.window for measure in measures),
    )


def _prompt_alone(example: Example) -> Example:
    return dataclasses.replace(
        example, tokens=example.tokens[: example.prompt_length], action_mask=np.zeros(0, bool)
    )


def _gather(drawn: Generated) -> Generated:
    if jax.process_count() > 1:
        return Generated(*multihost_utils.process_allgather(tuple(drawn), tiled=True))
    return Generated(*jax.device_get(drawn))


def _responses(drawn: Generated, row: int, eos: int) -> Responses:
    lengths = np.asarray(drawn.lengths)[row]
    tokens = [np.asarray(drawn.tokens)[row, sample, :length] for sample, length in enumerate(lengths)]
    log_probs = [np.asarray(drawn.log_probs)[row, sample, :length] for sample, length in enumerate(lengths)]
    truncated = np.asarray([part[-1] != eos for part in tokens])
    return Responses(tuple(tokens), tuple(log_probs), truncated)
