"""The stage over real data set folders: its records, its report, and a run that was killed."""

import hashlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from collection.config import BuildSftSettings
from configs.build_sft import get_config
from experiments.build_sft import main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Element, Reflection, SftSample, Window
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.settings import from_config
from tests.records.sets import stable
from tests.trajectories import CLICK, DONE, TYPE, numbered, trajectory

ROOT = Path(__file__).parent.parent.parent
# More samples than a shard holds, so that a killed run has finished one.
LONG = 400
SHARD = 1024
KILLED_AT = 1100


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def collected(folder: Path, *runs) -> str:
    ImageStore(folder).put(png())
    write_dataset(folder, runs, "trajectories")
    return str(folder)


def good(seed=1, **changes):
    shot = hashlib.sha256(png()).hexdigest()
    task = f"miniwob/login-user/{seed}"
    return trajectory(*numbered(TYPE, CLICK, DONE, screenshot=shot), task_id=task, **changes)


def build(workdir: Path, sources: str, variant="demo") -> dict:
    config = get_config(variant)
    config.trajectories = sources
    workdir.mkdir(exist_ok=True)
    main(from_config(BuildSftSettings, config), workdir)
    return json.loads((workdir / "report.json").read_text())


def content(folder: Path) -> dict[str, bytes]:
    """Contents of the folder without seconds and progress of the run."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    kept = {stable(name): path.read_bytes() for name, path in files.items() if name != "progress.json"}
    report, manifest = json.loads(kept["report.json"]), json.loads(stable(kept["manifest.json"].decode()))
    del report["seconds"]
    changed = {"report.json": report, "manifest.json": manifest}
    return kept | {name: json.dumps(content).encode() for name, content in changed.items()}


def test_samples_screenshots_counts_and_drop_list(tmp_path):
    source = collected(tmp_path / "collect", good(), good(success=False, attempt=2))
    report = build(tmp_path / "sft_corpus", source)
    samples = list(read_dataset(tmp_path / "sft_corpus", SftSample))
    assert [sample.sample_id for sample in samples] == [
        f"miniwob/login-user/1#teacher-1/{n}" for n in (1, 2, 3)
    ]
    store = ImageStore(tmp_path / "sft_corpus")
    assert {store.get(name) for name in record_images(samples[0])} == {png()}
    assert (report["trajectories"], report["kept"], report["dropped"]["not_successful"]) == (2, 1, 1)
    assert report["samples"] == {"action": 3, "text": 0}
    assert report["sites"] == {"login-user": 3}
    assert report["effective_steps"] == {"3": 1}
    assert "lowered from the paper's 3 to 1" in report["notes"][0]
    drops = [json.loads(line) for line in (tmp_path / "sft_corpus/drops.jsonl").read_text().splitlines()]
    assert drops == [
        {
            "level": "trajectory",
            "id": "miniwob/login-user/1#teacher-2",
            "task_id": "miniwob/login-user/1",
            "site": "login-user",
            "reason": "not_successful",
            "detail": "done",
        }
    ]


def test_several_folders_become_one_set(tmp_path):
    first, second = collected(tmp_path / "a", good(1)), collected(tmp_path / "b", good(2), good(1))
    report = build(tmp_path / "sft_corpus", f"{first}, {second}")
    assert (report["kept"], report["dropped"]["duplicate"]) == (2, 1)
    provenance = read_manifest(tmp_path / "sft_corpus").provenance
    assert provenance["trajectories"] == [first, second]
    assert provenance["manifests_sha256"] == [
        hashlib.sha256((Path(folder) / "manifest.json").read_bytes()).hexdigest()
        for folder in (first, second)
    ]


def test_an_empty_corpus_is_a_user_error_that_leaves_the_names(tmp_path):
    source = collected(tmp_path / "collect", trajectory(*numbered(CLICK, DONE)))
    workdir = tmp_path / "sft_corpus"
    with pytest.raises(UserError, match=r"no trajectory passed the quality filter \(too_short 1; .*drops"):
        build(workdir, source, "paper")
    assert not (workdir / "report.json").exists()
    assert json.loads((workdir / "drops.jsonl").read_text())["detail"] == "2 effective steps"


def test_points_come_with_the_window_and_the_boxes_around_them(tmp_path):
    """Of runs with elements; the prompts are what an agent of that style would have been shown."""
    point = {"click_coordinates": {"x": 2, "y": 1}}
    shot = hashlib.sha256(png()).hexdigest()
    steps = list(numbered(point, DONE, screenshot=shot, result_text="Clicked (2, 1)"))
    boxes = ((1, 0, 3, 2), (0, 0, 1, 1), (0, 0, 4, 3))
    elements = tuple(
        Element(index=number, tag="button", text="Go", box=box) for number, box in enumerate(boxes, 1)
    )
    page = steps[0].observation.model_copy(update={"elements": elements})
    steps[0] = steps[0].model_copy(update={"observation": page})
    source = collected(tmp_path / "collect", trajectory(*steps))
    build(tmp_path / "sft_corpus", source, "screenshot")
    clicked, done = read_dataset(tmp_path / "sft_corpus", SftSample)
    assert clicked.window == Window(width=4, height=3, boxes=(boxes[0], boxes[2])) and done.window is None
    assert "Result: Clicked (2, 1)" in done.messages[1].text
    assert (
        "Screenshot: 4 by 3 pixels" in clicked.messages[1].text and "page 1" not in clicked.messages[1].text
    )


def test_conversations_join_trajectories(tmp_path):
    (tmp_path / "shot.png").write_bytes(png())
    chat = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A dot."}]
    (tmp_path / "mine.jsonl").write_text(json.dumps({"messages": chat, "images": ["shot.png"]}))
    config = get_config("demo")
    config.chats = str(tmp_path / "mine.jsonl")
    config.trajectories = collected(tmp_path / "collect", good())
    (tmp_path / "sft_corpus").mkdir()
    main(from_config(BuildSftSettings, config), tmp_path / "sft_corpus")
    samples = list(read_dataset(tmp_path / "sft_corpus", SftSample))
    assert [sample.kind for sample in samples] == ["action"] * 3 + ["text"]
    assert json.loads((tmp_path / "sft_corpus/report.json").read_text())["sites"]["mine"] == 1
    assert not check_dataset(tmp_path / "sft_corpus").problems


@pytest.mark.parametrize("name", ["missing.jsonl", "report.txt"])
def test_a_file_of_no_conversations_is_refused_before_trajectories_are_read(tmp_path, name):
    config = get_config("demo")
    config.chats, config.trajectories = str(tmp_path / name), collected(tmp_path / "collect", good())
    (tmp_path / "sft_corpus").mkdir()
    with pytest.raises(UserError, match=rf"^[^\n]*{name}: (cannot be read|give a file)[^\n]*$"):
        main(from_config(BuildSftSettings, config), tmp_path / "sft_corpus")
    assert not (tmp_path / "sft_corpus/drops.jsonl").exists()


def test_no_folder_given_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"config.trajectories is empty: give --config.trajectories=DIR"):
        build(tmp_path / "sft_corpus", " , ")


KILL = f"""
import os, signal, sys
from pathlib import Path
import experiments.build_sft as stage
from configs.build_sft import get_config
from collection.config import BuildSftSettings
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.settings import from_config

