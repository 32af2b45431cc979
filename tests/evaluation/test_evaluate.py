"""The whole stage in Chromium: at MiniWoB++ with the scripted teacher, at a local site with a model."""

import json
from pathlib import Path

import pytest

from collection.evaluation.results import load_results
from collection.evaluation.runs import NOTES, evaluate, repeated_tasks, set_apart
from collection.judges.notes import read_notes
from configs.evaluate import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Task, Trajectory
from tests.evaluation.rows import EXCLUDED, REFERENCES, VOYAGER, write_json, write_lines
from tests.judges.verdicts import outcome
from tests.llm.answers import completion
from tests.llm.server import ModelServer
from tests.loopback import PageHandler, serving
from tests.trajectories import trajectory


def scripted():
    config = get_config("smoke")
    config.update({"label": "teacher", "pages": ("click-button",), "seeds": 2})
    config.actor.kind = "scripted"
    return config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    evaluate(scripted(), folder)
    return folder


def test_every_task_is_played_three_times_and_counted_as_it_was_played(workdir):
    results = load_results(workdir)
    assert results.tasks == [f"miniwob/click-button/{1_000_000 + n}" for n in (0, 1)]
    played = {one.trajectory_id: one for one in read_dataset(workdir, Trajectory)}
    assert len(played) == 6
    for task, names in results.by_task("trajectory_id").items():
        runs = [played[name] for name in names]
        assert [run.attempt for run in runs] == [1, 2, 3]
        assert tuple(run.success for run in runs) == results.by_task("success")[task]
        # Success takes both the agent's word and the page's.
        assert all(run.success == (run.outcome == "done" and (run.reward or 0) > 0) for run in runs)
    report = json.loads((workdir / "report.json").read_text())
    assert report["pass_at_1"]["mean"] == pytest.approx(results.successes.mean())
    assert report["seconds"] > 0
    assert report["benchmark"]["benchmark"] == "miniwob" and report["benchmark"]["tasks"] == 2
    assert report["contamination"]["checked"] is False and report["date_refresh"] is None


def test_an_interrupted_evaluation_plays_only_missing_runs(workdir):
    before = (workdir / "episodes.jsonl").read_bytes()
    report = (workdir / "report.json").read_bytes()
    for name in ("report.json", "results.jsonl", "manifest.json"):
        (workdir / name).unlink()
    evaluate(scripted(), workdir)
    assert (workdir / "episodes.jsonl").read_bytes() == before
    again = json.loads((workdir / "report.json").read_text())
    assert {**again, "seconds": 0} == {**json.loads(report), "seconds": 0}


def reply(**action):
    fields = ("evaluation_previous_goal", "memory", "next_goal")
    return completion(json.dumps({**dict.fromkeys(fields, ""), "action": [action]}))


DONE = reply(done={"text": "Hotel Uno", "success": True})


@pytest.fixture(scope="module")
def site():
    """The port of a site on all names of the made-up benchmark."""

    class Handler(PageHandler):
        def get(self):
            self.reply("<title>Stays</title><p>Hotel Uno</p>")

    with serving(Handler) as address:
        yield int(address.partition(":")[2])


NAMES = {
    "www.stays.example.com": "stays.test",
    "papers.example.org": "papers.test",
    "dictionary.example.org": "words.test",
}


def live(folder: Path, port: int, actor: ModelServer, judge: ModelServer, **changes):
    """WebVoyager with made-up rows whose sites are one local server."""
    rows = []
    for row in VOYAGER:
        host = row["web"].split("/")[2]
        rows.append(row | {"web": f"http://{NAMES[host]}/"})
    training = [{"website": "http://x.test/", "objective": VOYAGER[1]["ques"], "task_id": "copied"}]
    config = get_config("webvoyager")
    config.update(
        {
            "tasks_file": str(write_lines(folder / "tasks.jsonl", rows)),
            "excluded_file": str(write_json(folder / "excluded.json", EXCLUDED)),
            "references_file": str(write_json(folder / "references.json", REFERENCES)),
            "own_rows": True,
            "training": str(write_lines(folder / "training.jsonl", training)),
            "runs": 2,
            "refresh": {"today": "2026-11-22", "ask": False},
            "actor": {"kind": "chat", "base_url": f"{actor.url}/v1"},
            "judge": {
                "base_url": f"{judge.url}/v1",
                "api_key_env": "",
                "method": "own_outcome",
                "reference": True,
            },
            "guard": {
                "allowed": (),
                "hosts": tuple(f"{name}=127.0.0.1:{port}" for name in NAMES.values()),
                "private": tuple(f"http://{name}" for name in NAMES.values()),
            },
            "browser": {
                "width": 500,
                "height": 320,
                "quiet_ms": 20,
                "headed": False,
            },
            "limits": {"max_steps": 2},
            "fleet": {"workers": 2, "site_interval_s": 0.0},
        }
    )
    config.update(changes)
    return config


