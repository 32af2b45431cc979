"""Benchmarks: their own files, which users download themselves, become tasks and notes for judges."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import from_json

from collection.evaluation.config import (
    FIRST_EVALUATED_SEED,
    AppsSettings,
    EvaluateSettings,
    MiniwobSettings,
    OnlineMind2WebSettings,
    OwnBenchmarkSettings,
    OwnTasksSettings,
    WebTailBenchSettings,
    WebVoyagerSettings,
)
from collection.judges.notes import Criterion, Reference, TaskNotes
from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.files import read_all_tasks, refuse
from collection.tasks.websites import site_of, start_address
from rmsweb_jax import own
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task
from rmsweb_jax.storage import local_path


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that was read: its name without the folder, number of rows, and SHA-256 of its bytes."""

    name: str
    rows: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A benchmark's tasks, with notes for judges and data for reports.

    Attributes:
      name: as in the config; `task_id`s begin with it.
      tasks: in the file's order, without excluded ones. `site` groups results; `category` is the
        benchmark's own type if it has types.
      notes: notes for judges, hidden from agents, by task id.
      levels: easy, medium or hard, by task id, if the benchmark has levels.
      files: the files that were read.
      excluded: ids of tasks that are in the files and left out.
      questions: all questions of the files, including excluded tasks, for the contamination check; none for
        tasks without a fixed text.
      own_rows: the user has accepted that its rows are not the published ones.
    """

    name: str
    tasks: tuple[Task, ...]
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)
    levels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    excluded: tuple[str, ...] = ()
    questions: tuple[BenchmarkQuestion, ...] = ()
    own_rows: bool = False

    def select(self, task_ids: Sequence[str]) -> Benchmark:
        """Returns the benchmark with only these tasks, in the files' order; all tasks if `task_ids` is empty.

        Raises:
          UserError: an id is unknown or excluded; the message names it.
        """
        if not task_ids:
            return self
        known = {task.task_id for task in self.tasks}
        check_known(task_ids, known, f"config.task_ids: no tasks of {self.name}")
        chosen = frozenset(task_ids)
        kept = tuple(task for task in self.tasks if task.task_id in chosen)
        notes = {name: note for name, note in self.notes.items() if name in chosen}
        return dataclasses.replace(self, tasks=kept, notes=notes)


class Row(BaseModel):
    """A row of a benchmark's file, whose own names of fields are aliases here.

    Attributes:
      web: start page; empty if the row names none.
      group: what results are grouped by; empty for the site.
    """

    published: ClassVar[dict[str, tuple[int, str]]]

    id: str
    text: str = Field(alias="ques")
    web: str = ""
    group: str = ""
    category: str = ""
    level: str = ""

    def task(self, benchmark: str, start: str) -> Task:
        return Task(
            task_id=f"{benchmark}/{self.id}",
            website=start,
            objective=self.text.strip(),
            site=self.group or site_of(self.web or start),
        )

    def notes(self) -> TaskNotes | None:
        return None


class VoyagerRow(Row):
    """WebVoyager (He et al., 2024): 643 tasks at 15 sites, 588 of them retained (RMSWeb, appendix)."""

    published = {"webvoyager": (643, "280d6910bc910c9f550b4fc8a173851f9a194e74be3a60d0c9054f83ca0aa2e5")}

    group: str = Field(default="", alias="web_name")

    def task(self, benchmark: str, start: str) -> Task:
        site = self.group or self.id.rpartition("--")[0]
        return super().task(benchmark, start).model_copy(update={"site": site})


class Mind2WebRow(Row):
    """Online-Mind2Web (Xue et al., 2025): 300 tasks at 136 sites with three levels, used unchanged."""

    published = {"online_mind2web": (300, "f92706c1a272792c3d5b8f35c0e4dcf6dcd54443f5a554fade6a9decb45202e5")}

    id: str = Field(alias="task_id")
    text: str = Field(alias="confirmed_task")
    web: str = Field(default="", alias="website")


class _Item(BaseModel):
    criterion: str
    description: str = ""
    condition: str = ""
    max_points: float = Field(gt=0)


class _Rubric(BaseModel):
    items: tuple[_Item, ...] = ()


class TailRow(Row):
    """WebTailBench (Awadallah et al., 2025): 609 tasks of eleven types, each with a rubric; two editions.

    Its rows name no website: all tasks start at one page, so results are grouped by type.
    """

    published = {
        "webtailbench": (609, "ebf59afc9c1bbc99d205b5bfb035fc8e1008262dfdaabbad57e724e23a32e3a5"),
        # Of the ids alone, which are those of the first edition, as the authors' list of changes says.
        "webtailbench_v2": (609, "66076c859f2a594af121ff90e3544aa7c93ce65ec7868710b69730c97835740f"),
    }

    rubric: _Rubric = Field(default=_Rubric(), alias="precomputed_rubric")

    @field_validator("rubric", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return from_json(value or "{}") if isinstance(value, str) else value

    def task(self, benchmark: str, start: str) -> Task:
        site = site_of(self.web) or self.category
        return (
            super()
            .task(benchmark, start)
            .model_copy(update={"site": site, "category": self.category or "Other"})
        )

    def notes(self) -> TaskNotes | None:
        rubric = tuple(Criterion(**item.model_dump()) for item in self.rubric.items)
        return TaskNotes(rubric=rubric) if rubric else None


# A benchmark with a file -> its rows.
ROWS: dict[str, type[Row]] = {
    "webvoyager": VoyagerRow,
    "online_mind2web": Mind2WebRow,
    "webtailbench": TailRow,
}
# Columns of the hub's table -> fields of the JSON lines.
_HUB = {"id": "id", "task_summary": "ques", "precomputed_rubric": "precomputed_rubric"}
_HUB_OPTIONAL = {"init_url": "web", "benchmark": "category"}


class _File:
    """A user's file of a benchmark.

    Attributes:
      setting: the config key that names it, for errors.
      published_by: its publisher.

    Raises:
      UserError: it cannot be read.
    """

    def __init__(self, path: str, setting: str, published_by: str):
        self.path, self.setting, self.published_by = local_path(path, setting), setting, published_by
        try:
            self.data = self.path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"{self}: {reason}; give the benchmark's own file") from error

    def __str__(self) -> str:
        return f"{self.setting}={self.path}"

    def parse(self, type_: Any, value: bytes | dict[str, Any], where: str = "") -> Any:
        """Validates JSON, or an object, against a type. Raises UserError if it does not fit."""
        adapter = TypeAdapter(type_)
        try:
            if isinstance(value, bytes):
                return adapter.validate_json(value)
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
            raise self.malformed(reason, where) from error

    def malformed(self, reason: str, where: str = "") -> UserError:
        """Returns the error to raise for a file that does not have the benchmark's format."""
        return UserError(f"{self}{where}: not as {self.published_by} publishes it ({reason}); get it again")

    def source(self, rows: int) -> SourceFile:
        return SourceFile(self.path.name, rows, hashlib.sha256(self.data).hexdigest())

    def rows(self, type_: type[Row]) -> list[Any]:
        """Reads rows: `.tsv` as on the hub, a JSON list, or JSON lines.

        Raises:
          UserError: a row is bad or repeated. Rows are never skipped: nothing could be checked against them.
        """
        if self.path.suffix == ".tsv":
            rows = self._table(type_)
        elif type_ is Mind2WebRow:
            rows = self.parse(list[type_], self.data)
        else:
            lines = enumerate(self.data.splitlines(), start=1)
            rows = [self.parse(type_, line, f", line {number}") for number, line in lines if line.strip()]
        if not rows:
            raise self.malformed("no rows")
        self.refuse_repeated([row.id for row in rows], "rows")
        return rows

    def _table(self, type_: type[Row]) -> list[Any]:
        rows = []
        try:
            for line in csv.DictReader(
                io.StringIO(self.data.decode("utf-8-sig"), newline=""), delimiter="\t"
            ):
                row = {name: line[column] for column, name in _HUB.items()}
                row |= {name: line.get(column) or "" for column, name in _HUB_OPTIONAL.items()}
                rows.append(self.parse(type_, row, f", row {len(rows) + 1}"))
        except KeyError as error:
            raise self.malformed(f"no column {error}") from error
        except (ValueError, csv.Error) as error:
            raise self.malformed(str(error), f", row {len(rows) + 1}") from error
        return rows

    def refuse_repeated(self, ids: Sequence[str], what: str) -> None:
        twice = [one for one, count in Counter(ids).items() if count > 1]
        refuse(twice, f"{self}: {what} that come twice", "get it again")

    def check_edition(self, rows: Sequence[Row], name: str) -> None:
        """Raises UserError if the rows are not the published ones of the edition `name`.

        A rate over other rows would be taken for the benchmark's, so it has to be asked for. The digest is of
        ids and questions; the file's format does not matter.
        """
        count, sha256 = rows[0].published[name]
        lines = (f"{row.id}\n{'' if name == 'webtailbench_v2' else row.text.strip()}\n" for row in rows)
        if hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() != sha256:
            raise UserError(
                f"{self}: these {len(rows)} rows are not the {count} that {name} publishes; get it again, or "
                "set config.own_rows=True to evaluate on them"
            )


