"""Data sets in other formats hold the same records."""

import io
import json

import pyarrow.parquet as pq
import pytest
from PIL import Image

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import sample_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.parquet import export_parquet
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Trajectory
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.records.tools import export_jsonl, readable
from tests.records.sets import png, samples, trajectories, trajectory

RUNS = [*trajectories(5), trajectory(5, None)]
PROMPTS = [
    RlPrompt(
        prompt_id="p", task_id="t", site="s", category="c", messages=RUNS[0].steps[0].messages, target=""
    )
]
AUDITS = [
    AuditPair(
        task_id="t",
        site="s",
        success_id="a",
        localization_id="b",
        category="c",
        label_confidence=0.5,
        label_source="rule",
        decision="kept",
        scores=scores,
    )
    for scores in ({"state": 1.0, "total": 0.25}, {})
]
SETS = {"trajectories": RUNS, "sft_samples": samples(RUNS), "rl_prompts": PROMPTS, "audit_pairs": AUDITS}


def write(folder, kind="trajectories"):
    images = ImageStore(folder)
    for number in range(3):
        images.put(png(number))
    write_dataset(folder, SETS[kind], kind, {"actor": "teacher"}, shard_size=4)
    return folder


def from_parquet(value):
    """A row as JSON: what is null in it may be absent there, and lists of items may be dictionaries."""
    if isinstance(value, dict):
        return {key: from_parquet(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and set(value[0]) == {"key", "value"}:
            return {item["key"]: item["value"] for item in value}
        return [from_parquet(item) for item in value]
    return value


def from_record(value):
    if isinstance(value, dict):
        return {key: from_record(item) or [] for key, item in value.items() if item is not None}
    return [from_record(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", SETS)
def test_parquet_holds_every_kind_with_nested_columns(tmp_path, kind):
    output = tmp_path / "out.parquet"
    assert export_parquet(write(tmp_path, kind), output) == len(SETS[kind])
    table = pq.read_table(output)
    assert table.column_names == list(type(SETS[kind][0]).model_fields)
    for row, record in zip(table.to_pylist(), SETS[kind], strict=True):
        wanted = record.model_dump(mode="json")
        # Empty dictionaries and lists look the same in a row, as do 0 and False.
        assert json.dumps(from_record(from_parquet(row))) == json.dumps(from_record(wanted))
    metadata = table.schema.metadata
    assert (metadata[b"kind"], json.loads(metadata[b"provenance"])) == (kind.encode(), {"actor": "teacher"})


def test_parquet_takes_the_screenshots_along(tmp_path):
    output = tmp_path / "out.parquet"
    export_parquet(write(tmp_path), output, images=True)
    rows = pq.read_table(output).to_pylist()
    for row, run in zip(rows, RUNS, strict=True):
        assert [image["path"] for image in row["images"]] == [f"{name}.png" for name in record_images(run)]
    assert rows[5]["images"] == []
    assert Image.open(io.BytesIO(rows[2]["images"][0]["bytes"])).size == (16, 10)
    assert rows[2]["images"][0]["bytes"] == png(1)


def test_a_missing_screenshot_leaves_no_file_and_an_old_one_as_it_was(tmp_path):
    folder, output = write(tmp_path / "set"), tmp_path / "out.parquet"
    path = folder / read_manifest(folder).shards[0].images
    path.write_bytes(path.read_bytes()[:200])
    output.write_bytes(b"old")
    with pytest.raises(UserError, match="make this data set again"):
        export_parquet(folder, output, images=True)
    assert output.read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {"set", "out.parquet"}


def test_json_lines_are_the_records(tmp_path):
    write_dataset(tmp_path, RUNS, "trajectories", {}, shard_size=4)
    assert export_jsonl(tmp_path, tmp_path / "out.jsonl") == len(RUNS)
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert [Trajectory.model_validate_json(line) for line in lines] == RUNS


def test_samples_are_drawn_by_seed_from_all_shards_without_repetition(tmp_path):
    write(tmp_path)
    assert sample_dataset(tmp_path, 99, 0) == list(enumerate(RUNS))
    draws = [sample_dataset(tmp_path, 2, seed) for seed in range(30)]
    assert draws[3] == sample_dataset(tmp_path, 2, 3)
    assert {place for draw in draws for place, _ in draw} == set(range(6))
    assert all(record == RUNS[place] and len(draw) == 2 for draw in draws for place, record in draw)
    assert len(read_manifest(tmp_path).shards) == 2


def test_readable_records_show_their_screenshots():
    shown = readable(RUNS[0], lambda name: name[:4])
    step, name = shown["steps"][0], record_images(RUNS[0])[0]
    assert step["observation"]["screenshot"] == name[:4]
    assert step["messages"][0]["content"][1] == {"type": "image", "path": name[:4]}
    assert readable(RUNS[5], str)["steps"][0]["observation"]["screenshot"] is None
    assert shown["task"] == RUNS[0].task.model_dump(mode="json")
