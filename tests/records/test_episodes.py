"""The episodes of a run that goes on: what readers get of them, and the data set at the end."""

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import address, freeze
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import EPISODES, REFLECTIONS, find_episodes, has_not_ended, write_episodes
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Reflection
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import png, trajectories

RUNS = trajectories(6)


def append(folder, *runs):
    with Journal(folder / EPISODES) as journal:
        for number, run in enumerate(runs):
            ImageStore(folder).put(png(RUNS.index(run) // 2 if run in RUNS else number))
            journal.append(run.model_dump_json().encode())


def reflect(folder, number):
    one = Reflection(task_id=RUNS[number].task.task_id, attempt=1, guidance=f"look at {number}")
    with Journal(folder / EPISODES) as journal:
        journal.append(b'{"reflection":%s,"usage":{}}' % one.model_dump_json().encode())
    return one


def test_the_data_set_is_sorted_and_has_the_newest_record_of_each_episode(tmp_path):
    judged = RUNS[0].model_copy(update={"judge": "j", "judge_text": "SUCCESS"})
    append(tmp_path, *RUNS[::-1])
    said = [reflect(tmp_path, number) for number in (3, 1)][::-1]
    append(tmp_path, judged)
    manifest = write_episodes(tmp_path / EPISODES, tmp_path, {"seed": 1})
    assert list(read_dataset(tmp_path)) == [judged, *RUNS[1:]] and manifest.provenance["reflections"] == 2
    lines = (tmp_path / REFLECTIONS).read_text().splitlines()
    assert [Reflection.model_validate_json(line) for line in lines] == said
    # Of some tasks only.
    write_episodes(tmp_path / EPISODES, tmp_path, {}, {RUNS[1].task.task_id})
    assert (
        list(read_dataset(tmp_path)) == [RUNS[1]]
        and len((tmp_path / REFLECTIONS).read_text().splitlines()) == 1
    )


def test_a_reader_keeps_what_there_was_when_it_began(tmp_path, capsys):
    folder, workdir = tmp_path / "run", tmp_path / "reader"
    workdir.mkdir()
    append(folder, *RUNS[:2])
    with open(folder / EPISODES, "ab") as file:
        file.write(b"999 unfinished")
    kept = freeze(folder, workdir)
    assert kept.parent == workdir / "frozen" and list(read_dataset(kept)) == RUNS[:2]
    assert check_dataset(kept).problems == [] and address(kept) == str(folder)
    assert f"{folder}: not ended, 2 episodes so far\n" in capsys.readouterr().err
    append(folder, *RUNS[2:])
    write_episodes(folder / EPISODES, folder, {})
    assert freeze(folder, workdir) == kept and list(read_dataset(kept)) == RUNS[:2]
    assert check_dataset(kept).problems == []
    assert freeze(folder, tmp_path) == folder


def test_a_run_that_was_killed_in_its_final_write_is_read_from_its_journal(tmp_path):
    append(tmp_path, *RUNS[:2])
    write_episodes(tmp_path / EPISODES, tmp_path, {})
    assert not has_not_ended(tmp_path)
    append(tmp_path, *RUNS[2:])
    (tmp_path / ".unfinished.json").write_text("{}")
    assert list(read_dataset(freeze(tmp_path, tmp_path / "reader"))) == RUNS
    write_episodes(tmp_path / EPISODES, tmp_path, {})
    assert not has_not_ended(tmp_path)


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no finished data set here"):
        freeze(tmp_path, tmp_path / "reader")
    Journal(tmp_path / EPISODES).close()
    with pytest.raises(UserError, match="no records to write"):
        freeze(tmp_path, tmp_path / "reader")


def test_another_version_is_one_line(tmp_path):
    append(tmp_path, *RUNS[:3])
    with Journal(tmp_path / EPISODES) as journal:
        journal.append(b'{"trajectory": 3}')
    with pytest.raises(UserError, match="written by another version"):
        find_episodes(tmp_path / EPISODES)


def test_tasks_that_a_data_set_leaves_out_keep_their_screenshots(tmp_path):
    append(tmp_path, *RUNS)
    first, last = ({run.task.task_id for run in some} for some in (RUNS[:3], RUNS[3:]))
    for tasks in (None, first, last, first):
        write_episodes(tmp_path / EPISODES, tmp_path, {}, tasks)
        assert check_dataset(tmp_path).problems == []
    with pytest.raises(UserError, match="no records to write"):
        write_episodes(tmp_path / EPISODES, tmp_path, {}, set())
    write_episodes(tmp_path / EPISODES, tmp_path, {})
    assert list(read_dataset(tmp_path)) == RUNS and check_dataset(tmp_path).problems == []
    assert not (tmp_path / "images").exists()