@pytest.fixture(scope="module")
def judged(tmp_path_factory, site):
    """A finished evaluation of a policy that always claims success, with its judge's calls."""
    folder = tmp_path_factory.mktemp("live")
    past = completion(json.dumps({"reason": "The past.", "bound": False, "prompt": "", "notes": []}))
    own = {"task_id": "webvoyager/Stays--0", "prompt": "Find a hotel in Rome from Jan 1 to Jan 4, 2027."}
    with (
        ModelServer([DONE]) as actor,
        ModelServer([past, past, completion(outcome("success"))]) as judge,
    ):
        config = live(folder, site, actor, judge)
        overrides = str(write_lines(folder / "overrides.jsonl", [own]))
        config.update({"refresh": {"ask": True, "overrides": overrides}})
        evaluate(config, folder / "run")
        calls = [json.dumps(call.body) for call in judge.calls]
        assert any(VOYAGER[2]["ques"] in call for call in calls[:2])
        return folder, calls[2:]


def test_an_official_judge_without_its_checkout_is_refused_before_the_first_question(tmp_path):
    with ModelServer([DONE]) as actor, ModelServer([completion("{}")]) as judge:
        config = live(tmp_path, 1, actor, judge, references_file="")
        config.update({"judge": {"method": "webvoyager", "reference": False}, "refresh": {"ask": True}})
        with pytest.raises(UserError, match="official is empty: webvoyager runs from its own repository"):
            evaluate(config, tmp_path / "run")
        assert not actor.calls and not judge.calls


def test_a_benchmark_from_its_files_to_the_report(judged):
    folder, calls = judged
    report = json.loads((folder / "run" / "report.json").read_text())
    played = list(read_dataset(folder / "run", Trajectory))
    assert sorted({run.task.task_id for run in played}) == [
        f"webvoyager/{name}" for name in ("Papers--0", "Stays--0", "Words--0")
    ]
    # What is asked are the refreshed prompts, of the agent and of the judge.
    asked = {run.task.task_id: run.task.objective for run in played}
    assert asked["webvoyager/Stays--0"] == "Find a hotel in Rome from Jan 1 to Jan 4, 2027."
    assert asked["webvoyager/Papers--0"] == VOYAGER[2]["ques"]
    # The same answer on the same page may be judged once.
    assert len(calls) >= 3 and any("Jan 1 to Jan 4, 2027" in call for call in calls)
    assert not any("Jan 4, 2024" in call for call in calls)
    # Its reference answer is of other days.
    moved = [call for call in calls if "Jan 1 to Jan 4, 2027" in call]
    assert all("was right on the day it was written" in call for call in moved)
    assert report["benchmark"]["files"] == [
        {"name": "tasks.jsonl", "rows": 4, "sha256": report["benchmark"]["files"][0]["sha256"]},
        {"name": "excluded.json", "rows": 1, "sha256": report["benchmark"]["files"][1]["sha256"]},
        {"name": "references.json", "rows": 3, "sha256": report["benchmark"]["files"][2]["sha256"]},
    ]
    assert (report["benchmark"]["tasks"], report["benchmark"]["excluded"]) == (3, 1)
    assert report["pass_at_1"]["mean"] == 1.0 and report["by_site"].keys() == {"Stays", "Papers", "Words"}
    assert report["date_refresh"]["overridden"] == ["webvoyager/Stays--0"]
    assert (report["date_refresh"]["changed"], report["date_refresh"]["asked_of_a_model"]) == (1, 2)
    # Trained on a task that is excluded here.
    assert report["contamination"]["by_test"] == {"exact": 1}
    assert report["contamination"]["overlaps"][0]["question"] == "webvoyager/Stays--1"
    assert report["apart"] == {"never_done": [], "unjudged": [], "kept_out": [], "retried": []}
    # For judging once more: the answer was found for other days.
    notes = read_notes(folder / "run" / NOTES)
    assert {name: note.reference and note.reference.golden for name, note in notes.items()} == {
        "webvoyager/Stays--0": False,
        "webvoyager/Papers--0": True,
    }


