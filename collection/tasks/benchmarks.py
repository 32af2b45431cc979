"""Questions of the benchmarks, from their own files, which users get themselves (see README)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from collection.tasks.contamination import Question
from rmsweb_jax.errors import UserError


class _Asked(BaseModel):
    """A row of WebVoyager (`web_name, id, ques, web`) or WebTailBench (`id, category, ques, web`)."""

    id: str
    ques: str
    web: str = ""


class _Confirmed(BaseModel):
    """A row of Online-Mind2Web."""

    task_id: str
    confirmed_task: str
    website: str = ""


def read_webvoyager(path: Path) -> list[Question]:
    """`WebVoyager_data.jsonl`: a JSON object a line."""
    return _asked("webvoyager", path)


def read_webtailbench(path: Path) -> list[Question]:
    """`WebTailBench.jsonl`: a JSON object a line; its rows name no website."""
    return _asked("webtailbench", path)


def read_online_mind2web(path: Path) -> list[Question]:
    """`Online_Mind2Web.json`: one JSON list."""
    try:
        rows = TypeAdapter(list[_Confirmed]).validate_json(_read("online_mind2web", path))
    except ValidationError as error:
        raise _malformed("online_mind2web", path, error) from error
    return [Question("online_mind2web", row.task_id, row.confirmed_task, row.website) for row in rows]


READERS: dict[str, Callable[[Path], list[Question]]] = {
    "webvoyager": read_webvoyager,
    "online_mind2web": read_online_mind2web,
    "webtailbench": read_webtailbench,
}


def read_questions(paths: Mapping[str, str]) -> list[Question]:
    """All questions of the benchmarks whose path is not empty.

    Args:
      paths: file by benchmark (`webvoyager`, `online_mind2web`, `webtailbench`).

    Raises:
      UserError: a file cannot be read or has a bad row: what is passed over could not be checked against.
    """
    questions = [READERS[name](Path(path)) for name, path in paths.items() if path]
    return [question for some in questions for question in some]


def _asked(benchmark: str, path: Path) -> list[Question]:
    questions = []
    for number, line in enumerate(_read(benchmark, path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = _Asked.model_validate(json.loads(line))
        except (ValidationError, ValueError) as error:
            raise _malformed(benchmark, path, error, f", line {number}") from error
        questions.append(Question(benchmark, row.id, row.ques, row.web))
    return questions


def _read(benchmark: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"config.benchmarks.{benchmark}={path}: {error.strerror or error}; give its questions' file"
        ) from error


def _malformed(benchmark: str, path: Path, error: ValueError, where: str = "") -> UserError:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    else:
        reason = str(error)
    return UserError(
        f"config.benchmarks.{benchmark}={path}{where}: not as {benchmark} publishes it ({reason}); "
        "get it again"
    )
