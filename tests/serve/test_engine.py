import threading

import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.engine import Engine, EngineConfig, EngineStoppedError, Prepared, UnknownPolicyError
from rmsweb_jax.serve.policies import BASE
from rmsweb_jax.serve.protocol import BadRequestError, ChatMessage, ChatRequest

TEXTS = ("go", "a longer question, so that rows differ", "third", "x" * 70, "fifth and last")


def ask(text: str, **settings) -> ChatRequest:
    return ChatRequest(messages=[ChatMessage(role="user", content=text)], **settings)


def prepared(engine: Engine, number: int) -> Prepared:
    return engine.prepare(ask(TEXTS[number], seed=number, temperature=0.8 + number / 10))


@pytest.fixture
def idle(model_folder) -> Engine:
    """Not started, so that requests pile up and are answered in one batch."""
    shapes = EngineConfig((1, 4), (64, 128), max_new_tokens=12, max_images=1, warm_widths=0)
    return Engine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)


def test_a_reply_does_not_depend_on_its_batch(engine, idle):
    alone = [engine.submit(prepared(engine, number)).result() for number in range(len(TEXTS))]
    futures = [idle.submit(prepared(idle, number)) for number in reversed(range(len(TEXTS)))]
    idle.start()
    together = [future.result() for future in futures][::-1]
    idle.close()
    for (one,), (other,) in zip(alone, together, strict=True):
        assert (one.text, one.tokens, one.finish_reason) == (other.text, other.tokens, other.finish_reason)
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
    assert len({replies[0].text for replies in alone}) == len(TEXTS)


def test_more_choices_extend_fewer(engine):
    one, four = (engine.submit(engine.prepare(ask("go", seed=5, n=n))).result() for n in (1, 4))
    # Another number of samples is another program: figures agree to rounding.
    assert four[0].text == one[0].text and list(four[0].tokens) == list(one[0].tokens)
    assert four[0].log_probs == pytest.approx(one[0].log_probs, abs=1e-5)
    assert len({reply.text for reply in four}) == 4


def test_both_halves_of_a_seed_count(engine):
    seeds = (1, 1 + 2**32, 2)
    texts = {engine.submit(engine.prepare(ask("go", seed=seed))).result()[0].text for seed in seeds}
    assert len(texts) == 3


def test_temperature_zero_is_greedy(engine):
    replies = [engine.submit(engine.prepare(ask("go", seed=s, temperature=0))).result()[0] for s in (1, 2)]
    assert replies[0] == replies[1]


def test_limits_cut_a_reply(engine):
    full = engine.submit(engine.prepare(ask("go", seed=3, max_tokens=1000))).result()[0]
    cut = engine.submit(engine.prepare(ask("go", seed=3, max_tokens=4))).result()[0]
    assert len(full.tokens) == len(full.log_probs) == 12
    assert (cut.tokens, cut.log_probs) == (full.tokens[:4], full.log_probs[:4])
    assert cut.finish_reason == "length"


def test_adapters_draw_otherwise_and_queued_requests_outlive_them(idle, adapter_folder):
    idle.policies.load("other", adapter_folder)
    assert idle.policies.names() == ["other"]
    request = idle.prepare(ask("go", seed=5))
    # In one batch they would be of one policy.
    futures = [idle.submit(request, policy) for policy in (BASE, "other")]
    idle.policies.unload("other")
    idle.start()
    base, other = (future.result()[0].tokens for future in futures)
    assert base != other
    with pytest.raises(UnknownPolicyError):
        idle.submit(request, "other")
    idle.close()


def test_a_prompt_longer_than_every_width_is_refused(engine):
    with pytest.raises(BadRequestError, match="at most 128 are served"):
        engine.prepare(ask("x" * 200))


def test_closing_tells_those_who_wait(idle):
    future = idle.submit(prepared(idle, 0))
    closer = threading.Thread(target=idle.close)
    with idle._changed:
        idle.start()
        closer.start()
        idle._closing = True
    closer.join()
    with pytest.raises(EngineStoppedError):
        future.result()
    with pytest.raises(EngineStoppedError):
        idle.submit(prepared(idle, 0))


def test_a_failing_batch_stops_the_engine_and_tells_everyone(idle, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    broken = Prepared(None, 1, 1.0, 0, 1)  # pyright: ignore[reportArgumentType]
    futures = [idle.submit(broken), idle.submit(prepared(idle, 1))]
    idle.start()
    for future in futures:
        with pytest.raises(EngineStoppedError):
            future.result()
    assert not idle.alive


def test_warm_up_compiles_each_batch_size_at_the_warm_widths(model_folder):
    shapes = EngineConfig((1, 2), (64, 128), max_new_tokens=2, max_images=0, warm_widths=1)
    engine = Engine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    seen = []
    engine.warm_up(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("sizes", [(), (2, 1), (0, 1), (2, 2)])
def test_sizes_must_ascend(sizes):
    with pytest.raises(UserError, match="batch_sizes"):
        EngineConfig(sizes, (64,), max_new_tokens=2, max_images=0, warm_widths=1)
