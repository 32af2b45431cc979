import pytest

from rmsweb_jax.qwen.config import Qwen3VLConfig
from tests.tiny import TINY


@pytest.fixture
def tiny_config() -> Qwen3VLConfig:
    return TINY
