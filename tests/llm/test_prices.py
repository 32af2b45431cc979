"""Prices: given ones, and list prices from the table that the package keeps."""

import datetime
import json

import pytest

from collection.llm.build import make_model
from collection.llm.config import _TABLE, ModelConfig, Prices, list_prices
from configs import collect, evaluate, judge, make_tasks, mine
from rmsweb_jax.errors import UserError
from tests.llm.answers import completion
from tests.llm.playing import REQUEST
from tests.llm.server import ModelServer

GPT = Prices(prompt=1.25, response=10.0, cached=0.125)


@pytest.mark.parametrize(
    "name,prices",
    [
        ("gpt-5.1", GPT),
        ("gpt-5.1-2025-11-13", GPT),
        ("openai/GPT-5.1", GPT),
        ("claude-haiku-4-5-20251001", Prices(prompt=1.0, response=5.0, cached=0.1)),
        ("gemini-3-pro-preview", Prices(prompt=2.0, response=12.0, cached=0.2)),
        # Another model, whatever it costs.
        ("gpt-5.1-pro", Prices()),
        ("ft:gpt-4.1-2025-04-14:me", Prices()),
        ("runs/sft/export", Prices()),
        ("", Prices()),
    ],
)
def test_list_prices(name, prices):
    assert list_prices(name) == prices


def test_the_table_has_a_date_a_source_and_whole_rows():
    table = json.loads(_TABLE.read_bytes())
    assert datetime.date.fromisoformat(table["date"]) and table["source"] and table["unit"]
    for name, row in table["models"].items():
        assert row.keys() == {"prompt", "cached", "response"}, name
        assert 0 < row["cached"] < row["prompt"] < row["response"], name


def test_every_model_that_a_config_names_has_a_price():
    models = [
        section["model"]
        for module in (collect, evaluate, judge, make_tasks, mine)
        for variant in module.VARIANTS
        for section in sections(module.get_config(variant).to_dict())
        if section.get("kind") in ("gemini", "chat") and section["model"]
    ]
    assert "gpt-5.1" in models and all(list_prices(name).known for name in models)


def sections(config):
    """Yields every dictionary in a dictionary."""
    for value in config.values():
        if isinstance(value, dict):
            yield value
            yield from sections(value)


def test_given_prices_come_first():
    assert ModelConfig(model="gpt-5.1", price=(3.0, 0.0, 0.0)).prices == Prices(prompt=3.0)
    assert ModelConfig(model="gpt-5.1", price=(0.0, 3.0, 0.0)).prices == GPT


def test_calls_of_a_listed_model_are_priced_and_capped(capfd):
    with ModelServer([completion("{}")]) as server:
        config = ModelConfig(kind="chat", base_url=f"{server.url}/v1", model="gpt-5.1", cap_usd=1.0)
        reply = make_model(config.resolve()).complete(REQUEST)
    assert reply.usage.cost == pytest.approx((1000 * 1.25 + 100 * 10.0) / 1e6)
    assert not capfd.readouterr().err


def test_a_model_without_a_price_is_said_once_and_cannot_be_capped(capfd):
    config = ModelConfig(kind="chat", base_url="http://127.0.0.1:9/v1", model="new")
    config.resolve("config.judge")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "config.judge: no price of new is known, so its cost is not counted; set config.judge."
    )
    with pytest.raises(UserError, match=r"config\.actor: no price of new is known, and a cap"):
        ModelConfig(kind="chat", base_url="http://127.0.0.1:9/v1", model="new", cap_usd=1.0).resolve()
