"""An SQLite index of all episodes below some folders, extended shard by shard, and as a running fleet plays.

Lists, filters and text search are answered from it; an episode itself is read from its data set. The index
can be deleted at any time: it is made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from collection.viewer.folders import Folders
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import EPISODES, REFLECTION, SET_ASIDE, has_not_ended
from rmsweb_jax.records.journal import read_record
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import Shard, iter_shard, read_manifest, read_rows

# Changes with the columns or with what is searched: an index of another version is made anew.
_VERSION = 2
# Column -> its type; all of them can be sorted by. Those of `FILTERS` are chosen by value, those of `RANGES`
# by the least and the most. `date` is the day on which the episode's file was written, in local time.
COLUMNS = {
    "dataset": "TEXT",
    "trajectory_id": "TEXT",
    "task_id": "TEXT",
    "objective": "TEXT",
    "site": "TEXT",
    "category": "TEXT",
    "actor": "TEXT",
    "model": "TEXT",
    "attempt": "INTEGER",
    "outcome": "TEXT",
    "result": "TEXT",
    "judge": "TEXT",
    "incidents": "TEXT",
    "steps": "INTEGER",
    "tokens": "INTEGER",
    "cost": "REAL",
    "seconds": "REAL",
    "date": "TEXT",
}
FILTERS = ("dataset", "site", "category", "actor", "attempt", "outcome", "result", "judge", "incidents")
RANGES = {"steps": "number", "tokens": "number", "cost": "number", "date": "date"}
# The largest part of a reply that can be searched, and values that a filter offers.
_SEARCHED, _MOST_VALUES = 4_000, 200
# The largest part of a journal that is read at a time.
_PART_BYTES = 1 << 26
_TYPED = ", ".join(map(" ".join, COLUMNS.items()))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS shards (id INTEGER PRIMARY KEY, dataset TEXT, file TEXT, sha256 TEXT);
CREATE TABLE IF NOT EXISTS episodes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, shard INTEGER, entry INTEGER, {_TYPED}
);
CREATE INDEX IF NOT EXISTS by_task ON episodes (task_id, dataset, actor, attempt);
CREATE INDEX IF NOT EXISTS by_shard ON episodes (shard);
CREATE INDEX IF NOT EXISTS by_trajectory ON episodes (trajectory_id, dataset);
{"".join(f"CREATE INDEX IF NOT EXISTS by_{name} ON episodes ({name});" for name in (*FILTERS, *RANGES))}
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (text, content='');
"""


class _Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0


class _Incident(msgspec.Struct, gc=False):
    kind: str


class _Step(msgspec.Struct):
    response: str
    usage: _Usage = _Usage()
    incidents: tuple[_Incident, ...] = ()


class _Task(msgspec.Struct, gc=False):
    task_id: str
    objective: str
    category: str = ""
    site: str = ""


class _Episode(msgspec.Struct):
    """The fields of a trajectory that the index has."""

    trajectory_id: str
    task: _Task
    actor: str
    model: str
    attempt: int
    outcome: str
    steps: tuple[_Step, ...]
    final_text: str = ""
    success: bool = False
    judge: str = ""
    judge_usage: _Usage = _Usage()
    seconds: float = 0.0
    incidents: tuple[_Incident, ...] = ()


_decode = msgspec.json.Decoder(_Episode).decode


@dataclasses.dataclass(frozen=True)
class Query:
    """What a list shows.

    Attributes:
      filters: column -> value, of `FILTERS`.
      ranges: column -> (least, most), of `RANGES`; "" is no limit.
      words: every word must be in the objective, the replies or the answer.
      sort: a column; "-" before it sorts from high to low; "" keeps the order of the data sets.
      page: from 0.
    """

    filters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    words: str = ""
    sort: str = ""
    page: int = 0


