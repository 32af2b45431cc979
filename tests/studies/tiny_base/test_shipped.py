"""The checkpoint in the package is what its card says."""

import random
import re

import pytest
from tokenizers import Tokenizer

from configs.studies.tiny_base import get_config
from experiments.studies.tiny_base.batches import KINDS, BatchMaker, RecordedPages
from experiments.studies.tiny_base.run import load_or_make_tokenizer
from experiments.studies.tiny_base.settings import BaseConfig, Sizes
from experiments.studies.tiny_base.train import score, split_params
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.settings import from_config

FOLDER = resolve_model("tiny_base")
# A few pages score within this of the card's hundreds.
MARGIN = 0.06


@pytest.fixture(scope="module")
def model():
    return load_model(FOLDER)


def carded(name: str) -> float:
    row = re.search(rf"^\| {name} \| \d+ \| ([\d.]+) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert row is not None, name
    return float(row[1])


def test_it_is_small(model):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 10_000_000
    assert 2e6 <= sum(value.size for value in split_params(model)[1].values()) <= 4e6


def test_its_tokenizer_equals_the_scripts(tmp_path):
    config = from_config(BaseConfig, get_config("tiny"))
    load_or_make_tokenizer(config, tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(2, 4), (9, 20)])
def test_it_points_at_the_goals_element(model, tmp_path, low, high):
    config = from_config(BaseConfig, get_config("tiny"))
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    processor = Processor(tokenizer, model.config, config.recorded.max_pixels)
    maker = BatchMaker(config, processor, RecordedPages(tmp_path, config.recorded.max_pixels, 32))
    rng = random.Random(7)
    values = score(
        model,
        [maker.make(rng, "state", Sizes(low=low, high=high, length=512, rows=8)) for _ in range(3)],
        KINDS,
    )
    assert values["accuracy"] >= carded(f"generated, {low} to {high} elements") - MARGIN
    assert values["accuracy"] > values["chance"] + 0.4
    assert values["copy_accuracy"] > 0.98
