"""An SQLite index of all episodes below some folders, extended shard by shard, and as a running fleet plays.

Lists, filters, text search, and why each episode failed are answered from it; an episode itself is read from
its data set. The index can be deleted at any time: it is made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from collection.corpus.lean import Run, decode_run
from collection.corpus.steps import full_success
from collection.judges.base import fate
from collection.mining.balance import REASONS
from collection.mining.score import KEPT
from collection.viewer.folders import Folders
from collection.viewer.why import Mined, why
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import EPISODES, REFLECTION, SET_ASIDE, has_not_ended
from rmsweb_jax.records.journal import read_record
from rmsweb_jax.records.schema import AuditPair, Trajectory
from rmsweb_jax.records.shards import Shard, iter_shard, read_manifest, read_rows

# Changes with the columns or with what is searched: an index of another version is made anew.
_VERSION = 3
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
    "failure_mode": "TEXT",
    "bad_step": "INTEGER",
}
# Of `viewer.why.Why`: not in lists; `success` is a trajectory id, `pair` the data set of the mined pair.
_MORE = ("source", "what", "success", "pair")
# Fields of a mined pair.
_MINED = (
    *("task_id", "localization_id", "success_id", "category", "label_source"),
    *("localization_step", "success_step"),
)
FILTERS = (
    *("dataset", "site", "category", "actor", "attempt", "outcome", "result", "failure_mode", "judge"),
    "incidents",
)
RANGES = {"steps": "number", "tokens": "number", "cost": "number", "date": "date"}
# The words for a result, in lists and on the episode's page.
RESULTS = {"failed": "not solved", "no_reward": "not solved (ended before a reward)"}
_UNEXPLAINED = "source = '' AND result NOT IN ('solved', 'unjudged')"
# The largest part of a reply that can be searched, and values that a filter offers.
_SEARCHED, _MOST_VALUES = 4_000, 200
# The largest part of a journal that is read at a time.
_PART_BYTES = 1 << 26
# Runs that solved a task with which a failure may be compared; the first one that can be read is.
_MOST_SUCCESSES = 3
_TYPED = ", ".join(map(" ".join, COLUMNS.items()))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS shards (id INTEGER PRIMARY KEY, dataset TEXT, file TEXT, sha256 TEXT);
CREATE TABLE IF NOT EXISTS episodes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, shard INTEGER, entry INTEGER, {_TYPED},
  {", ".join(f"{name} TEXT DEFAULT ''" for name in _MORE)}
);
CREATE TABLE IF NOT EXISTS mined (
  shard INTEGER, dataset TEXT, task_id TEXT, localization_id TEXT, success_id TEXT, category TEXT,
  label_source TEXT, step INTEGER, success_step INTEGER
);
CREATE INDEX IF NOT EXISTS by_task ON episodes (task_id, dataset, actor, attempt);
CREATE INDEX IF NOT EXISTS by_shard ON episodes (shard);
CREATE INDEX IF NOT EXISTS by_trajectory ON episodes (trajectory_id, dataset);
CREATE INDEX IF NOT EXISTS unexplained ON episodes (id) WHERE {_UNEXPLAINED};
CREATE INDEX IF NOT EXISTS by_localization ON mined (localization_id);
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
    environment: str = "web"
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
    declared_success: bool | None = None
    final_text: str = ""
    reward: float | None = None
    success: bool = False
    judge: str = ""
    judge_text: str = ""
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

    def refresh(self, seconds: float = math.inf) -> bool:
        """Adds new shards, removes those that are gone, and explains failures that are not yet explained.

        Another thread's refresh is not waited for.

        Args:
          seconds: after which the rest of the failures is left to the next call.

        Returns:
          Whether there may be such a rest.
        """
        if not self._lock.acquire(blocking=False):
            return True
        try:
            self._refresh()
            return self._explain(time.monotonic() + seconds)
        finally:
            self._lock.release()

    def _refresh(self) -> None:
        database = self._database
        rows = database.execute("SELECT id, dataset, file, sha256 FROM shards").fetchall()
        known = {(dataset, file, sha256): number for number, dataset, file, sha256 in rows}
        found: dict[tuple[str, str, str], tuple[Path, Shard | None]] = {}
        episodes = self._folders.datasets("trajectories")
        for name, folder in (episodes | self._folders.datasets("audit_pairs")).items():
            # A data set that is damaged, or of another schema, keeps what was indexed of it.
            with contextlib.suppress(UserError, OSError):
                if has_not_ended(folder):
                    found |= dict.fromkeys(_journal_parts(name, folder, known), (folder, None))
                    continue
                shards = read_manifest(folder).shards
                found |= {(name, shard.data, shard.content): (folder, shard) for shard in shards}
        for key in known.keys() - found.keys():
            with database:
                self._explain_again(known[key])
                # Its words stay: ids are never used again, and words without an episode are in no list.
                for table, column in (("episodes", "shard"), ("mined", "shard"), ("shards", "id")):
                    database.execute(f"DELETE FROM {table} WHERE {column} = ?", (known[key],))
        for key in found.keys() - known.keys():
            try:
                self._add(*key, *found[key], key[0] in episodes)
            except (UserError, OSError, ValueError) as error:
                logging.warning("%s: not indexed: %s", key[0], error)

    def _add(
        self, dataset: str, file: str, sha256: str, folder: Path, shard: Shard | None, episodes: bool
    ) -> None:
        database = self._database
        with database:
            insert = "INSERT INTO shards (dataset, file, sha256) VALUES (?, ?, ?)"
            number = database.execute(insert, (dataset, file, sha256)).lastrowid
            assert number is not None
            if not episodes and shard is not None:
                audits = map(AuditPair.model_validate_json, iter_shard(folder, shard))
                # Those that passed all gates; the corpus need not have them.
                pairs = [
                    (number, dataset, *(getattr(audit, name) for name in _MINED))
                    for audit in audits
                    if audit.decision in (KEPT, *REASONS)
                ]
                database.executemany(f"INSERT INTO mined VALUES ({', '.join('?' * 9)})", pairs)
            else:
                date = datetime.date.fromtimestamp((folder / file).stat().st_mtime).isoformat()
                records = iter_shard(folder, shard) if shard else ()
                rows = enumerate(records) if shard else _journal_records(folder, sha256)
                self._add_episodes(number, dataset, date, rows, shard is None)
            self._explain_again(number)

    def _add_episodes(
        self, shard: int, dataset: str, date: str, records: Iterable[tuple[int, bytes]], again: bool
    ) -> None:
        """Adds episodes; `again`: they may take the place of earlier records of theirs."""
        database = self._database
        last = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'").fetchone()
        episodes = {}
        for entry, record in records:
            episode = _decode(record)
            episodes[episode.trajectory_id] = entry, episode
        if again:
            stale = ((dataset, name) for name in episodes)
            database.executemany("DELETE FROM episodes WHERE dataset = ? AND trajectory_id = ?", stale)
        rows, words = [], []
        for row, (entry, episode) in enumerate(episodes.values(), last[0] + 1 if last else 1):
            rows.append((row, shard, entry, dataset, *_values(episode), date, "", 0))
            replies = (step.response[:_SEARCHED] for step in episode.steps)
            words.append((row, "\n".join((episode.task.objective, episode.final_text, *replies))))
        names, marks = ", ".join(COLUMNS), ", ".join("?" * (3 + len(COLUMNS)))
        database.executemany(f"INSERT INTO episodes (id, shard, entry, {names}) VALUES ({marks})", rows)
        database.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)

    # --- Why episodes failed ---

    def _explain_again(self, shard: int) -> None:
        """Marks the failures of all tasks of a shard, since its runs or pairs may explain others."""
        tasks = " UNION ".join(
            f"SELECT task_id FROM {table} WHERE shard = ?" for table in ("episodes", "mined")
        )
        self._database.execute(
            f"UPDATE episodes SET source = '', failure_mode = '', bad_step = 0 WHERE task_id IN ({tasks})",
            (shard, shard),
        )

    def _explain(self, until: float) -> bool:
        database = self._database
        sql = f"SELECT id, dataset, trajectory_id, task_id FROM episodes WHERE {_UNEXPLAINED} ORDER BY id"
        for number, *place in database.execute(sql).fetchall():
            if time.monotonic() > until:
                return True
            # One that cannot be read is not explained; its page says why it cannot be read.
            values: tuple[Any, ...] = ("", 0, "unknown", "", "", "")
            with contextlib.suppress(UserError, OSError, ValueError, LookupError):
                values = self._explained(*place)
            names = ", ".join(f"{name} = ?" for name in ("failure_mode", "bad_step", *_MORE))
            with database:
                database.execute(f"UPDATE episodes SET {names} WHERE id = ?", (*values, number))
        return False

    def _explained(self, dataset: str, name: str, task: str) -> tuple[Any, ...]:
        failed = self._run(dataset, name)
        sql = (
            "SELECT dataset, success_id, category, label_source, step, success_step FROM mined "
            "WHERE localization_id = ? ORDER BY dataset LIMIT 1"
        )
        pair = self._database.execute(sql, (name,)).fetchone()
        if pair:
            places = "SELECT dataset, trajectory_id FROM episodes WHERE trajectory_id = ?"
            found = why(failed, self._first_run(places, (pair[1],)), Mined(*pair[2:]))
        else:
            # A short one, of the same data set where there is one.
            places = "SELECT dataset, trajectory_id FROM episodes WHERE task_id = ? AND result = 'solved' "
            places += f"ORDER BY dataset != ?, steps, trajectory_id LIMIT {_MOST_SUCCESSES}"
            found = why(failed, self._first_run(places, (task, dataset)))
        return found.mode, found.step, found.source, found.what, found.success, pair[0] if pair else ""

    def _first_run(self, places: str, values: Sequence[str]) -> Run | None:
        """The first run that can be read and that may be training data."""
        for place in self._database.execute(places, values).fetchall():
            with contextlib.suppress(UserError, OSError, ValueError, LookupError):
                if full_success(run := self._run(*place)):
                    return run
        return None

    def _run(self, dataset: str, name: str) -> Run:
        record = self._record(dataset, name)
        if record is None:
            raise LookupError(name)
        return decode_run(record)

    def failure_modes(self, datasets: Sequence[str]) -> dict[str, dict[str, int]]:
        """Failure mode -> data set -> number of its failures, the most frequent mode first."""
        sql = (
            "SELECT failure_mode, dataset, count(*) FROM episodes WHERE failure_mode != '' AND dataset IN "
            f"({', '.join('?' * len(datasets))}) GROUP BY 1, 2"
        )
        modes: dict[str, dict[str, int]] = {}
        for mode, dataset, count in self._database.execute(sql, datasets):
            modes.setdefault(mode, {})[dataset] = count
        return dict(sorted(modes.items(), key=lambda item: -sum(item[1].values())))

    # --- Lists ---

    def count(self, query: Query) -> int:
        where, values = _where(query)
        return self._database.execute(f"SELECT count(*) FROM episodes {where}", values).fetchone()[0]

    def rows(self, query: Query, size: int) -> list[dict[str, Any]]:
        """The episodes of a page of a list: column -> value, and `id`."""
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
        """The sites of a data set: episodes, results, and seconds, tokens and cost of all of them."""
        sql = (
            "SELECT site, result, count(*) AS episodes, sum(seconds) AS seconds, sum(tokens) AS tokens, "
            "sum(cost) AS cost FROM episodes WHERE dataset = ? GROUP BY site, result ORDER BY site"
        )
        sites: dict[str, dict[str, Any]] = {}
        for site, result, *sums in self._database.execute(sql, (dataset,)):
            row = sites.setdefault(site, {"site": site, "results": {}})
            row["results"][result] = sums[0]
            for name, value in zip(("episodes", "seconds", "tokens", "cost"), sums, strict=True):
                row[name] = row.get(name, 0) + value
        return list(sites.values())

    def of_task(self, task_id: str) -> list[dict[str, Any]]:
        """All episodes of a task, by data set, actor and attempt."""
        return self._select("WHERE task_id = ? ORDER BY dataset, actor, attempt, id", [task_id])

    def of_datasets(self, datasets: Sequence[str]) -> list[dict[str, Any]]:
        """All episodes of some data sets, by task, actor and attempt."""
        marks = ", ".join("?" * len(datasets))
        return self._select(f"WHERE dataset IN ({marks}) ORDER BY task_id, actor, attempt, id", datasets)

    def row(self, trajectory_id: str, dataset: str = "") -> dict[str, Any]:
        """The row of an episode, of any data set if none is given; empty if it is in none."""
        where = "WHERE trajectory_id = ? AND ? IN ('', dataset) ORDER BY dataset LIMIT 1"
        return next(iter(self._select(where, [trajectory_id, dataset])), {})

    def _select(self, rest: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        names = ("id", *COLUMNS, *_MORE)
        rows = self._database.execute(f"SELECT {', '.join(names)} FROM episodes {rest}", values)
        return [dict(zip(names, row, strict=True)) for row in rows]

    # --- Episodes ---

    def read(self, dataset: str, trajectory_id: str) -> Trajectory | None:
        """Reads an episode from its data set; None if it is not in the index.

        Raises:
          UserError: the data set is not there any more, or damaged.
        """
        record = self._record(dataset, trajectory_id)
        return Trajectory.model_validate_json(record) if record else None

    def _record(self, dataset: str, trajectory_id: str) -> bytes | None:
        sql = (
            "SELECT file, entry FROM episodes JOIN shards ON shards.id = shard "
            "WHERE trajectory_id = ? AND episodes.dataset = ?"
        )
        place = self._database.execute(sql, (trajectory_id, dataset)).fetchone()
        folder = self._folders.datasets("trajectories").get(dataset)
        if place is None or folder is None:
            return None
        file, entry = place
        if file == EPISODES:
            return read_record(folder / EPISODES, entry)
        # A shard's name has a hash of what is in it: one that was replaced is not there.
        if not (folder / file).exists():
            raise UserError(f"{dataset}: the data set has changed: load the page again")
        return read_rows(folder / file, [entry])[0]


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


def _values(episode: _Episode) -> tuple[Any, ...]:
    """The values of the columns after `dataset` and before `date`."""
    usages = [*(step.usage for step in episode.steps), episode.judge_usage]
    incidents = {one.kind for part in (episode, *episode.steps) for one in part.incidents}
    task, steps = episode.task, len(episode.steps)
    tokens = sum(usage.prompt_tokens + usage.response_tokens for usage in usages)
    return (
        *(episode.trajectory_id, task.task_id, task.objective, task.site, task.category),
        *(episode.actor, episode.model, episode.attempt, episode.outcome, result_of(episode)),
        *(episode.judge, ", ".join(sorted(incidents)), steps, tokens),
        *(sum(usage.cost for usage in usages), episode.seconds),
    )


def result_of(run: Trajectory | _Episode) -> str:
    """What happened to an episode, in a word: its fate, or `no_reward`.

    That is one that the agent ended on a page that pays by itself, before it paid.
    """
    found = fate(run)  # pyright: ignore[reportArgumentType]: it has the fields that are read.
    unpaid = run.reward is None and not run.judge and run.task.environment != "web"
    return "no_reward" if found == "failed" and unpaid and run.outcome == "done" else found


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
