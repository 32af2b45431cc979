"""Rollouts at our own server: the same responses in any company, with the log-probabilities of training."""

import dataclasses

import numpy as np
from flax import nnx

from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.server import serving_engine
from tests.qwen.rows import token_log_probs
from tests.rl.eight_rows import plain_inputs
from tests.rl.inference_server import LIMIT, MAX_PIXELS, Policy, draw, make_endpoint, make_policy, settings
from tests.serve.conftest import serving

WIDTH = 96


def trained_log_probs(policy: Policy, prompt: Prompt, tokens: np.ndarray, adapters: bool) -> np.ndarray:
    """Log-probabilities of a response under the training forward."""
    start, known = prompt.prompt_length, prompt.encoded()
    example = dataclasses.replace(
        known,
        tokens=np.concatenate([known.prompt, tokens]),
        action_mask=np.zeros(len(tokens), bool),
    )
    window = MAX_PIXELS // 16**2
    inputs = plain_inputs([example], policy.model.config, count=1, width=WIDTH, images=1, window=window)
    return np.asarray(_score(policy.model, inputs, adapters))[0, start : start + len(tokens)]


_score = nnx.jit(
    lambda model, inputs, adapters: token_log_probs(model, inputs, adapters=adapters).log_probs,
    static_argnames="adapters",
)


def test_our_own_server_draws_what_training_scores(tmp_path_factory, tmp_path):
    policy = make_policy(tmp_path_factory.mktemp("policy"))
    policy = policy._replace(sampling=dataclasses.replace(policy.sampling, num_samples=4))
    config = ServeSettings(
        model="base",
        lanes=6,
        prompt_tokens=WIDTH,
        max_new_tokens=LIMIT,
        chunks=(32,),
        adapters=2,
        adapter_rank=2,
    )
    model = load_model(policy.folder)
    server = ServingEngine(serving_engine(model, policy.processor, config), model, config.max_waiting)
    server.start()
    with serving(server, policy.processor, model="base", max_new_tokens=LIMIT) as url:
        endpoint = make_endpoint(settings(url, tmp_path, concurrency=12), policy)
        endpoint.load(policy.model, 1)
        drawn = draw(endpoint, policy)
        # Alone, so in other company.
        (again,) = draw(endpoint, policy, slice(2, 3))
        endpoint.unload()
        assert server.adapters == {}
    server.close()
    for tokens, expected in zip(again.tokens, drawn[2].tokens, strict=True):
        np.testing.assert_array_equal(tokens, expected)
    apart = []
    for prompt, responses in zip(policy.prompts, drawn, strict=True):
        assert len({tuple(tokens.tolist()) for tokens in responses.tokens}) == 4
        for tokens, log_probs in zip(responses.tokens, responses.log_probs, strict=True):
            ours = trained_log_probs(policy, prompt, tokens, adapters=True)
            np.testing.assert_allclose(log_probs, ours, atol=1e-4)
            apart.append(np.abs(log_probs - trained_log_probs(policy, prompt, tokens, adapters=False)).max())
    assert np.median(apart) > 0.01
