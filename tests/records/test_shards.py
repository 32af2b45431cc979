import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grain.python as grain
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import dataset_size, read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import SCHEMA_VERSION, ImagePart, Message, RlPrompt, SftSample, TextPart
from rmsweb_jax.records.shards import read_manifest, read_rows
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import png, stable

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
    path = folder / read_manifest(folder).shards[1].data
    path.write_bytes(change(path.read_bytes()))
    return path


def test_round_trip(folder):
    manifest = read_manifest(folder)
    assert [shard.records for shard in manifest.shards] == [3, 3, 1]
    assert manifest.records == dataset_size(folder) == 7
    assert manifest.provenance == {"source": "test"}
    assert list(read_dataset(folder, SftSample)) == SAMPLES
    assert not list(folder.glob(".*"))


def test_grain_reads_single_records(folder):
    source = grain.ArrayRecordDataSource([str(folder / shard.data) for shard in read_manifest(folder).shards])
    assert SftSample.model_validate_json(source[5]) == SAMPLES[5]


def test_writing_again_replaces(folder):
    write_dataset(folder, SAMPLES[:2], "sft_samples")
    assert list(read_dataset(folder, SftSample)) == SAMPLES[:2]
    assert len(list(folder.glob("*.array_record"))) == 1


def test_a_truncated_shard_is_refused(folder):
    path = damage(folder, lambda data: data[: len(data) // 2])
    with pytest.raises(UserError, match=f"{path.name}: .*: make this data set again"):
        list(read_dataset(folder, SftSample))


def test_flipped_bytes_are_refused_or_change_nothing(folder):
    """ArrayRecord has checksums of its own; some bytes are padding."""
    path = folder / read_manifest(folder).shards[0].data
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 1 + len(whole) // 100):
        copy = path.with_name(f"data-{place:05d}.array_record")
        copy.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            rows = read_rows(copy, range(3))
        except UserError:
            refused += 1
        else:
            assert [SftSample.model_validate_json(row) for row in rows] == SAMPLES[:3]
    assert refused


def test_missing_shard(folder):
    (folder / read_manifest(folder).shards[2].data).unlink()
    with pytest.raises(UserError, match="shard missing: make this data set again"):
        list(read_dataset(folder, SftSample))


def test_a_damaged_or_missing_shard_is_written_again(folder):
    whole = {stable(path.name): path.read_bytes() for path in folder.glob("*.array_record")}
    damage(folder, lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:])
    (folder / read_manifest(folder).shards[2].data).unlink()
    write_dataset(folder, SAMPLES, "sft_samples", {"source": "test"}, shard_size=3)
    again = {stable(path.name): path.read_bytes() for path in folder.glob("*.array_record")}
    assert again == whole and list(read_dataset(folder)) == SAMPLES


def test_a_data_set_may_become_shorter_or_get_larger_shards(folder):
    for records, shard_size in ((SAMPLES[:4], 3), (SAMPLES[:4], 2), (SAMPLES, 5)):
        write_dataset(folder, records, "sft_samples", {"source": "test"}, shard_size)
        assert list(read_dataset(folder, SftSample)) == records
        assert len(list(folder.glob("*.array_record"))) == len(read_manifest(folder).shards)


def test_wrong_kind(folder):
    with pytest.raises(UserError, match="holds sft_samples, not RlPrompt records"):
        read_dataset(folder, RlPrompt)


def test_no_data_set(tmp_path):
    with pytest.raises(UserError, match="no finished data set here"):
        read_manifest(tmp_path / "nowhere")


def edit_manifest(folder: Path, **changes) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_newer_schema(folder):
    edit_manifest(folder, schema_version=999)
    with pytest.raises(UserError, match=f"newer than {SCHEMA_VERSION}: update"):
        read_manifest(folder)


def test_broken_manifest(folder):
    (folder / "manifest.json").write_text('{"kind": "sft_samples"')
    with pytest.raises(UserError, match="not a manifest"):
        read_manifest(folder)


def test_empty(folder):
    with pytest.raises(UserError, match="no records to write"):
        write_dataset(folder, [], "sft_samples")
    assert not list(folder.iterdir())


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
    lost = screenshot_sample(9, ImageStore(tmp_path))
    with pytest.raises(UserError, match="missing screenshot"):
        write_dataset(tmp_path / "other", [lost], "sft_samples", images=source)


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


def test_a_write_that_fails_midway_leaves_what_was_there(folder):
    def records():
        yield from SAMPLES[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(folder, records(), "sft_samples", shard_size=3)
    assert list(read_dataset(folder)) == SAMPLES


def test_screenshots_are_in_the_shards_and_a_rewritten_folder_keeps_them(tmp_path):
    folder = tmp_path / "run"
    records = [screenshot_sample(number // 2, ImageStore(folder)) for number in range(6)]
    store = ImageStore(folder)  # Opened before they are moved.
    names = [record_images(record)[0] for record in records]
    write_dataset(folder, records, "sft_samples", {"n": 1}, shard_size=4)
    assert not (folder / "images").exists()
    firsts = [read_rows(folder / shard.images, [1])[0] for shard in read_manifest(folder).shards]
    assert firsts == [png(0), png(2)]
    # A run that goes on writes its data set again, of old screenshots and new ones.
    records.append(screenshot_sample(3, store))
    write_dataset(folder, records, "sft_samples", {"n": 2}, shard_size=2)
    assert [store.get(name) for name in names] == [png(number // 2) for number in range(6)]
    assert check_dataset(folder).images == 4 and not check_dataset(folder).problems


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
        read_manifest(tmp_path)
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
        read_manifest(folder)
    path.write_text(json.dumps(manifest | {"schema_version": SCHEMA_VERSION - 1}))
    with pytest.raises(UserError, match=r"4 is older than 5: python -m experiments.records upgrade"):
        read_manifest(folder)
    for changes in (
        {"shards": None},
        {"shards": [7]},
        {"schema_version": "a"},
        {"kind": 1},
    ):
        path.write_text(json.dumps(manifest | changes))
        with pytest.raises(UserError, match="not a manifest"):
            read_manifest(folder)
    path.write_text(json.dumps(manifest | {"kind": "cookies"}))
    with pytest.raises(UserError, match="unknown kind 'cookies'"):
        read_manifest(folder)
