"""Confirmed data survives the loss of everything that was not synced to disk."""

import shutil

import pytest

from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import SftSample, Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.records.crash import Point, Stopped
from tests.records.power import PowerCut
from tests.records.sets import png, samples, trajectories

RUNS = trajectories(5)
SAMPLES = samples(RUNS)
OTHERS = [SAMPLES[0], *(one.model_copy(update={"response": "again"}) for one in SAMPLES[1:])]


def cuts(root, prepare, action):
    """Folders as a power cut before each operation of `action` leaves them; the last: after all of it."""
    number, over = 0, False
    while not over:
        folder, after = root / "before", root / "after"
        for path in (folder, after):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        prepare(folder)
        disk = PowerCut(folder, Point(number))
        over = True
        with disk.watched():
            try:
                action(folder)
            except Stopped:
                over = False
        disk.restore(after)
        yield after, over
        number += 1
    assert number > 4


def publish(folder, records=SAMPLES, origin="collect"):
    # As a run does, which puts its screenshots into the folder.
    for number in range(3):
        ImageStore(folder / "corpus").put(png(number))
    write_dataset(folder / "corpus", records, "sft_samples", {"from": origin}, shard_size=2)


@pytest.mark.parametrize(
    ("before", "origin"),
    [(None, ""), (OTHERS, "collect"), (OTHERS, "elsewhere")],
    ids=["first", "replaced", "replaced-from-another"],
)
def test_a_finished_data_set_and_its_screenshots_are_whole(memory_path, before, origin):
    def prepare(folder):
        if before:
            publish(folder, before, origin)

    for folder, over in cuts(memory_path, prepare, publish):
        corpus = folder / "corpus"
        if before or over or (corpus / "manifest.json").exists():
            assert list(read_dataset(corpus, SftSample)) in ((SAMPLES,) if over else (SAMPLES, before))
            assert check_dataset(corpus).problems == []
        publish(folder)
        assert list(read_dataset(corpus, SftSample)) == SAMPLES
        assert check_dataset(corpus).problems == []


def test_a_confirmed_record_and_its_screenshot_are_there(memory_path):
    confirmed = []

    def collect(folder):
        images = ImageStore(folder / "collect")
        with Journal(folder / "collect" / "journal" / "000001.jsonl") as journal:
            for number, run in enumerate(RUNS):
                images.put(png(number // 2))
                journal.append(run.model_dump_json().encode())
                confirmed.append(run)

    for folder, over in cuts(memory_path, lambda folder: confirmed.clear(), collect):
        lines = read_journal(folder / "collect" / "journal" / "000001.jsonl")
        kept = [Trajectory.model_validate_json(line) for line in lines]
        assert kept == confirmed and (not over or kept == RUNS)
        for run in kept:
            for name in record_images(run):
                ImageStore(folder / "collect").get(name)


def test_a_small_file_is_old_or_new(memory_path):
    for folder, over in cuts(
        memory_path,
        lambda folder: (folder / "state").write_bytes(b"old"),
        lambda folder: write_atomic(folder / "state", b"new"),
    ):
        assert (folder / "state").read_bytes() in ((b"new",) if over else (b"old", b"new"))