read = []
get = ImageStore.get
def get_or_die(self, sha256):
    read.append(sha256)
    # Each is read to check it; then once a shard.
    if len(read) == {KILLED_AT}:
        os.kill(os.getpid(), signal.SIGKILL)
    return get(self, sha256)
ImageStore.get = get_or_die
config = get_config("demo")
config.trajectories = sys.argv[1]
stage.main(from_config(BuildSftSettings, config), Path(sys.argv[2]))
"""


def test_a_killed_build_run_again_ends_with_the_unbroken_data_set(tmp_path):
    runs = [good(seed) for seed in range(LONG)]
    source = collected(
        tmp_path / "collect", *runs, good(0), trajectory(*numbered(CLICK, DONE), success=False)
    )
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    report = build(unbroken, source)
    assert report["samples"]["action"] == 3 * LONG > KILLED_AT > SHARD
    killed.mkdir()
    process = subprocess.run([sys.executable, "-c", KILL, source, str(killed)], cwd=ROOT)
    assert process.returncode == -signal.SIGKILL
    (shard, *_) = sorted(killed.glob("data-00000-*.array_record"))
    first = shard.stat()
    assert not (killed / "report.json").exists()
    with pytest.raises(UserError):
        read_manifest(killed)
    build(killed, source)
    assert shard.stat().st_ino == first.st_ino, "the finished shard was written again"
    assert content(killed) == content(unbroken)


def test_a_build_killed_before_its_report_only_reports(tmp_path):
    source = collected(tmp_path / "collect", good(), good(2, success=False))
    workdir = tmp_path / "sft_corpus"
    before = build(workdir, source)
    (shard,) = workdir.glob("data-*.array_record")
    inode = shard.stat().st_ino
    (workdir / "report.json").unlink()
    (workdir / "drops.jsonl").write_text("torn")
    again = build(workdir, source)
    assert again | {"seconds": 0} == before | {"seconds": 0}
    assert shard.stat().st_ino == inode
    assert len((workdir / "drops.jsonl").read_text().splitlines()) == 1


def test_a_finished_build_returns_at_once(tmp_path):
    source = collected(tmp_path / "collect", good())
    workdir = tmp_path / "sft_corpus"
    build(workdir, source)
    stamp = (workdir / "manifest.json").stat().st_mtime_ns
    (tmp_path / "collect/manifest.json").unlink()
    build(workdir, source)
    assert (workdir / "manifest.json").stat().st_mtime_ns == stamp


def test_a_collection_that_goes_on_is_read_as_it_was_when_the_run_began(tmp_path, capsys):
    source, workdir = tmp_path / "collect", tmp_path / "sft_corpus"
    ImageStore(source).put(png())
    guidance = Reflection(task_id="miniwob/login-user/1", attempt=1, guidance="look twice at all the fields")
    with Journal(source / EPISODES) as journal:
        journal.append(good().model_dump_json().encode())
        journal.append(b'{"reflection":%s}' % guidance.model_dump_json().encode())
    report = build(workdir, str(source))
    assert report["trajectories"] == 1
    assert read_manifest(workdir).provenance["trajectories"] == [str(source)]
    assert f"{source}: not ended, 1 episodes so far\n" in capsys.readouterr().err
    with Journal(source / EPISODES) as journal:
        journal.append(good(2).model_dump_json().encode())
    (workdir / "report.json").unlink()
    assert build(workdir, str(source))["trajectories"] == 1, "it goes on with what there was at its beginning"
    assert build(tmp_path / "later", str(source))["trajectories"] == 2
