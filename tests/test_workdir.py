import json

import pytest
from ml_collections import ConfigDict

from rmsweb_jax.data.encoding import SampleSize, stored_sizes
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, safe
from rmsweb_jax.workdir import check_config, lock_workdir, open_workdir, run_stage


def test_second_run_in_a_workdir_is_refused(tmp_path):
    with lock_workdir(tmp_path), pytest.raises(UserError, match="in use"), lock_workdir(tmp_path):
        pass
    with lock_workdir(tmp_path):
        pass


def test_config_check_compares_nested_keys(tmp_path):
    check_config(ConfigDict({"a": {"b": 1}, "c": ()}), tmp_path, frozenset())
    check_config(ConfigDict({"a": {"b": 1}, "c": ()}), tmp_path, frozenset())
    with pytest.raises(UserError, match=r"a\.b"):
        check_config(ConfigDict({"a": {"b": 2}, "c": ()}), tmp_path, frozenset())


class StageSettings(Settings):
    seed: int = 0
    workers: int = safe(1)


def test_a_stage_runs_once_with_one_seed_and_any_number_of_workers(tmp_path):
    calls = []

    def stage(settings, workdir):
        calls.append(settings)
        with pytest.raises(UserError, match="in use"), lock_workdir(workdir):
            pass
        if settings.workers == 1:
            (workdir / "first").write_text("a result")
            raise UserError("stopped")
        (workdir / "report.json").write_text('{"done": true}')
        return {"done": True}

    run = tmp_path / "new" / "run"
    with pytest.raises(UserError, match="stopped"):
        run_stage(stage, StageSettings(seed=3), run)
    assert json.loads((run / "config.json").read_text()) == {"seed": 3, "workers": 1}
    for _ in range(2):
        assert run_stage(stage, StageSettings(seed=3, workers=2), str(run)) == {"done": True}
    assert len(calls) == 2
    with pytest.raises(UserError, match=r"begun with other settings \(seed; seed was 3, is 4\)"):
        run_stage(stage, StageSettings(seed=4), run)


def test_a_workdir_below_a_folder_of_any_name_keeps_the_settings_of_its_results(tmp_path):
    def stage(settings, workdir):
        (workdir / "frozen").mkdir(exist_ok=True)
        (workdir / "frozen" / "manifest.json").write_text("of a source")
        if settings.seed:
            (workdir / "first").write_text("a result")
        raise UserError("stopped")

    run = tmp_path / "frozen" / "run"
    for seed in (0, 3):
        with pytest.raises(UserError, match="stopped"):
            run_stage(stage, StageSettings(seed=seed), run)
    assert json.loads((run / "config.json").read_text())["seed"] == 3


def test_settings_may_be_corrected_until_there_is_a_result(tmp_path):
    def stage(settings, workdir):
        (workdir / "journal").mkdir(exist_ok=True)
        (workdir / "journal" / "000001.jsonl").touch()
        (workdir / "log.txt").write_text("a line")
        if settings.seed > 8:
            (workdir / "journal" / "000001.jsonl").write_text("a record")
        if settings.seed != 3:
            raise UserError(f"seed {settings.seed} is not 3")
        return {}

    for seed in (7, 8, 9):
        with pytest.raises(UserError, match=f"seed {seed} is not 3"):
            run_stage(stage, StageSettings(seed=seed), tmp_path)
    # The third has left a record, and its settings with it.
    with pytest.raises(UserError, match="begun with other settings"):
        run_stage(stage, StageSettings(seed=3), tmp_path)


def test_settings_may_be_corrected_after_samples_were_counted(tmp_path):
    def stage(settings, workdir):
        stored_sizes(workdir / "sizes-0123456789abcdef.json", 1, lambda number: SampleSize("a", 2, 1, ()))
        if settings.seed != 3:
            raise UserError(f"seed {settings.seed} is not 3")
        return {}

    with pytest.raises(UserError, match="seed 7 is not 3"):
        run_stage(stage, StageSettings(seed=7), tmp_path)
    assert run_stage(stage, StageSettings(seed=3), tmp_path) == {}


def test_the_library_takes_over_a_scripts_open_run(tmp_path):
    with open_workdir(tmp_path, ConfigDict({"seed": 3})):
        assert run_stage(
            lambda settings, workdir: {"seed": settings.seed}, StageSettings(seed=4), tmp_path
        ) == {"seed": 4}
    with lock_workdir(tmp_path):
        pass


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file is in the way; give the name of a folder"):
        run_stage(lambda settings, workdir: {}, StageSettings(), tmp_path / "file")