def check_known(ids: Collection[str], known: Collection[str], what: str) -> None:
    """Raises UserError with the unknown ids, if there are any."""
    known = frozenset(known)
    refuse((one for one in ids if one not in known), what, "see the ids in the benchmark's own file")


def read_questions(paths: Mapping[str, str]) -> list[BenchmarkQuestion]:
    """Reads all questions of the benchmarks whose path is not empty.

    Args:
      paths: file by benchmark, a key of `ROWS`.

    Raises:
      UserError: a file cannot be read, or has a bad or repeated row.
    """
    questions: list[BenchmarkQuestion] = []
    for name, path in paths.items():
        if path:
            questions += _questions(_File(path, f"config.benchmarks.{name}", name).rows(ROWS[name]), name)
    return questions


def _questions(rows: Sequence[Row], name: str) -> tuple[BenchmarkQuestion, ...]:
    return tuple(BenchmarkQuestion(name, row.id, row.text, row.web) for row in rows)


def _published(
    settings: WebVoyagerSettings | OnlineMind2WebSettings, name: str, start_page: str = ""
) -> Benchmark:
    """Reads `tasks_file`; a task without a website starts at `start_page`.

    Raises:
      UserError: it cannot be read, has another format or other rows, or repeats a row.
    """
    file = _File(settings.tasks_file, "config.tasks_file", name)
    rows = file.rows(ROWS[settings.benchmark])
    if not settings.own_rows:
        file.check_edition(rows, name)
    tasks = []
    for row in rows:
        try:
            start = start_address(row.web or start_page)
        except ValueError as error:
            where = f"config.tasks_file, {row.id}{', or config.start_page' if start_page else ''}"
            raise UserError(f"{where}: {error}; a task has to start somewhere") from error
        tasks.append(row.task(name, start))
    return Benchmark(
        name=name,
        tasks=tuple(tasks),
        notes={f"{name}/{row.id}": notes for row in rows if (notes := row.notes())},
        levels={f"{name}/{row.id}": row.level for row in rows if row.level},
        files=(file.source(len(rows)),),
        questions=_questions(rows, name),
        own_rows=settings.own_rows,
    )


