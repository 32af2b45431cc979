"""Reading what earlier schema versions wrote.

Version 2 added `source` and `missing` to trajectories, and `finished` and `content` to manifests. Version 3
added `incidents` and `discarded` to steps, and `incidents`, `judge_text`, `judge_usage` and the outcome
`unreachable` to trajectories. Version 4 added `judge_score` and `retries` to trajectories.
A new version raises `SCHEMA_VERSION` and adds one function here; nothing else knows the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from rmsweb_jax.records.schema import KINDS, SCHEMA_VERSION, Record

Json = dict[str, Any]


def _record_from_1(kind: str, record: Json) -> Json:
    return {**record, "source": "", "missing": []} if kind == "trajectories" else record


def _record_from_2(kind: str, record: Json) -> Json:
    if kind != "trajectories":
        return record
    # A record that lacks even its steps is refused by the schema, which says so better.
    steps = [{**step, "incidents": [], "discarded": []} for step in record.get("steps", ())]
    return {**record, "steps": steps, "judge_text": "", "judge_usage": {}, "incidents": []}


def _record_from_3(kind: str, record: Json) -> Json:
    return {**record, "judge_score": None, "retries": 0} if kind == "trajectories" else record


def _manifest_from_1(manifest: Json) -> Json:
    shards = [{**shard, "content": ""} for shard in manifest["shards"]]
    # It was written when all shards were, so there are no unfinished ones.
    return {**manifest, "shards": shards, "finished": True}


# From each version to the next one.
RECORDS: dict[int, Callable[[str, Json], Json]] = {
    1: _record_from_1,
    2: _record_from_2,
    3: _record_from_3,
}
MANIFESTS: dict[int, Callable[[Json], Json]] = {
    1: _manifest_from_1,
    2: lambda manifest: manifest,
    3: lambda manifest: manifest,
}


def decode(kind: str, version: int, entry: bytes) -> Record:
    """A stored record, brought to the present schema.

    Args:
      kind: a key of `KINDS`.
      version: the schema version in the data set's manifest.

    Raises:
      ValueError: the bytes do not fit that version.
    """
    type_ = KINDS[kind]
    if version == SCHEMA_VERSION:
        return type_.model_validate_json(entry)
    record = orjson.loads(entry)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    for step in range(version, SCHEMA_VERSION):
        record = RECORDS[step](kind, record)
    return type_.model_validate_json(orjson.dumps(record))


def upgrade_manifest(manifest: Json, version: int) -> Json:
    """The manifest's fields in the present form; `schema_version`, that of its records, stays.

    Raises:
      KeyError, TypeError: it lacks fields of its version.
    """
    for step in range(version, SCHEMA_VERSION):
        manifest = MANIFESTS[step](manifest)
    return manifest
