"""What version 1 wrote is read, and rewritten on demand."""

import json

import pytest

from collection.journals import load_histories
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.migrations import MANIFESTS, RECORDS, decode
from rmsweb_jax.records.schema import KINDS, SCHEMA_VERSION, AuditPair, Trajectory
from rmsweb_jax.records.shards import dataset_size, load_manifest, migrate_dataset, read_dataset
from tests.records.sets import samples, trajectories, version_1, write_version_1, written_by

RUNS = trajectories(5)
AUDIT = AuditPair(
    task_id="t",
    site="s",
    success_id="a",
    localization_id="b",
    category="c",
    label_confidence=1.0,
    label_source="rule",
    decision="kept",
)


@pytest.fixture
def old(tmp_path):
    write_version_1(tmp_path, RUNS, 2)
    return tmp_path


def test_every_version_has_a_way_to_the_next():
    assert set(RECORDS) == set(MANIFESTS) == set(range(1, SCHEMA_VERSION))


def test_a_data_set_of_version_1_is_read(old):
    manifest = load_manifest(old)
    assert (manifest.schema_version, manifest.finished, dataset_size(old)) == (1, True, 5)
    assert list(read_dataset(old, Trajectory)) == RUNS


def test_records_of_version_1():
    assert decode("trajectories", 1, version_1(RUNS[0])) == RUNS[0]
    sample = samples(RUNS)[1]
    assert decode("sft_samples", 1, version_1(sample)) == sample
    assert decode("audit_pairs", 1, version_1(AUDIT)) == AUDIT


def test_records_of_version_2():
    assert decode("trajectories", 2, written_by(2, RUNS[0])) == RUNS[0]


def test_records_of_version_3():
    judged = RUNS[0].model_copy(update={"judge": "j", "judge_text": "NOT SUCCESS"})
    assert decode("trajectories", 3, written_by(3, judged)) == judged
    assert decode("audit_pairs", 3, AUDIT.model_dump_json().encode()) == AUDIT


@pytest.mark.parametrize("version", [1, 2, 3, SCHEMA_VERSION])
@pytest.mark.parametrize("entry", [b"", b"[]", b"7", b"{}", b'{"trajectory_id": "a"', b'{"unknown": 1}'])
@pytest.mark.parametrize("kind", KINDS)
def test_other_bytes_are_a_value_error(kind, entry, version):
    with pytest.raises(ValueError):
        decode(kind, version, entry)


def test_migration_rewrites_the_shards(old):
    before = {path.name for path in old.glob("*.array_record")}
    manifest = migrate_dataset(old)
    assert manifest == load_manifest(old)
    assert (manifest.schema_version, manifest.provenance) == (SCHEMA_VERSION, {"actor": "teacher"})
    after = {path.name for path in old.glob("*.array_record")}
    assert after == {shard.file for shard in manifest.shards} and not after & before
    assert list(read_dataset(old, Trajectory)) == RUNS
    stamps = {path: path.stat().st_mtime_ns for path in old.iterdir()}
    assert migrate_dataset(old) == manifest
    assert {path: path.stat().st_mtime_ns for path in old.iterdir()} == stamps


def test_a_record_that_does_not_fit_stops_the_migration_and_leaves_the_data_set(old, tmp_path_factory):
    manifest = json.loads((old / "manifest.json").read_text())
    (old / "manifest.json").write_text(json.dumps(manifest | {"kind": "rl_prompts"}))
    names = sorted(path.name for path in old.iterdir())
    with pytest.raises(UserError, match=r"00000\.array_record: record 0 does not fit schema version 1: make"):
        migrate_dataset(old)
    assert sorted(path.name for path in old.iterdir()) == names


def test_journals_of_version_1_are_resumed(tmp_path):
    with Journal(tmp_path / "journal" / "000001.jsonl") as journal:
        for run in RUNS:
            journal.append(version_1(run))
    histories = load_histories(tmp_path)
    assert [histories[run.task.task_id].trajectories for run in RUNS] == [{1: run} for run in RUNS]


def test_a_manifest_that_lacks_fields_or_has_a_newer_version_is_one_line(old):
    path = old / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "made_of": "other fields"}))
    with pytest.raises(UserError, match=f"{SCHEMA_VERSION + 1} is newer than {SCHEMA_VERSION}: update"):
        load_manifest(old)
    for changes in (
        {"shards": None},
        {"shards": [7]},
        {"schema_version": 0},
        {"schema_version": "a"},
        {"kind": 1},
    ):
        path.write_text(json.dumps(manifest | changes))
        with pytest.raises(UserError, match="not a manifest"):
            load_manifest(old)
    path.write_text(json.dumps(manifest | {"kind": "cookies"}))
    with pytest.raises(UserError, match="unknown kind 'cookies'"):
        load_manifest(old)