def _webtailbench(settings: WebTailBenchSettings) -> Benchmark:
    # By the name of a split on the hub. Results of the editions are of different benchmarks.
    name = {"test": "webtailbench", "test_v2": "webtailbench_v2"}[settings.split]
    return _published(settings, name, settings.start_page)


class _Answer(BaseModel):
    id: int
    type: Literal["golden", "possible"]
    ans: str


class _Site(BaseModel):
    notice: str = ""
    answers: tuple[_Answer, ...]


def _webvoyager(settings: WebVoyagerSettings) -> Benchmark:
    """Reads `tasks_file`, `excluded_file` (a JSON list of ids) and `references_file`; the last two may be "".

    Raises:
      UserError: as `_published`; an id of the other two is repeated or has no task.
    """
    whole = _published(settings, "webvoyager")
    ids = [one.task_id for one in whole.questions]
    files, excluded, notes = list(whole.files), frozenset[str](), {}
    if settings.excluded_file:
        file = _File(settings.excluded_file, "config.excluded_file", "an exclusion list")
        found = file.parse(list[str], file.data)
        file.refuse_repeated(found, "ids")
        check_known(found, ids, f"{file}: ids of no task")
        files.append(file.source(len(found)))
        excluded = frozenset(f"{whole.name}/{one}" for one in found)
    if settings.references_file:
        file = _File(settings.references_file, "config.references_file", whole.name)
        sites = file.parse(dict[str, _Site], file.data)
        answers = [
            (
                f"{name}--{one.id}",
                Reference(answer=one.ans, golden=one.type == "golden", notice=site.notice.strip()),
            )
            for name, site in sites.items()
            for one in site.answers
        ]
        file.refuse_repeated([name for name, _ in answers], "answers")
        check_known([name for name, _ in answers], ids, f"{file}: answers to no task")
        files.append(file.source(len(answers)))
        notes = {f"{whole.name}/{name}": TaskNotes(reference=answer) for name, answer in answers}
    return dataclasses.replace(
        whole,
        tasks=tuple(task for task in whole.tasks if task.task_id not in excluded),
        notes={name: note for name, note in notes.items() if name not in excluded},
        files=tuple(files),
        excluded=tuple(name for one in ids if (name := f"{whole.name}/{one}") in excluded),
    )


