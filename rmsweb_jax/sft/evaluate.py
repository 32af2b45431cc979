"""Held-out evaluation: the loss, and the reward of greedy replies to some action samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.actions.parse import ReplyError
from rmsweb_jax.actions.reward import EXACT, Target, score_response
from rmsweb_jax.data.batching import Batch, on_mesh
from rmsweb_jax.data.encoding import LazyExample, SampleSize
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Request, Sampling, join
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.sft.config import EvalConfig
from rmsweb_jax.sft.data import SftData
from rmsweb_jax.sft.step import LossSums, loss_sums, target_scores
from rmsweb_jax.training.mesh import row_shards
from rmsweb_jax.training.metrics import SampledReply

Score = Callable[[str, str], float]
# Replies that are decoded at once.
_LANES = 16


class Evaluator:
    """Evaluates a policy on a corpus' held-out samples; with several processes all of them must call it.

    Args:
      config: number of replies, and sampling parameters.
      data: a corpus with held-out samples.
      graphdef: graph of the policy.
      mesh: mesh of the policy.
      score: (reply, target) -> reward.
    """

    def __init__(
        self,
        config: EvalConfig,
        data: SftData,
        graphdef: Any,
        mesh: Mesh,
        score: Score = score_response,
    ):
        self._config, self._data, self._graphdef, self._mesh = config, data, graphdef, mesh
        self._score = score
        self._sums = make_sums(graphdef, mesh)
        # The same ones in every evaluation, so that the engine's programs compile once.
        self._actions = choose_actions(data, config.replies)

    def __call__(self, params: Any, frozen: Any) -> tuple[dict[str, float], list[SampledReply]]:
        """Returns the metrics (`eval/...`) of the policy with these parameters, and its replies."""
        metrics = held_out_metrics(self._sums, params, frozen, self._data.held_out_batches(), self._mesh)
        if not self._actions:
            return metrics, []
        scores, replies = self.greedy_replies(nnx.merge(self._graphdef, params, frozen))
        return metrics | scores, replies

    def greedy_replies(self, model: Qwen3VL) -> tuple[dict[str, float], list[SampledReply]]:
        """Returns the mean reward, the shares of exact and of truncated replies, and the replies."""
        encoder, limit = self._data.encoder, self._config.max_reply_tokens
        processor = encoder.processor
        sizes = sizes_for(
            [(size.prompt_length, size.patches) for _, size in self._actions],
            samples=1,
            response_tokens=limit,
            lanes=min(_LANES, len(self._actions)),
            shards=row_shards(self._mesh),
        )
        engine = Engine.for_policy(model, sizes, eos=processor.end_id, banned=tuple(processor.banned_ids))
        requests = [
            Request(
                # Encoded by the processes that prefill it; anew each time, since images take much memory.
                LazyExample(size, functools.partial(encoder.example, sample)),
                # Greedy, so that the seeds do not matter.
                Sampling(1, limit, temperature=0.0),
                adapter=engine.policy,
            )
            for sample, size in self._actions
        ]
        drawn = dict(join(engine.stream(requests)))
        replies = []
        for (sample, _), request in zip(self._actions, requests, strict=True):
            reply = processor.decode_response(drawn[request].tokens[0])
            target = Target(sample.response, sample.window) if sample.window else sample.response
            reward = self._score(reply, target)
            replies.append(SampledReply(sample.sample_id, reply, sample.response, reward))
        rewards = np.asarray([reply.reward for reply in replies])
        metrics = {
            "eval/action_reward": rewards.mean(),
            "eval/action_accuracy": (rewards == EXACT).mean(),
            "eval/truncated": np.mean([responses.truncated[0] for responses in drawn.values()]),
        }
        return {name: float(value) for name, value in metrics.items()}, replies


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
