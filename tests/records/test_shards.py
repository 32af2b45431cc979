import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grain.python as grain
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import dataset_size, load_manifest, read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SCHEMA_VERSION, ImagePart, Message, RlPrompt, SftSample, TextPart
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import png

ROOT = Path(__file__).parents[2]


def sample(number: int) -> SftSample:
    message = Message(role="user", content=(TextPart(text=f"page {number} é"),))
    return SftSample(
        sample_id=str(number),
        task_id="t",
        site="s",
        kind="action",
        messages=(message,),
        response="r" * number,
    )


SAMPLES = [sample(number) for number in range(7)]


@pytest.fixture
def folder(tmp_path) -> Path:
    write_dataset(tmp_path, iter(SAMPLES), "sft_samples", {"source": "test"}, shard_size=3)
    return tmp_path


def damage(folder: Path, change) -> Path:
    path = folder / load_manifest(folder).shards[1].file
    path.write_bytes(change(path.read_bytes()))
    return path


def test_round_trip(folder):
    manifest = load_manifest(folder)
    assert [shard.records for shard in manifest.shards] == [3, 3, 1]
    assert manifest.records == dataset_size(folder) == 7
    assert manifest.provenance == {"source": "test"}
    assert list(read_dataset(folder, SftSample)) == SAMPLES
    assert not list(folder.glob(".*"))


def test_grain_reads_single_records(folder):
    source = grain.ArrayRecordDataSource([str(folder / shard.file) for shard in load_manifest(folder).shards])
    assert SftSample.model_validate_json(source[5]) == SAMPLES[5]


def test_writing_again_replaces(folder):
    write_dataset(folder, SAMPLES[:2], "sft_samples")
    assert list(read_dataset(folder, SftSample)) == SAMPLES[:2]
    assert len(list(folder.glob("*.array_record"))) == 1


