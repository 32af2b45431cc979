import json
import os
import sqlite3

import pytest

from collection.viewer.folders import Folders
from collection.viewer.index import COLUMNS, EpisodeIndex, Query
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Trajectory
from tests.trajectories import CLICK, DONE, TYPE, numbered, trajectory
from tests.viewer.made import make_runs
from tests.viewer.serving import Now


def open_index(tmp_path, *roots):
    index = EpisodeIndex(tmp_path / "index.sqlite", Now(roots))
    index.refresh()
    return index


def names(index, **query):
    return [row["trajectory_id"] for row in index.rows(Query(**query), 50)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    return open_index(folder, make_runs(folder / "runs"))


def test_lists_have_all_episodes_and_filters_choose(index):
    assert index.count(Query()) == 11
    assert dict(index.values("dataset")) == {"runs/collect": 5, "runs/evaluate/rl": 3, "runs/evaluate/sft": 3}
    assert names(index, filters={"outcome": "captcha"}) == ["miniwob/login-user/2#teacher-1"]
    assert names(index, filters={"incidents": "injection"}) == ["miniwob/hostile/1#teacher-1"]
    assert index.count(Query(filters={"result": "solved", "dataset": "runs/evaluate/rl"})) == 3


def test_every_column_sorts_and_pages_of_a_list_are_disjoint(index):
    for column in COLUMNS:
        up = [row[column] for row in index.rows(Query(sort=column), 50)]
        assert up == sorted(up) == [row[column] for row in index.rows(Query(sort=f"-{column}"), 50)][::-1]
    shown = [row["id"] for page in range(4) for row in index.rows(Query(page=page), 3)]
    assert len(set(shown)) == len(shown) == 11


def test_words_are_searched_in_task_reply_and_answer(index):
    assert names(index, words="gave up") == ["miniwob/login-user/1#teacher-1"]
    assert index.count(Query(words="input_text")) == 9
    assert index.count(Query(words='"no such" OR (nonsense*')) == 0


def test_a_running_fleet_is_followed_and_its_data_set_replaces_what_it_has_played(tmp_path):
    folder = tmp_path / "run/collect"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text("{}")
    with Journal(folder / EPISODES) as journal:
        index = open_index(tmp_path, tmp_path / "run")
        for attempt in (1, 2, 3):
            run = trajectory(*numbered(TYPE, DONE), attempt=attempt)
            journal.append(b'{"reflection":{}}')
            journal.append(run.model_dump_json().encode())
            with open(folder / EPISODES, "ab") as file:
                file.write(b"99 unfinished")
            index.refresh()
            os.truncate(folder / EPISODES, (folder / EPISODES).stat().st_size - 13)
            assert index.count(Query()) == attempt
        # With its verdict, and read from its new place.
        judged = run.model_copy(update={"judge": "j", "success": True})
        journal.append(judged.model_dump_json().encode())
        index.refresh()
        assert index.count(Query()) == 3 and index.read("run/collect", run.trajectory_id) == judged
    write_dataset(folder, [trajectory(*numbered(CLICK), attempt=9)], "trajectories", {"other": 1})
    index.refresh()
    assert names(index) == ["miniwob/login-user/1#teacher-9"]
    assert index.count(Query(words="input_text")) == 0 and index.count(Query(words="go")) == 1


def test_the_index_is_kept_and_other_versions_of_it_are_made_anew(tmp_path):
    index = open_index(tmp_path, make_runs(tmp_path / "runs"))
    stored = list(read_dataset(tmp_path / "runs/collect", Trajectory))
    assert index.read("runs/collect", stored[1].trajectory_id) == stored[1]
    assert index.read("runs/collect", "missing") is None
    again = EpisodeIndex(tmp_path / "index.sqlite", Folders([tmp_path / "runs"]))
    assert again.count(Query()) == 11
    with sqlite3.connect(tmp_path / "index.sqlite") as database:
        database.execute("PRAGMA user_version=99")
    assert EpisodeIndex(tmp_path / "index.sqlite", Folders([tmp_path / "runs"])).count(Query()) == 0


@pytest.mark.parametrize("damage", ["manifest", "shard", "schema", "gone"])
def test_what_cannot_be_read_leaves_the_rest(tmp_path, damage):
    root = make_runs(tmp_path / "runs")
    folder = root / "evaluate/sft"
    shard = next(folder.glob("data-*.array_record"))
    if damage == "manifest":
        (folder / "manifest.json").write_text('{"kind":')
    elif damage == "schema":
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 1}))
    elif damage == "shard":
        shard.write_bytes(shard.read_bytes()[:-9])
    else:
        shard.unlink()
    index = open_index(tmp_path, root)
    assert index.count(Query()) == 8
    if damage in ("manifest", "schema"):
        assert Folders([root]).all()["runs/evaluate/sft"].problem


def test_folders_are_named_once_and_must_exist(tmp_path):
    for name in ("a/runs", "b/runs"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UserError, match="has the same name"):
        Folders([tmp_path / "a/runs", tmp_path / "b/runs"])
    with pytest.raises(UserError, match="no such folder"):
        Folders([tmp_path / "c"])
    assert Folders([tmp_path / "a/runs"]).all() == {}


def test_a_run_that_has_just_begun_is_found(tmp_path):
    folders = Folders([tmp_path])
    assert folders.all() == {} and folders.find(f"{tmp_path.name}/run") is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run/progress.json").write_text("{}")
    assert folders.find(f"{tmp_path.name}/run") and not folders.find(f"{tmp_path.name}/run", "metrics.jsonl")
    (tmp_path / "run/metrics.jsonl").write_text("")
    assert folders.find(f"{tmp_path.name}/run", "metrics.jsonl")
