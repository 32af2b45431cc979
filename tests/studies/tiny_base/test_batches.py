"""Pages recorded in Chromium become batches with their screenshots."""

import random

import numpy as np
import pytest

from configs.studies.tiny_base import get_config
from experiments.studies.tiny_base.batches import BatchMaker, RecordedPages
from experiments.studies.tiny_base.corpus.recorded import pages_of, read_episodes, record_episodes
from experiments.studies.tiny_base.settings import BaseConfig
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.settings import from_config

WANTED = [("login-user", 100_000), ("bisect-angle", 100_000)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    record_episodes(folder, WANTED, max_actions=2)
    return folder


def test_each_page_and_seed_is_recorded_once(recorded):
    before = (recorded / "pages.jsonl").read_bytes()
    record_episodes(recorded, WANTED, max_actions=2)
    assert (recorded / "pages.jsonl").read_bytes() == before
    assert [(episode.page, episode.seed) for episode in read_episodes(recorded)] == WANTED


def test_pages_have_no_cover_and_keep_their_request(recorded):
    pages = list(pages_of(read_episodes(recorded)))
    assert pages[0].objective.startswith("Enter the username") and "id=username" in pages[0].text
    assert all("START" not in page.text and page.screenshot for page in pages)


def test_recorded_batches_carry_one_small_image_a_row(recorded):
    config = from_config(BaseConfig, get_config("smoke"))
    folder = resolve_model("tiny_base")
    processor = Processor.from_pretrained(folder, config.recorded.max_pixels)
    maker = BatchMaker(config, processor, RecordedPages(recorded, config.recorded.max_pixels, 32))
    batch = maker.recorded(random.Random(0))
    images = (batch.inputs.tokens == processor.config.image_token_id).sum(axis=1)
    assert images.tolist() == [15, 15]  # 500x320 becomes 160x96.
    assert np.array_equal(
        np.sort(batch.inputs.image_index[batch.inputs.image_index >= 0]), [*range(15), *range(16, 31)]
    )
    assert (batch.index > 0).sum() > 4
    again = maker.recorded(random.Random(0))
    assert np.array_equal(batch.inputs.tokens, again.inputs.tokens)
