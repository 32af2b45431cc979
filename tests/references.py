"""The packages that results are compared with, each imported when a test first uses it.

They take eight seconds to import, and every process of a test run collects every file.
"""

from __future__ import annotations

import importlib
from typing import Any


class _Package:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # pytest asks each name of a module for its marks.
            raise AttributeError(name)
        package = importlib.import_module(self._name)
        if self._name == "torch":
            # Threads cost more than they give on matrices as small as those of tests.
            package.set_num_threads(1)
        return getattr(package, name)


torch, transformers, peft = _Package("torch"), _Package("transformers"), _Package("peft")