class EpisodeIndex:
    """The index of the episodes of `folders`, in a file; several threads may use it.

    Args:
      path: of the file; its folder exists.
    """

    def __init__(self, path: Path, folders: Folders):
        self._path, self._folders = path, folders
        self._lock, self._local = threading.Lock(), threading.local()
        with contextlib.closing(sqlite3.connect(path)) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            path.unlink()
        with self._database as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version={_VERSION}")

    @property
    def _database(self) -> sqlite3.Connection:
        """This thread's connection."""
        if not hasattr(self._local, "database"):
            self._local.database = sqlite3.connect(self._path, timeout=60)
            self._local.database.execute("PRAGMA synchronous=OFF")
        return self._local.database

    def refresh(self) -> None:
        """Adds new shards, and removes those that are gone. Another thread's refresh is not waited for."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._refresh()
        finally:
            self._lock.release()

    def _refresh(self) -> None:
        database = self._database
        rows = database.execute("SELECT id, dataset, file, sha256 FROM shards").fetchall()
        known = {(dataset, file, sha256): number for number, dataset, file, sha256 in rows}
        found: dict[tuple[str, str, str], tuple[Path, Shard | None]] = {}
        for name, folder in self._folders.datasets("trajectories").items():
            # A data set that is damaged, or of another schema, keeps what was indexed of it.
            with contextlib.suppress(UserError, OSError):
                if has_not_ended(folder):
                    found |= dict.fromkeys(_journal_parts(name, folder, known), (folder, None))
                    continue
                shards = read_manifest(folder).shards
                found |= {(name, shard.data, shard.content): (folder, shard) for shard in shards}
        for key in known.keys() - found.keys():
            with database:
                # Its words stay: ids are never used again, and words without an episode are in no list.
                database.execute("DELETE FROM episodes WHERE shard = ?", (known[key],))
                database.execute("DELETE FROM shards WHERE id = ?", (known[key],))
        for key in found.keys() - known.keys():
            try:
                self._add(*key, *found[key])
            except (UserError, OSError, msgspec.DecodeError) as error:
                logging.warning("%s: not indexed: %s", key[0], error)

    def _add(self, dataset: str, file: str, sha256: str, folder: Path, shard: Shard | None) -> None:
        database = self._database
        with database:
            insert = "INSERT INTO shards (dataset, file, sha256) VALUES (?, ?, ?)"
            number = database.execute(insert, (dataset, file, sha256)).lastrowid
            last = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'").fetchone()
            first = last[0] + 1 if last else 1
            date = datetime.date.fromtimestamp((folder / file).stat().st_mtime).isoformat()
            if shard is None:
                records = _journal_records(folder, sha256)
            else:
                records = list(enumerate(iter_shard(folder, shard)))
            episodes = {}
            for entry, record in records:
                episode = _decode(record)
                # In a journal a later record of an episode takes the place of an earlier one.
                episodes[episode.trajectory_id] = entry, episode
            if shard is None:
                stale = ((dataset, name) for name in episodes)
                database.executemany("DELETE FROM episodes WHERE dataset = ? AND trajectory_id = ?", stale)
            rows, words = [], []
            for row, (entry, episode) in enumerate(episodes.values(), first):
                rows.append((row, number, entry, dataset, *_values(episode), date))
                words.append((row, _searched(episode)))
            marks = ", ".join("?" * (3 + len(COLUMNS)))
            database.executemany(f"INSERT INTO episodes VALUES ({marks})", rows)
            database.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)

    # --- Lists ---

    def count(self, query: Query) -> int:
        where, values = _where(query)
        return self._database.execute(f"SELECT count(*) FROM episodes {where}", values).fetchone()[0]

    def rows(self, query: Query, size: int) -> list[dict[str, Any]]:
        """A page of a list: the columns of each episode."""
        where, values = _where(query)
        column = query.sort.removeprefix("-")
        order = "id"
        if column in COLUMNS:
            order = f"{column} {'DESC' if query.sort.startswith('-') else 'ASC'}, id"
        # The rows of the page first: other columns are read only for these.
        page = f"SELECT id FROM episodes {where} ORDER BY {order} LIMIT ? OFFSET ?"
        return self._select(f"WHERE id IN ({page}) ORDER BY {order}", [*values, size, size * query.page])

    def values(self, column: str) -> list[tuple[Any, int]]:
        """The values of a column of `FILTERS`, the most frequent first, and their numbers."""
        assert column in FILTERS
        return self._database.execute(
            f"SELECT {column}, count(*) FROM episodes GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_VALUES}"
        ).fetchall()

    def sites(self, dataset: str) -> list[dict[str, Any]]:
        """The sites of a data set: episodes, and how many had each result; mean seconds, tokens, cost."""
        sql = (
            "SELECT site, result, count(*), sum(seconds), sum(tokens), sum(cost) FROM episodes "
            "WHERE dataset = ? GROUP BY site, result ORDER BY site"
        )
        sites: dict[str, dict[str, Any]] = {}
        for site, result, count, seconds, tokens, cost in self._database.execute(sql, (dataset,)):
            row = sites.setdefault(
                site, {"site": site, "episodes": 0, "results": {}, "seconds": 0.0, "tokens": 0, "cost": 0.0}
            )
            row["results"][result] = count
            for name, value in (
                ("episodes", count),
                ("seconds", seconds),
                ("tokens", tokens),
                ("cost", cost),
            ):
                row[name] += value
        return list(sites.values())

    def of_task(self, task_id: str) -> list[dict[str, Any]]:
        """All episodes of a task, by data set, actor and attempt."""
        return self._select("WHERE task_id = ? ORDER BY dataset, actor, attempt, id", [task_id])

    def dataset_of(self, trajectory_id: str) -> str:
        """The data set of an episode; "" if it is in none."""
        sql = "SELECT dataset FROM episodes WHERE trajectory_id = ? ORDER BY dataset LIMIT 1"
        found = self._database.execute(sql, (trajectory_id,)).fetchone()
        return found[0] if found else ""

    def _select(self, rest: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        names = ("id", *COLUMNS)
        rows = self._database.execute(f"SELECT {', '.join(names)} FROM episodes {rest}", values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def read(self, dataset: str, trajectory_id: str) -> Trajectory | None:
        """Reads an episode from its data set; None if it is not in the index.

        Raises:
          UserError: the data set is not there any more, or damaged.
        """
        sql = (
            "SELECT file, entry FROM episodes JOIN shards ON shards.id = shard "
            "WHERE trajectory_id = ? AND episodes.dataset = ?"
        )
        place = self._database.execute(sql, (trajectory_id, dataset)).fetchone()
        if place is None:
            return None
        folder = self._folders.datasets("trajectories")[dataset]
        if place[0] == EPISODES:
            return Trajectory.model_validate_json(read_record(folder / EPISODES, place[1]))
        shard = next((one for one in read_manifest(folder).shards if one.data == place[0]), None)
        if shard is None:
            raise UserError(f"{dataset}: the data set has changed: load the page again")
        return Trajectory.model_validate_json(read_rows(folder / shard.data, [place[1]])[0])


def _journal_parts(
    dataset: str, folder: Path, known: Iterable[tuple[str, str, str]]
) -> list[tuple[str, str, str]]:
    """The parts of a run's journal, by their first and last bytes: those that are known, and a new one."""
    parts = [key for key in known if key[:2] == (dataset, EPISODES)]
    start = max((int(key[2].partition("-")[2]) for key in parts), default=0)
    with open(folder / EPISODES, "rb") as file:
        file.seek(start)
        size = file.read(_PART_BYTES).rfind(b"\n") + 1  # The last line may be unfinished.
    return [*parts, (dataset, EPISODES, f"{start}-{start + size}")] if size else parts


