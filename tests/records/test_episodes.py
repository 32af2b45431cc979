"""The episodes of a run that goes on: what readers get of them, and the data set at the end."""

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records import journal
from rmsweb_jax.records.dataset import read_dataset, read_manifest
from rmsweb_jax.records.episodes import EPISODES, REFLECTIONS, find_episodes, write_episodes
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Reflection
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.records.versions import keep_version, pinned_for_run
from tests.records.sets import png, trajectories

RUNS = trajectories(6)


def append(folder, *runs):
    with Journal(folder / EPISODES) as file:
        for number, run in enumerate(runs):
            ImageStore(folder).put(png(RUNS.index(run) // 2 if run in RUNS else number))
            file.append(run.model_dump_json().encode())


def reflect(folder, number):
    one = Reflection(task_id=RUNS[number].task.task_id, attempt=1, guidance=f"look at {number}")
    with Journal(folder / EPISODES) as file:
        file.append(b'{"reflection":%s,"usage":{}}' % one.model_dump_json().encode())
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


def test_a_line_that_is_written_while_it_is_read_is_read_whole(tmp_path, monkeypatch):
    """A reader meets the first half of a line, then the other one and a further line."""
    append(tmp_path, *RUNS[:3])
    path, starts = tmp_path / EPISODES, []
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)

    class Growing:
        def __init__(self):
            path.write_bytes(lines[0] + lines[1][:100])
            self._file = path.open("rb")

        def readline(self):
            line = self._file.readline()
            if line and not line.endswith(b"\n"):
                path.write_bytes(data)
            starts.append(line)
            return line

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

    monkeypatch.setattr(journal, "open", lambda *_: Growing(), raising=False)
    episodes, _ = find_episodes(path)
    assert [place for _, (_, place) in sorted(episodes.items())] == [
        0,
        len(lines[0]),
        len(lines[0] + lines[1]),
    ]
    assert not starts[1].endswith(b"\n"), "the line was caught in half"


def test_a_run_that_was_killed_in_its_final_write_is_read_from_its_journal(tmp_path):
    append(tmp_path, *RUNS)
    write_episodes(tmp_path / EPISODES, tmp_path, {})
    manifest = read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(
        manifest.model_copy(update={"finished": False, "shards": (), "records": 0}).encode()
    )
    assert list(read_dataset(keep_version(tmp_path))) == RUNS
    write_episodes(tmp_path / EPISODES, tmp_path, {})
    assert keep_version(tmp_path) == tmp_path and list(read_dataset(tmp_path)) == RUNS


def test_a_reader_keeps_what_there_was_when_it_began(tmp_path, capsys):
    folder, workdir = tmp_path / "run", tmp_path / "reader"
    workdir.mkdir()
    append(folder, *RUNS[:2])
    with open(folder / EPISODES, "ab") as file:
        file.write(b"999 unfinished")
    kept = pinned_for_run(folder, workdir)
    assert kept.parent == folder / "versions" and list(read_dataset(kept)) == RUNS[:2]
    assert check_dataset(kept).problems == [] and keep_version(folder) == kept
    assert f"{folder}: not ended, 2 episodes so far\n" in capsys.readouterr().err
    append(folder, *RUNS[2:])
    assert list(read_dataset(keep_version(folder))) == RUNS
    write_episodes(folder / EPISODES, folder, {})
    assert keep_version(folder) == folder and read_manifest(folder).finished
    assert pinned_for_run(folder, workdir) == kept and pinned_for_run(folder, tmp_path) == folder
    assert not list((folder / "versions").glob("*.tmp"))


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no finished data set here"):
        keep_version(tmp_path)
    Journal(tmp_path / EPISODES).close()
    with pytest.raises(UserError, match="no records to write"):
        keep_version(tmp_path)


@pytest.mark.parametrize("damage", ["first", "version"])
def test_damage_is_one_line(tmp_path, damage):
    append(tmp_path, *RUNS[:3])
    data = (tmp_path / EPISODES).read_bytes()
    if damage == "first":
        (tmp_path / EPISODES).write_bytes(b"x" + data)
    else:
        with Journal(tmp_path / EPISODES) as file:
            file.append(b'{"trajectory": 3}')
    with pytest.raises(
        UserError, match="line 1 is damaged" if damage == "first" else "written by another version"
    ):
        find_episodes(tmp_path / EPISODES)
