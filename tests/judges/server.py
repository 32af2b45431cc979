"""A judge's endpoint on loopback, and judges behind it: real clients, both APIs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import pytest

from collection.judges.model_judge import ModelJudge, OwnJudge
from collection.judges.notes import TaskNotes
from collection.llm.build import make_model
from collection.llm.calls import Calls
from collection.llm.config import ModelConfig
from collection.llm.model import Model
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer

PNG = b"not really a png"


class Pictures:
    """An image source where every name has a picture."""

    def get(self, sha256: str) -> bytes:
        return PNG


def kind_of(prompt: str) -> str:
    """The question that a prompt is, of which judge."""
    kinds = {
        "You check whether": "outcome",
        "You score the work": "rubric",
        "A judge has decided": "cross_check",
    }
    (kind,) = [kind for words, kind in kinds.items() if words in prompt]
    return kind


def says(**texts: str) -> Callable[[str], Answer]:
    """Replies by the kind of question."""
    return lambda prompt: completion(texts[kind_of(prompt)])


def model_at(server: ModelServer, kind: Literal["chat", "gemini"] = "chat", **settings: Any) -> Model:
    """A server's model as a run makes it, its calls in `file`; a call that fails is not repeated."""
    values: dict[str, Any] = {"model": "judge-1", "calls": 1, "max_tokens": 100, "timeout_s": 30.0} | settings
    file, address = values.pop("file", None), f"{server.url}/v1" if kind == "chat" else server.url
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "key")
        return make_model(ModelConfig(kind=kind, base_url=address, **values).resolve(), Calls(file))


@contextlib.contextmanager
def judge_at(
    server: ModelServer,
    method: str,
    notes: Mapping[str, TaskNotes] | None = None,
    **settings: Any,
) -> Iterator[ModelJudge]:
    """A judge behind a server, its calls kept in `file`."""
    yield OwnJudge(method, model_at(server, **settings), notes)
