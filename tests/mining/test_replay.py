"""Mined decisions replayed in Chromium: which were critical, and what cannot be known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.environments.miniwob import make_task
from collection.mining.config import VerifySettings
from collection.mining.mine import explain_task, mine, read_verdicts, verdict_on
from collection.mining.replay import Player, Trial, decide, move_reply, read_decisions, verify_mined
from collection.teacher.mistakes import MistakeConfig
from collection.teacher.teacher import ScriptedTeacher
from configs import mine as mine_config
from configs import verify_mined as verify_config
from configs.collect import DEMO_EPISODES
from rmsweb_jax.actions import repair_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, Element, ReplayVerdict, Trajectory
from rmsweb_jax.settings import from_config
from tests.trajectories import step

ROOT = Path(__file__).parents[2]
FLAWLESS = ScriptedTeacher(MistakeConfig())
# A task in which the mistake can be made good at the next step, and one in which it ends the page's episode.
MISTAKES = {
    "login-user": {"rate": 1.0, "weights": {"skipped_field": 1.0}},
    "focus-text-2": {"rate": 1.0, "weights": {"wrong_index": 1.0}},
}
SEED = 4


def player_of(then, images) -> Player:
    browser = BrowserConfig(**DEMO_EPISODES["browser"])
    return Player(
        browser, PromptConfig(style="compact"), EpisodeLimits(max_steps=10), images, then, further_steps=8
    )


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """A success and a failure of each task."""
    folder = tmp_path_factory.mktemp("pool")
    runs = []
    for page, mistakes in MISTAKES.items():
        for attempt, teacher in enumerate((FLAWLESS, ScriptedTeacher(MistakeConfig(**mistakes))), start=1):
            with player_of(teacher, ImageStore(folder)) as player:
                runs.append(player.run(make_task(page, SEED), attempt=attempt))
    assert [run.success for run in runs] == [True, False, True, False]
    write_dataset(folder, runs, "trajectories")
    return folder


@pytest.fixture(scope="module")
def mined(pool, tmp_path_factory):
    config = mine_config.get_config("demo")
    config.pools = str(pool)
    workdir = tmp_path_factory.mktemp("mine")
    assert mine(config, workdir)["prompts"] == 2
    return workdir


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    with player_of(FLAWLESS, ImageStore(tmp_path_factory.mktemp("images"))) as player:
        yield player


def login_run(pool, success) -> Trajectory:
    runs = (run for run in read_dataset(pool, Trajectory) if "login" in run.task.task_id)
    return next(run for run in runs if run.success is success)


def settings(mined, **changes) -> VerifySettings:
    config = verify_config.get_config("demo")
    config.mined = str(mined)
    config.update(changes)
    return from_config(VerifySettings, config)


@pytest.mark.slow
def test_decisions_are_verified_and_the_miner_reads_the_verdicts(pool, mined, tmp_path):
    command = [sys.executable, "-m", "experiments.verify_mined", "--config=configs/verify_mined.py:demo"]
    command += [f"--config.mined={mined}", "--config.sample=1.0", f"--workdir={tmp_path / 'verify'}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["decisions"], report["verdicts"]) == (2, {"critical": 2})
    assert report["sampled"] == report["at_last_critical"] == 2
    verdicts = list(read_dataset(tmp_path / "verify/verdicts", ReplayVerdict))
    for verdict in verdicts:
        assert (
            verdict.with_success.successes == verdict.with_success.trials == verdict.with_failure.trials == 1
        )
        assert verdict.with_failure.successes == 0 and 0 < verdict.with_success.low < 1
    # One that made no difference is not kept by the next mining.
    login = next(one for one in verdicts if "login" in one.task_id)
    harmless = login.model_copy(update={"verdict": "not_critical", "with_failure": login.with_success})
    others = [one for one in verdicts if one is not login]
    write_dataset(tmp_path / "changed/verdicts", [harmless, *others], "replay_verdicts")
    config = mine_config.get_config("demo")
    config.pools, config.replay = str(pool), str(tmp_path / "changed")
    report = mine(config, tmp_path / "again")
    assert (report["prompts"], report["decisions"]["replay"]) == (1, 1)
    audits = {one.task_id: one for one in read_dataset(tmp_path / "again/audit", AuditPair)}
    assert audits[login.task_id].replay == harmless and audits[login.task_id].decision == "replay"
    why = explain_task(tmp_path / "again", [pool], login.task_id)
    assert "replay        not_critical (with the success's action 1 of 1, with the other 1 of 1)" in why


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(mined, tmp_path, monkeypatch):
    def stop(_decisions, _settings, _workdir):
        yield first
        raise KeyboardInterrupt

    chosen = settings(mined)
    decisions = read_decisions(mined, 0.0)
    first = ReplayVerdict(
        task_id=decisions[0].audit.task_id,
        success_id=decisions[0].audit.success_id,
        localization_id=decisions[0].audit.localization_id,
        success_step=1,
        localization_step=1,
        verdict="lost",
    )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("collection.mining.replay._verdicts", stop)
        verify_mined(chosen, tmp_path)
    assert not (tmp_path / "report.json").exists()
    report = verify_mined(chosen, tmp_path)
    # The first is not tried again.
    assert report["verdicts"] == {"critical": 1, "lost": 1}
    assert verify_mined(chosen, tmp_path) == report


def test_what_cannot_be_known_is_no_negative(mined, player):
    decision, *_ = read_decisions(mined, 0.0)
    chosen = settings(mined)

    def changed(**fields) -> str:
        run = decision.failed.model_copy(update=fields)
        return decide(type(decision)(decision.audit, decision.success, run), player, chosen).verdict

    live = decision.failed.task.model_copy(update={"environment": "web"})
    assert changed(task=live) == "no_reset"
    other = [item.model_copy(update={"observation": step(1).observation}) for item in decision.failed.steps]
    assert changed(steps=tuple(other)) == "no_element"
    first, *rest = decision.failed.steps
    drifted = first.observation.model_copy(update={"fingerprint": "another"})
    assert changed(steps=(first.model_copy(update={"observation": drifted}), *rest)) == "differs"


def test_the_actor_goes_on_from_a_state_that_it_has_not_made(pool, player):
    """A skipped field is filled in as long as the form was not sent."""
    run = next(
        run for run in read_dataset(pool, Trajectory) if not run.success and "login" in run.task.task_id
    )
    ends = [player.play(Trial(run, kept)) for kept in range(len(run.steps))]
    assert ends == ["success", "success", "failure"]


def test_replies_move_to_the_same_element(pool):
    run = login_run(pool, success=True)
    page, reply = run.steps[0].observation, repair_reply(run.steps[0].response)[0]
    index = reply.actions[0].params.index
    extra = Element(index=1, tag="a", text="Help")
    moved = [
        item if item.index is None else item.model_copy(update={"index": item.index + 1})
        for item in page.elements
    ]
    shifted = page.model_copy(update={"elements": (extra, *moved)})
    assert move_reply(reply, page, shifted).actions[0].params.index == index + 1
    assert move_reply(reply, page, page) == reply
    gone = page.model_copy(update={"elements": tuple(e for e in page.elements if e.index != index)})
    assert move_reply(reply, page, gone) is None


def test_another_success_shares_a_verdict_only_where_the_failed_runs_action_was_harmless(tmp_path):
    rates = [{"successes": number, "trials": 1, "low": 0.0, "high": 1.0} for number in (0, 1)]
    for harm in (0, 1):
        verdict = ReplayVerdict(
            task_id="t",
            success_id="a",
            localization_id="f",
            success_step=1,
            localization_step=2,
            verdict="not_critical",
            with_success=rates[0],
            with_failure=rates[1 - harm],
        )
        write_dataset(tmp_path / str(harm) / "verdicts", [verdict], "replay_verdicts")
        found = read_verdicts(tmp_path / str(harm))
        assert verdict_on(found, ("a", 1), ("f", 2)) == verdict
        assert (verdict_on(found, ("b", 1), ("f", 2)) is None) == bool(harm)
        assert verdict_on(found, ("a", 1), ("f", 1)) is None


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no report of a mining run: give the workdir of experiments\.mine"):
        verify_mined(settings(tmp_path / "none"), tmp_path / "verify")
