"""Held-out evaluation: the loss, and the reward of greedy replies to some action samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.actions.parse import ReplyError
from rmsweb_jax.actions.reward import EXACT, score_response
from rmsweb_jax.data.batching import Batch, on_mesh, round_up
from rmsweb_jax.data.encoding import Encoder, LazyExample
from rmsweb_jax.data.sft import SftData
from rmsweb_jax.data.sizes import SampleSize
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.sampler import Sampler, SamplingParams, prompt_shapes
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.sft.config import EvalConfig
from rmsweb_jax.sft.loss import LossSums, loss_sums, target_scores
from rmsweb_jax.training.mesh import row_shards
from rmsweb_jax.training.metrics import SampledReply

# Largest number of prompt widths, and what they are multiples of; each width compiles the sampler's programs.
_PROMPT_WIDTHS, _PROMPT_MULTIPLE = 2, 256
Score = Callable[[str, str], float]


class Evaluator:
    """Evaluates a policy on a corpus' held-out samples; with several processes all of them must call it.

    Args:
      config: number of replies, and sampling parameters.
      data: a corpus with held-out samples.
      graphdef: graph of the policy.
      mesh: mesh of the policy.
    """

    def __init__(self, config: EvalConfig, data: SftData, graphdef: Any, mesh: Mesh):
        self._graphdef, self._mesh = graphdef, mesh
        self._data = data
        self._sums = make_sums(graphdef, mesh)
        actions = choose_actions(data, config.replies)
        self._replies = GreedyReplies(config, actions, data.encoder, mesh) if actions else None

    def __call__(self, params: Any, frozen: Any) -> tuple[dict[str, float], list[SampledReply]]:
        """Returns the metrics (`eval/...`) of the policy with these parameters, and its replies."""
        metrics = held_out_metrics(self._sums, params, frozen, self._data.held_out_batches(), self._mesh)
        if self._replies is None:
            return metrics, []
        scores, replies = self._replies(Generator(nnx.merge(self._graphdef, params, frozen)))
        return metrics | scores, replies


Sums = Callable[[Any, Any, Batch], tuple[LossSums, jax.Array]]


def make_sums(graphdef: Any, mesh: Mesh) -> Sums:
    """Makes the program that sums a micro-batch over the rows of all processes, without dropout.

    Returns:
      `sums(params, frozen, batch) -> (LossSums, number of samples)`.
    """

    def sums(params: Any, frozen: Any, batch: Batch) -> tuple[LossSums, jax.Array]:
        model = nnx.merge(graphdef, params, frozen)
        # The samples of a row are numbered from 1.
        samples = jnp.asarray(batch.scored.branch).max(axis=-1).sum()
        return loss_sums(target_scores(model, batch), batch.scored), samples

    return jax.jit(sums, out_shardings=NamedSharding(mesh, P()))


def held_out_metrics(
    sums: Sums, params: Any, frozen: Any, batches: Iterable[Batch], mesh: Mesh
) -> dict[str, float]:
    """Computes the mean of sequence means, and accuracies under teacher forcing.

    Args:
      batches: this process's rows of the micro-batches, as numpy arrays.
    """
    # Sums, not means, since micro-batches have unlike numbers of samples; fetched after all are dispatched.
    parts = [sums(params, frozen, on_mesh(batch, mesh)) for batch in batches]
    total, samples = jax.tree.map(lambda *values: float(np.sum(values)), *jax.device_get(parts))
    metrics = {"eval/loss": total.loss / samples, "eval/token_accuracy": total.correct / total.tokens}
    if total.actions:
        metrics["eval/teacher_forced_action_accuracy"] = total.exact_actions / total.actions
    return metrics


def choose_actions(data: SftData, count: int) -> list[tuple[SftSample, SampleSize]]:
    """Chooses at most `count` held-out action samples by a hash of their ids, so that all runs use the same.

    Raises:
      UserError: the reply of one is not valid.
    """
    numbers = sorted(data.held_out.tolist(), key=lambda number: stable_hash(data.sizes[number].sample_id))
    chosen = []
    for number in numbers:
        if len(chosen) == count:
            break
        sample = data.source[number]
        if sample.kind == "action":
            _check_target(sample)
            chosen.append((sample, data.sizes[number]))
    return chosen


def _check_target(sample: SftSample) -> None:
    try:
        score_response(sample.response, sample.response)
    except ReplyError as error:
        raise UserError(
            f"sample {sample.sample_id}: its reply is no target to score against ({error}): build the SFT "
            "corpus again"
        ) from error


class GreedyReplies:
    """Samples and scores a greedy reply to each of the given action samples.

    Args:
      actions: the samples and their sizes.
      encoder: that of the samples.
      score: (reply, target) -> reward.
    """

    def __init__(
        self,
        config: EvalConfig,
        actions: Sequence[tuple[SftSample, SampleSize]],
        encoder: Encoder,
        mesh: Mesh,
        score: Score = score_response,
    ):
        self._actions, self._encoder, self._score = actions, encoder, score
        sizes = [size for _, size in actions]
        # The same samples in every evaluation, so that the sampler's shapes compile once.
        rows = round_up(min(config.rows, len(actions)), row_shards(mesh))
        shapes = prompt_shapes(sizes, rows, _PROMPT_MULTIPLE, _PROMPT_WIDTHS)
        self._sampler = Sampler(encoder.config, shapes, mesh)
        processor = encoder.processor
        self._decode = processor.decode_response
        self._sampling = SamplingParams(
            1, config.max_reply_tokens, 0.0, processor.end_id, processor.banned_ids
        )

    def __call__(self, policy: Generator) -> tuple[dict[str, float], list[SampledReply]]:
        """Returns the mean reward, the shares of exact and of truncated replies, and the replies."""
        # Each process encodes what its devices prefill; anew each time, since images take much memory.
        examples = [
            LazyExample(size, functools.partial(self._encoder.example, sample))
            for sample, size in self._actions
        ]
        # Greedy, so that the seeds do not matter.
        drawn = self._sampler.generate(policy, examples, [0] * len(examples), self._sampling)
        replies = []
        for (sample, _), responses in zip(self._actions, drawn, strict=True):
            reply = self._decode(responses.tokens[0])
            reward = self._score(reply, sample.response)
            replies.append(SampledReply(sample.sample_id, reply, sample.response, reward))
        rewards = np.asarray([reply.reward for reply in replies])
        metrics = {
            "eval/action_reward": rewards.mean(),
            "eval/action_accuracy": (rewards == EXACT).mean(),
            "eval/truncated": np.mean([responses.truncated[0] for responses in drawn]),
        }
        return {name: float(value) for name, value in metrics.items()}, replies
