"""Reads the benchmarks' own files, which users download themselves: their rows and questions."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from collection.tasks.contamination import BenchmarkQuestion
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import local_path

T = TypeVar("T")
_SHOWN = 5


class VoyagerRow(BaseModel):
    """A row of WebVoyager."""

    id: str
    ques: str
    web: str = ""
    web_name: str = ""

    def question(self) -> BenchmarkQuestion:
        return BenchmarkQuestion("webvoyager", self.id, self.ques, self.web)


class RubricItem(BaseModel):
    """A line of a rubric; with a `condition` it counts only where that holds."""

    criterion: str
    description: str = ""
    condition: str = ""
    max_points: float = Field(gt=0)


class _Rubric(BaseModel):
    items: tuple[RubricItem, ...] = ()


class TailRow(BaseModel):
    """A row of WebTailBench, which names no website; `category` is one of its eleven types."""

    id: str
    ques: str
    web: str = ""
    category: str = ""
    precomputed_rubric: _Rubric = _Rubric()

    def question(self) -> BenchmarkQuestion:
        return BenchmarkQuestion("webtailbench", self.id, self.ques, self.web)


class Mind2WebRow(BaseModel):
    """A row of Online-Mind2Web; `level` is easy, medium or hard."""

    task_id: str
    confirmed_task: str
    website: str = ""
    level: str = ""

    @property
    def id(self) -> str:
        return self.task_id

    def question(self) -> BenchmarkQuestion:
        return BenchmarkQuestion("online_mind2web", self.task_id, self.confirmed_task, self.website)


Row = VoyagerRow | TailRow | Mind2WebRow
R = TypeVar("R", VoyagerRow, TailRow, Mind2WebRow)


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that was read: its name without the folder, number of rows, and SHA-256 of its bytes."""

    name: str
    rows: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class BenchmarkFile:
    """A user's file of a benchmark.

    Attributes:
      setting: the config key that names it, for errors.
      benchmark: its publisher.
    """

    path: Path
    setting: str
    benchmark: str

    def read(self) -> bytes:
        """Returns the file's bytes. Raises UserError if it cannot be read."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"{self.setting}={self.path}: {reason}; give the benchmark's own file") from error

    def parse(self, type_: Any, data: bytes) -> Any:
        """Validates JSON against a type. Raises UserError if it does not fit."""
        try:
            return TypeAdapter(type_).validate_json(data)
        except ValidationError as error:
            raise self.malformed(error) from error

    def malformed(self, error: ValidationError | str, where: str = "") -> UserError:
        """Returns the error to raise for a file that does not have the benchmark's format."""
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        published = f"not as {self.benchmark} publishes it ({reason})"
        return UserError(f"{self.setting}={self.path}{where}: {published}; get it again")

    def source(self, data: bytes, rows: int) -> SourceFile:
        return SourceFile(self.path.name, rows, hashlib.sha256(data).hexdigest())


def read_webvoyager(file: BenchmarkFile) -> tuple[list[VoyagerRow], SourceFile]:
    """Reads `WebVoyager_data.jsonl`: one JSON object per line."""
    return _read(file, _lines(VoyagerRow))


def read_webtailbench(file: BenchmarkFile) -> tuple[list[TailRow], SourceFile]:
    """Reads WebTailBench: `.tsv` as on the hub (`WebTailBench-v2-rubrics.tsv`), otherwise JSON lines."""
    return _read(file, _table if file.path.suffix == ".tsv" else _lines(TailRow))


def read_online_mind2web(file: BenchmarkFile) -> tuple[list[Mind2WebRow], SourceFile]:
    """Reads `Online_Mind2Web.json`: one JSON list."""
    return _read(file, lambda file, data: file.parse(list[Mind2WebRow], data))


READERS: dict[str, Callable[[BenchmarkFile], tuple[list[Any], SourceFile]]] = {
    "webvoyager": read_webvoyager,
    "online_mind2web": read_online_mind2web,
    "webtailbench": read_webtailbench,
}


