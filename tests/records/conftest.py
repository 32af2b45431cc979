"""Folder for tests with thousands of writes and fsyncs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory where the system has one: `fsync` costs nothing there."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)