def test_truncated_shard(folder):
    path = damage(folder, lambda data: data[: len(data) // 2])
    with pytest.raises(UserError, match=rf"{path.name}: shard has .* bytes.*make this data set again"):
        load_manifest(folder)


def test_changed_shard(folder):
    path = damage(folder, lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(UserError, match=f"{path.name}: shard has changed"):
        list(read_dataset(folder, SftSample))


def test_missing_shard(folder):
    (folder / load_manifest(folder).shards[2].file).unlink()
    with pytest.raises(UserError, match="shard missing: make this data set again"):
        read_dataset(folder, SftSample)


def test_a_damaged_or_missing_shard_is_written_again(folder):
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage(folder, lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:])
    (folder / load_manifest(folder).shards[2].file).unlink()
    write_dataset(folder, SAMPLES, "sft_samples", {"source": "test"}, shard_size=3)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_a_data_set_may_become_shorter_or_get_larger_shards(folder):
    for records, shard_size in ((SAMPLES[:4], 3), (SAMPLES[:4], 2), (SAMPLES, 5)):
        write_dataset(folder, records, "sft_samples", {"source": "test"}, shard_size)
        assert list(read_dataset(folder, SftSample)) == records
        assert len(list(folder.glob("*.array_record"))) == len(load_manifest(folder).shards)


def test_wrong_kind(folder):
    with pytest.raises(UserError, match="holds sft_samples, not RlPrompt records"):
        read_dataset(folder, RlPrompt)


def test_no_data_set(tmp_path):
    with pytest.raises(UserError, match="no finished data set here"):
        load_manifest(tmp_path / "nowhere")


def edit_manifest(folder: Path, **changes) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": ""} | changes))


def test_newer_schema(folder):
    edit_manifest(folder, schema_version=999)
    with pytest.raises(UserError, match=f"newer than {SCHEMA_VERSION}: update"):
        load_manifest(folder)


def test_broken_manifest(folder):
    (folder / "manifest.json").write_text('{"kind": "sft_samples"')
    with pytest.raises(UserError, match="not a manifest"):
        load_manifest(folder)


def test_empty(folder):
    edit_manifest(folder, records=0, shards=[])
    with pytest.raises(UserError, match="empty"):
        read_dataset(folder, SftSample)
    with pytest.raises(UserError, match="no records to write"):
        write_dataset(folder, [], "sft_samples")
    assert not (folder / "manifest.json").exists()


def test_screenshots_are_taken_along_from_where_the_records_come(tmp_path, capfd):
    source, target = tmp_path / "source", tmp_path / "target"
    records = [screenshot_sample(number, ImageStore(source)) for number in range(5)]
    write_dataset(source, records, "sft_samples")
    assert capfd.readouterr().err == ""
    write_dataset(target, read_dataset(source), "sft_samples")
    assert capfd.readouterr().err == (
        f"{target}: 5 screenshots that its records name are not there: give the data set that they come "
        "from, write_dataset(..., images=FOLDER)\n"
    )
    assert len(check_dataset(target).problems) == 5
    write_dataset(target, read_dataset(source), "sft_samples", shard_size=2, images=source)
    assert capfd.readouterr().err == "" and not check_dataset(target).problems
    next(source.glob("images/*/*.png")).unlink()
    with pytest.raises(UserError, match="missing screenshot"):
        write_dataset(tmp_path / "other", records, "sft_samples", images=source)


def screenshot_sample(number: int, images: ImageStore) -> SftSample:
    image = ImagePart(sha256=images.put(png(number)))
    return SftSample(
        sample_id=f"s{number}",
        task_id="t",
        site="s",
        kind="action",
        messages=(Message(role="user", content=(image,)),),
        response="",
    )


def test_record_of_another_type(tmp_path):
    with pytest.raises(TypeError, match="holds RlPrompt, not SftSample"):
        write_dataset(tmp_path, SAMPLES, "rl_prompts")
    assert not (tmp_path / "manifest.json").exists()


def test_write_that_fails_midway_leaves_no_data_set(folder):
    def records():
        yield from SAMPLES[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(folder, records(), "sft_samples", shard_size=3)
    with pytest.raises(UserError, match="no finished data set"):
        load_manifest(folder)


WRITER = """
import sys
from pathlib import Path
from tests.records.test_shards import SAMPLES
from rmsweb_jax.records.dataset import write_dataset

def records():
    yield from SAMPLES[:4]
    print("midway", flush=True)
    sys.stdin.read()

write_dataset(Path(sys.argv[1]), records(), "sft_samples", shard_size=3)
"""


def test_kill_midway_leaves_no_data_set_and_the_next_run_finishes(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"midway\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(tmp_path.glob("*.array_record"))
    with pytest.raises(UserError, match="no finished data set"):
        load_manifest(tmp_path)
    write_dataset(tmp_path, SAMPLES, "sft_samples")
    assert list(read_dataset(tmp_path, SftSample)) == SAMPLES


# The file size limit simulates a full disk: writes beyond it fail in the same way.
LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.records.test_shards import sample
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
noise = [sample(0).model_copy(update={"response": str(hash((i, "x"))) * 50}) for i in range(3000)]
try:
    write_dataset(Path(sys.argv[1]), noise, "sft_samples")
except UserError as error:
    print(error)
"""


def test_full_disk_is_one_line(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.count("\n") == 1
    assert "free disk space" in result.stdout
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_lacks_fields_or_has_another_version_is_one_line(folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "made_of": "other fields"}))
    with pytest.raises(UserError, match=f"{SCHEMA_VERSION + 1} is newer than {SCHEMA_VERSION}: update"):
        load_manifest(folder)
    path.write_text(json.dumps(manifest | {"schema_version": SCHEMA_VERSION - 1}))
    with pytest.raises(UserError, match="3 is older than 4: make this data set again"):
        load_manifest(folder)
    for changes in (
        {"shards": None},
        {"shards": [7]},
        {"schema_version": "a"},
        {"kind": 1},
    ):
        path.write_text(json.dumps(manifest | changes))
        with pytest.raises(UserError, match="not a manifest"):
            load_manifest(folder)
    path.write_text(json.dumps(manifest | {"kind": "cookies"}))
    with pytest.raises(UserError, match="unknown kind 'cookies'"):
        load_manifest(folder)