def read_questions(paths: Mapping[str, str]) -> list[BenchmarkQuestion]:
    """Reads all questions of the benchmarks whose path is not empty.

    Args:
      paths: file by benchmark (`webvoyager`, `online_mind2web`, `webtailbench`).

    Raises:
      UserError: a file cannot be read, or has a bad or repeated row. Rows are never skipped: tasks could not
        be checked against them.
    """
    questions = []
    for name, path in paths.items():
        if path:
            setting = f"config.benchmarks.{name}"
            rows, _ = READERS[name](BenchmarkFile(local_path(path, setting), setting, name))
            questions += [row.question() for row in rows]
    return questions


@dataclasses.dataclass(frozen=True)
class _Edition:
    """The published rows of a benchmark.

    Attributes:
      sha256: digest of their ids and questions, or of the ids alone; the files' format does not matter.
    """

    rows: int
    sha256: str
    ids_only: bool = False


EDITIONS = {
    "webvoyager": _Edition(643, "280d6910bc910c9f550b4fc8a173851f9a194e74be3a60d0c9054f83ca0aa2e5"),
    "online_mind2web": _Edition(300, "f92706c1a272792c3d5b8f35c0e4dcf6dcd54443f5a554fade6a9decb45202e5"),
    "webtailbench": _Edition(609, "ebf59afc9c1bbc99d205b5bfb035fc8e1008262dfdaabbad57e724e23a32e3a5"),
    # The authors' list of changes says that the second edition has the ids of the first.
    "webtailbench_v2": _Edition(
        609, "66076c859f2a594af121ff90e3544aa7c93ce65ec7868710b69730c97835740f", ids_only=True
    ),
}


def check_edition(file: BenchmarkFile, questions: Sequence[BenchmarkQuestion], name: str) -> None:
    """Raises UserError if the questions are not the published ones of the edition `name`.

    A rate over other rows would be taken for the benchmark's, so it has to be asked for.
    """
    edition = EDITIONS[name]
    lines = (f"{one.task_id}\n{'' if edition.ids_only else one.text.strip()}\n" for one in questions)
    if hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() != edition.sha256:
        raise UserError(
            f"{file.setting}={file.path}: these {len(questions)} rows are not the {edition.rows} that "
            f"{name} publishes; get it again, or set config.own_rows=True to evaluate on them"
        )


def refuse(names: Iterable[str], what: str, remedy: str) -> None:
    """Raises UserError naming the first few of `names`, if there are any.

    Args:
      what: the mistake, and where it is.
    """
    names = list(names)
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UserError(f"{what}: {', '.join(names[:_SHOWN])}{more}; {remedy}")


def _read(
    file: BenchmarkFile, parse: Callable[[BenchmarkFile, bytes], list[R]]
) -> tuple[list[R], SourceFile]:
    data = file.read()
    rows = parse(file, data)
    if not rows:
        raise file.malformed("no rows")
    twice = [row_id for row_id, count in Counter(row.id for row in rows).items() if count > 1]
    refuse(twice, f"{file.setting}={file.path}: rows that come twice", "get it again")
    return rows, file.source(data, len(rows))


def _lines(type_: type[R]) -> Callable[[BenchmarkFile, bytes], list[R]]:
    def parse(file: BenchmarkFile, data: bytes) -> list[R]:
        rows = []
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                try:
                    rows.append(type_.model_validate_json(line))
                except ValidationError as error:
                    raise file.malformed(error, f", line {number}") from error
        return rows

    return parse


def _table(file: BenchmarkFile, data: bytes) -> list[TailRow]:
    """Rows of the hub's table: id, task_summary, benchmark (a type), precomputed_rubric (JSON), init_url."""
    rows: list[TailRow] = []
    try:
        for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter="\t"):
            fields = {
                "id": row["id"],
                "ques": row["task_summary"],
                "web": row.get("init_url") or "",
                "category": row.get("benchmark") or "",
                "precomputed_rubric": json.loads(row.get("precomputed_rubric") or "{}"),
            }
            rows.append(TailRow.model_validate(fields))
    except ValidationError as error:
        raise file.malformed(error, f", row {len(rows) + 1}") from error
    except KeyError as error:
        raise file.malformed(f"no column {error}") from error
    except (ValueError, csv.Error) as error:
        raise file.malformed(str(error), f", row {len(rows) + 1}") from error
    return rows
