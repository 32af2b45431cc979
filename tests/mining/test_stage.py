"""The whole mining stage: from pools of runs to prompts, an audit and a report."""

import json
from pathlib import Path

import pytest

from collection.mining.config import VerifySettings
from collection.mining.mine import explain_task, mine, pool_folders
from collection.mining.replay import JOURNAL, read_decisions, verify_mined
from collection.mining.score import GATES
from collection.mining.taxonomy import TAXONOMY
from configs import verify_mined as verify_config
from configs.mine import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import AuditPair, RlPrompt
from rmsweb_jax.settings import from_config
from tests.mining.login_runs import OBJECTIVE, PREMATURE, WRONG_TEXT, success
from tests.trajectories import PNG, SHOT

SECOND = success(attempt=2).model_copy(
    update={"task": success().task.model_copy(update={"category": "Other"})}
)
TEACHER = [success(), SECOND, PREMATURE.model_copy(update={"trajectory_id": "premature", "actor": "teacher"})]
POLICY = [WRONG_TEXT, success(task_id="miniwob/login-user/2", actor="sft")]


@pytest.fixture
def pools(tmp_path) -> str:
    for name, runs in (("collect", TEACHER), ("collect_policy", POLICY)):
        ImageStore(tmp_path / name).put(PNG)
        write_dataset(tmp_path / name, runs, "trajectories")
    return f"{tmp_path / 'collect'},{tmp_path / 'collect_policy'}"


def run_stage(tmp_path: Path, pools: str) -> Path:
    config = get_config("demo")
    config.pools = pools
    workdir = tmp_path / "mine"
    workdir.mkdir()
    mine(config, workdir)
    return workdir


def test_experiment(tmp_path, pools):
    workdir = run_stage(tmp_path, pools)
    prompts = list(read_dataset(workdir / "prompts", RlPrompt))
    audits = list(read_dataset(workdir / "audit", AuditPair))
    assert [prompt.task_id for prompt in prompts] == ["miniwob/login-user/1"]
    assert [audit.decision for audit in audits] == ["kept", "no_contrast"]
    assert ImageStore(workdir / "prompts").get(SHOT) == ImageStore(workdir / "audit").get(SHOT) == PNG
    report = json.loads((workdir / "report.json").read_text())
    assert (report["stage"], report["tasks"], report["prompts"]) == ("mine", 2, 1)
    assert {name: count for name, count in report["decisions"].items() if count} == {
        "no_contrast": 1,
        "kept": 1,
    }
    assert set(GATES) <= report["decisions"].keys() and report["label_sources"] == {"rule": 1}
    assert len(report["categories"]) == len(TAXONOMY)
    assert report["categories"][prompts[0].category] == {
        "prompts": 1,
        "share": 100.0,
        "paper_share": {"constraint_mismatch": 6.02, "endpoint_incomplete": 18.73}[prompts[0].category],
    }
    text = explain_task(workdir, pool_folders(pools), "miniwob/login-user/1")
    assert "decision      kept" in text
    assert OBJECTIVE in text
    assert "no_contrast" in explain_task(workdir, pool_folders(pools), "miniwob/login-user/2")
    with pytest.raises(UserError, match="no task 'nope'"):
        explain_task(workdir, pool_folders(pools), "nope")


def test_no_pools_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"config.pools is empty"):
        run_stage(tmp_path, " , ")


def test_collections_that_go_on_are_mined(tmp_path, pools):
    ImageStore(tmp_path / "going").put(PNG)
    with Journal(tmp_path / "going" / EPISODES) as journal:
        for run in (*TEACHER, *POLICY):
            journal.append(run.model_dump_json().encode())
    workdir = run_stage(tmp_path, str(tmp_path / "going"))
    assert json.loads((workdir / "report.json").read_text())["pools"] == [str(tmp_path / "going")]
    # While the run goes on, what was mined of it is explained and verified.
    assert OBJECTIVE in explain_task(workdir, [tmp_path / "going"], "miniwob/login-user/1")
    assert [decision.success.task.objective for decision in read_decisions(workdir, 0.0)] == [OBJECTIVE]
    (tmp_path / "again").mkdir()
    whole = run_stage(tmp_path / "again", pools)
    assert list(read_dataset(workdir / "prompts")) == list(read_dataset(whole / "prompts"))


def test_verdicts_of_another_version_are_one_line(tmp_path, pools):
    config = verify_config.get_config("demo")
    config.mined = str(run_stage(tmp_path, pools))
    (tmp_path / "verify").mkdir()
    (tmp_path / "verify" / JOURNAL).write_bytes(b'12 1f0c9a3e {"task_id":1}\n')
    with pytest.raises(UserError, match=f"{JOURNAL}: written by another version; use another --workdir"):
        verify_mined(from_config(VerifySettings, config), tmp_path / "verify")