def evaluate_again(config, run):
    """Without the record of the settings, so that the benchmark's own decides what is refused."""
    (run / "config.json").unlink(missing_ok=True)
    return evaluate(config, run)


def test_a_resumed_run_asks_the_same_and_no_other_tasks(judged, site, tmp_path):
    folder, _ = judged
    run = folder / "run"
    for name in ("report.json", "results.jsonl"):
        (run / name).unlink()
    with ModelServer([DONE]) as actor, ModelServer([completion(outcome("success"))]) as judge:
        config = live(folder, site, actor, judge)
        # As on a later day.
        config.refresh.today = "2026-12-24"
        evaluate_again(config, run)
        assert not actor.calls and not judge.calls
        assert json.loads((run / "report.json").read_text())["date_refresh"]["changed"] == 1
        (run / "report.json").unlink()
        config.excluded_file = ""
        with pytest.raises(UserError, match="this run was begun with other tasks"):
            evaluate_again(config, run)
        other = [VOYAGER[0] | {"ques": "Find a hotel in Oslo from Jan 1 to Jan 4, 2024."}, *VOYAGER[1:]]
        config = live(folder, site, actor, judge, tasks_file=str(write_lines(tmp_path / "x.jsonl", other)))
        with pytest.raises(UserError, match="Stays--0: its prompt is not the one that was refreshed"):
            evaluate_again(config, run)


def with_closed(hosts, *names):
    """The same hosts, but nothing listens at those names."""
    return tuple(
        f"{host.partition('=')[0]}=127.0.0.1:1" if host.startswith(names) else host for host in hosts
    )


@pytest.mark.slow
def test_runs_without_a_result_are_left_out_and_may_be_played_again(site, tmp_path):
    """Nothing listens at any site at first, then at all but one."""
    with ModelServer([DONE]) as actor, ModelServer([completion(outcome("success"))]) as judge:
        judge.always = completion("It may be so.")
        config = live(tmp_path, site, actor, judge, runs=1)
        hosts, run = config.guard.hosts, tmp_path / "run"
        config.guard.hosts = with_closed(hosts, "stays", "papers", "words")
        with pytest.raises(
            UserError, match=r"no run has a result: 3 \(3 unreachable\); most often:"
        ) as error:
            evaluate(config, run)
        assert "\n" not in str(error.value)
        assert not (run / "report.json").exists() and not (run / "results.jsonl").exists()

        config.guard.hosts = with_closed(hosts, "words")
        (run / "config.json").unlink()
        judge.always = completion(outcome("success"))
        report = evaluate(config, run)
        assert (report["missing"], report["fates"]["unreachable"]) == (1, 1)
        assert report["pass_at_1"] == {**report["pass_at_1"], "mean": 1.0, "tasks": 2, "most": 1.0}
        assert report["pass_at_1"]["least"] == pytest.approx(2 / 3)
        assert report["by_site"]["Words"]["pass_at_1"] is None

        config.guard.hosts = hosts
        (run / "config.json").unlink()
        assert evaluate(config, run)["missing"] == 1, "finished"
        (run / "report.json").unlink()
        played = len(actor.calls)
        report = evaluate(config, run)
        assert len(actor.calls) == played + 2, "one run, and the call before it"
    assert report["missing"] == 0 and report["pass_at_1"]["mean"] == report["pass_at_1"]["least"] == 1.0
    assert len(list(read_dataset(run, Trajectory))) == 3
    assert load_results(run).missing == 0