def _journal_records(folder: Path, part: str) -> list[tuple[int, bytes]]:
    """The episodes in a part of a journal, with their places."""
    place, end = map(int, part.split("-"))
    records = []
    with open(folder / EPISODES, "rb") as file:
        file.seek(place)
        while place < end:
            record = read_record(folder / EPISODES, place)
            if not record.startswith((REFLECTION, SET_ASIDE)):
                records.append((place, record))
            place += len(file.readline())
    return records


def _values(episode: _Episode) -> Iterator[Any]:
    usages = [*(step.usage for step in episode.steps), episode.judge_usage]
    incidents = {one.kind for part in (episode, *episode.steps) for one in part.incidents}
    yield episode.trajectory_id
    yield episode.task.task_id
    yield episode.task.objective
    yield episode.task.site
    yield episode.task.category
    yield episode.actor
    yield episode.model
    yield episode.attempt
    yield episode.outcome
    yield result_of(episode.success, episode.judge, episode.outcome)
    yield episode.judge
    yield ", ".join(sorted(incidents))
    yield len(episode.steps)
    yield sum(usage.prompt_tokens + usage.response_tokens for usage in usages)
    yield sum(usage.cost for usage in usages)
    yield episode.seconds


def result_of(success: bool, judge: str, outcome: str) -> str:
    """What happened to an episode, in a word."""
    if success:
        return "solved"
    if outcome in ("blocked", "captcha", "unreachable", "crashed"):
        return outcome
    return "failed" if judge or outcome != "done" else "unjudged"


def _searched(episode: _Episode) -> str:
    replies = (step.response[:_SEARCHED] for step in episode.steps)
    return "\n".join((episode.task.objective, episode.final_text, *replies))


def _where(query: Query) -> tuple[str, list[Any]]:
    parts, values = [], []
    for column, value in query.filters.items():
        assert column in FILTERS
        parts.append(f"{column} = ?")
        values.append(value)
    for column, limits in query.ranges.items():
        assert column in RANGES
        for sign, limit in zip((">=", "<="), limits, strict=True):
            if limit:
                # A column of numbers compares text as the number that it is.
                parts.append(f"{column} {sign} ?")
                values.append(limit)
    words = ['"' + word.replace('"', '""') + '"' for word in query.words.split()]
    if words:
        parts.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(" ".join(words))
    return f"WHERE {' AND '.join(parts)}" if parts else "", values