def _own_tasks(settings: OwnTasksSettings) -> Benchmark:
    """Reads `tasks_file`, JSON lines with `website` and `objective`.

    Raises:
      UserError: it cannot be read, or has a line that is not a task or repeats one: the mean over some of the
        tasks would look like the mean over all of them.
    """
    file = _File(settings.tasks_file, "config.tasks_file", "own_tasks")
    tasks = tuple(read_all_tasks(file.path, file.setting))
    texts = ((task, " ".join((task.objective, *task.constraints))) for task in tasks)
    return Benchmark(
        name="own_tasks",
        tasks=tasks,
        files=(file.source(len(tasks)),),
        questions=tuple(
            BenchmarkQuestion("own_tasks", task.task_id, text, task.website) for task, text in texts
        ),
    )


def _miniwob(settings: MiniwobSettings) -> Benchmark:
    return Benchmark("miniwob", tuple(held_out_tasks(settings.pages, settings.first_seed, settings.seeds)))


def held_out_tasks(pages: Sequence[str], first_seed: int, seeds: int) -> list[Task]:
    """Makes tasks of MiniWoB++ seed by seed, so that partial results cover every page.

    Raises:
      UserError: a seed is trained on, or there are no tasks.
    """
    from collection.environments.miniwob import make_task

    tasks = [make_task(page, seed) for seed in _seeds(first_seed, seeds) for page in pages]
    if not tasks:
        raise UserError("no tasks: set config.pages")
    return tasks