def test_the_same_task_under_two_ids_is_found():
    def task(name: str, website: str, objective: str) -> Task:
        return Task(task_id=name, website=website, objective=objective)

    tasks = [
        task("1", "https://a.test/", "Find the  price of Tea."),
        task("2", "https://a.test/", "find the price of tea."),
        task("3", "a.test/", "Find the price\nof tea."),
        task("4", "https://b.test/", "Find the price of tea."),
        task("5", "https://a.test/", "Find the price of coffee."),
        *(task(f"page-{seed}", "http://page.test/", "") for seed in (1, 2)),
    ]
    assert repeated_tasks(tasks) == [["1", "2", "3"]]


def test_repeated_tasks_are_said_in_one_line_before_the_first_episode(site, tmp_path, capsys):
    rows = [VOYAGER[0], {**VOYAGER[0], "id": "Stays--7", "ques": VOYAGER[0]["ques"].upper()}]
    with ModelServer([DONE]) as actor, ModelServer([DONE]) as judge:
        config = live(tmp_path, site, actor, judge, references_file="")
        config.judge.reference = False
        host = NAMES[VOYAGER[0]["web"].split("/")[2]]
        write_lines(tmp_path / "tasks.jsonl", [row | {"web": f"http://{host}/"} for row in rows])
        config.excluded_file, config.training = "", ""
        config.task_ids = ("webvoyager/Stays--0", "webvoyager/Stays--7")
        config.refresh.today = "2024-01-01"
        (tmp_path / "run").mkdir()
        # Begun with other tasks, so it ends before any episode.
        (tmp_path / "run/benchmark.json").write_text("{}")
        with pytest.raises(UserError, match="begun with other tasks"):
            evaluate(config, tmp_path / "run")
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "repeat" in one]
    assert line.startswith("1 tasks repeat the start page and words of another one (webvoyager/Stays--0 and ")


def test_samples_are_distinguished_by_their_end():
    def run(number, outcome, **fields):
        values = {"success": False, "outcome": outcome, "reward": None} | fields
        live = Task(task_id="t", website="", objective="")
        return trajectory(**values).model_copy(update={"trajectory_id": f"{outcome}-{number}", "task": live})

    runs = [
        run(1, "done", declared_success=True, judge="outcome", success=True, retries=2),
        run(2, "done", declared_success=True, judge="outcome"),
        run(3, "done", declared_success=True, judge_text="UNKNOWN"),
        run(4, "done", declared_success=False),
        *(run(5, outcome) for outcome in ("max_steps", "timeout", "captcha", "unreachable", "crashed")),
    ]
    assert set_apart(runs) == {
        "never_done": ["max_steps-5", "timeout-5"],
        "unjudged": ["done-3"],
        "kept_out": ["captcha-5", "unreachable-5", "crashed-5"],
        "retried": ["done-1"],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refresh": {"today": "tomorrow"}}, r"config\.refresh\.today='tomorrow': write YYYY-MM-DD"),
        ({"refresh": {"ask": True}, "judge": {"kind": "none"}}, "config.judge.kind is 'none'"),
        ({"task_ids": ("webvoyager/Tea--0",)}, r"no tasks of webvoyager: webvoyager/Tea--0"),
        ({"training": "nowhere"}, r"config\.training=nowhere: not there"),
    ],
    ids=["no day", "no judge to ask", "unknown task", "no training tasks"],
)
def test_errors_are_reported_before_any_episode(site, tmp_path, changes, message):
    with ModelServer([DONE]) as actor, ModelServer([DONE]) as judge:
        config = live(tmp_path, site, actor, judge)
        config.update(changes)
        with pytest.raises(UserError, match=message):
            evaluate(config, tmp_path / "run")
        assert not actor.calls
    assert not (tmp_path / "run" / "episodes.jsonl").exists()


def test_tasks_at_servers_that_the_guard_refuses_are_refused_before_any_episode(tmp_path):
    tasks = write_lines(tmp_path / "tasks.jsonl", [{"website": "http://127.0.0.1:1/", "objective": "Buy."}])
    config = get_config("own_tasks")
    config.label, config.tasks_file, config.judge.kind = "sft", str(tasks), "none"
    config.actor.kind, config.model, config.actor.base_url = "chat", "m", "http://127.0.0.1:1/v1"
    with pytest.raises(UserError, match=r"no task can be played: .*127\.0\.0\.1.* config\.guard\.private"):
        evaluate(config, tmp_path / "run")