def _apps(settings: AppsSettings) -> Benchmark:
    """Installs `applications`, and makes their tasks for each seed.

    A seed makes the world that its tasks are in, so worlds of seeds that nothing was trained on are unseen.

    Raises:
      UserError: a seed is trained on, or an application is not there or cannot be installed.
    """
    from collection.environments.apps.suite import level
    from collection.environments.sites import Sites

    seeds = _seeds(settings.first_seed, settings.seeds)
    if not settings.applications:
        raise UserError("no tasks: set config.applications, see docs/apps.md")
    sites = Sites(settings.applications, settings.apps_folder)
    # Seed by seed, so that partial results cover every template. A site may give a task for several seeds.
    tasks = {task.task_id: task for seed in seeds for task in sites.tasks(seed)}
    apps = [name for name, task in tasks.items() if task.environment == "app"]
    levels = {name: level(*name.split("/")[:2]) for name in apps}
    return Benchmark("apps", tuple(tasks.values()), levels=levels)


def _own(settings: OwnBenchmarkSettings) -> Benchmark:
    """Calls the function that `benchmark` names, which returns tasks, or a `Benchmark`.

    Raises:
      UserError: it fails, or returns something else.
    """
    name = settings.benchmark
    function = own.find("benchmark", name)
    try:
        given = function()
        made = given if isinstance(given, Benchmark) else Benchmark(name, tuple(given))
    except Exception as error:
        raise UserError(f"config.benchmark is {name!r}: {own.one_line(error)}; see docs/own.md") from error
    if not made.tasks or not all(isinstance(task, Task) for task in made.tasks):
        raise UserError(
            f"config.benchmark is {name!r}: it gives no tasks; return a list of Task (docs/own.md)"
        )
    twice = [one for one, count in Counter(task.task_id for task in made.tasks).items() if count > 1]
    refuse(twice, f"config.benchmark is {name!r}: tasks that come twice", "give each a task_id of its own")
    named = [task.model_copy(update={"site": task.site or site_of(task.website)}) for task in made.tasks]
    texts = ((task, " ".join((task.objective, *task.constraints))) for task in named if task.objective)
    questions = made.questions or tuple(
        BenchmarkQuestion(name, task.task_id, text, task.website) for task, text in texts
    )
    return dataclasses.replace(made, name=name, tasks=tuple(named), questions=questions)


def _seeds(first: int, count: int) -> range:
    """Returns the seeds that tasks are made with, on which nothing was trained.

    Raises:
      UserError: a seed below `FIRST_EVALUATED_SEED`, or none.
    """
    if first < FIRST_EVALUATED_SEED:
        raise UserError(
            f"config.first_seed is {first}: seeds below {FIRST_EVALUATED_SEED} are trained on; "
            f"evaluate from {FIRST_EVALUATED_SEED}"
        )
    if count < 1:
        raise UserError(f"config.seeds is {count}: make it 1 or more")
    return range(first, first + count)


# Names as in `collection.evaluation.config.BENCHMARKS`, which has their settings.
LOADERS: dict[str, Callable[[Any], Benchmark]] = {
    "webvoyager": _webvoyager,
    "online_mind2web": lambda settings: _published(settings, "online_mind2web", settings.start_page),
    "webtailbench": _webtailbench,
    "miniwob": _miniwob,
    "apps": _apps,
    "own_tasks": _own_tasks,
}


def load_benchmark(settings: EvaluateSettings) -> Benchmark:
    """Loads the benchmark of these settings, with only the tasks in `task_ids` if there are any.

    Raises:
      UserError: its files cannot be used, or the judge would not see the reference answers.
    """
    benchmark = LOADERS.get(settings.benchmark, _own)(settings)
    answers = any(note.reference for note in benchmark.notes.values())
    # A file that is given and not used would look as if the judge had seen it.
    if not settings.judge.is_off and answers != settings.judge.reference:
        if answers:
            remedy = "set config.judge.reference=True, or leave the file out"
            raise UserError(f"config.references_file: the judge would not see these answers; {remedy}")
        raise UserError("config.judge.reference=True: there are no reference answers; set it to False")
    return benchmark.select(settings.task_ids)
