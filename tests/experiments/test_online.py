"""Online runs: a policy server, browsers and the training of what they play, killed and resumed."""

import contextlib
import http.server
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import chex
import psutil
import pytest

from collection.fleet.play import PlayerSettings
from configs.rl import get_config
from experiments.online import FleetEpisodes, OnlineSettings, TaskOrder, train_online
from rmsweb_jax.data.sources import is_held_out
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt, Task, Trajectory
from rmsweb_jax.rl.episodes import Tallied, template_of
from rmsweb_jax.settings import from_config
from rmsweb_jax.training.metrics import read_metrics
from tests.evaluation.rows import write_lines
from tests.judges.verdicts import outcome
from tests.llm.answers import completion
from tests.llm.server import ModelServer
from tests.policies import REPLY, random_messages, weights

# Each takes a server and several browsers.
pytestmark = pytest.mark.timeout(0)
JUDGED = {"judge": {"kind": "chat", "model": "judge", "base_url": "http://judge.test/v1"}}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompts")
    images = ImageStore(folder)
    records = [
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"miniwob/click-button/{number}",
            site="click-button",
            category="ui_navigation",
            messages=random_messages(number, images, repeats=2),
            target=REPLY % (number + 1),
        )
        for number in range(8)
    ]
    write_dataset(folder, records, "rl_prompts")
    return folder


def arguments(prompts: Path) -> dict[str, object]:
    return {
        "model": "tiny_base",
        "prompts": str(prompts),
        "lora.rank": 4,
        "tasks_by": "learnability",
        # The policy of these tests solves nothing.
        "play.teacher.kind": "scripted",
        "objective.salvage_weight": 0.1,
    }


def command(prompts: Path, workdir: Path, **changes: object) -> list[str]:
    settings = [f"--config.{name}={value}" for name, value in (arguments(prompts) | changes).items()]
    script = [sys.executable, "-m", "experiments.train_rl", "--config=configs/rl.py:smoke,online"]
    return [*script, *settings, f"--workdir={workdir}"]


def episodes(workdir: Path) -> list[Trajectory]:
    folders = sorted(path.parent for path in workdir.glob("episodes/*/manifest.json"))
    return [one for folder in folders for one in read_dataset(folder, Trajectory)]


@pytest.fixture(scope="module")
def whole(prompts, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("whole") / "run"
    done = subprocess.run(command(prompts, workdir), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return workdir


def test_a_policy_plays_and_is_trained_on_what_it_played(whole):
    rows = read_metrics(whole)
    assert len(rows) == 2 and rows[0]["optimizer_steps"] + rows[1]["optimizer_steps"] > 0
    for row in rows:
        # Two tasks at a time, two episodes each.
        assert row["episodes/scored"] % 4 == 0 and row["episodes/masked"] == 0 and row["episodes/turns"] > 0
        # The tokens of the episodes are those that training computes, for the same prompts.
        assert row["sampler/gap_max"] < 1e-4
        # What it did not solve the teacher has played, and the anchor is trained on what that has solved.
        assert row["salvage/groups_unsolved"] == 2 and row["salvage/groups_anchored"] <= 1
    taught = [one for folder in whole.glob("episodes/*/teacher") for one in read_dataset(folder, Trajectory)]
    targets = sum(row["salvage/groups_with_target"] for row in rows)
    assert len(taught) == 4 and sum(one.success for one in taught) == targets > 0
    assert sum(row["salvage/groups_anchored"] for row in rows) > 0
    assert json.loads((whole / "report.json").read_bytes())["iterations"] == 2
    played = episodes(whole)
    assert len(played) == sum(row["episodes/scored"] for row in rows)
    assert len({one.trajectory_id for one in played}) == len(played)
    policies = {one.model for one in played}
    assert len(policies) == 2 and all(name.startswith("policy-") for name in policies)
    assert not left_running(whole)


def left_running(workdir: Path) -> list[list[str]]:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(workdir) in " ".join(line)]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_batch_that_was_played_ahead(prompts, tmp_path):
    workdir = tmp_path / "run"
    line = [*command(prompts, workdir), "--config.max_staleness=1", "--config.iterations=4"]
    for kill_after in (6, 10):
        process = subprocess.Popen(line, stderr=subprocess.PIPE)
        while process.poll() is None and journaled(workdir) < kill_after:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not left_running(workdir)
    subprocess.run(line, check=True)
    rows = read_metrics(workdir)
    # All but the first are by the policy before.
    assert [row.get("staleness/1", 0) > 0 for row in rows] == [False, True, True, True]
    played = episodes(workdir)
    assert len(played) == sum(row["episodes/scored"] + row["episodes/masked"] for row in rows)
    assert len({one.trajectory_id for one in played}) == len(played)
    assert not left_running(workdir)


@pytest.mark.slow
def test_a_killed_run_loses_no_episode_and_ends_with_the_same_weights(whole, prompts, tmp_path):
    workdir = tmp_path / "run"
    for kill_after in (1, 5):
        process = subprocess.Popen(command(prompts, workdir), stderr=subprocess.PIPE)
        while process.poll() is None and journaled(workdir) < kill_after:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not left_running(workdir)
    subprocess.run(command(prompts, workdir), check=True)
    assert [one.trajectory_id for one in episodes(workdir)] == [one.trajectory_id for one in episodes(whole)]
    chex.assert_trees_all_equal(weights(workdir / "export"), weights(whole / "export"))


def journaled(workdir: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in workdir.glob("episodes/*/episodes.jsonl"))


def settings(**changes) -> OnlineSettings:
    config = get_config("smoke,online")
    config.update({"model": "model", "prompts": "prompts", **changes})
    return from_config(OnlineSettings, config)


def test_tasks_come_seed_by_seed_and_without_held_out_ones():
    order = TaskOrder(
        settings(held_out=0.5, pages=("click-button", "enter-text", "click-option"), first_seed=7)
    )
    first = order[range(12)]
    assert order[range(6, 12)] == first[6:] and len({task.task_id for task in first}) == 12
    seeds = [task.seed for task in first]
    assert seeds == sorted(seeds) and min(seeds) >= 7
    assert not any(is_held_out(task.task_id, 0.5) for task in first)


def test_tasks_by_learnability_are_those_that_are_solved_sometimes():
    pages = ("click-button", "enter-text", "click-option")
    given = {"pages": pages, "held_out": 0.3, "first_seed": 7, "num_samples": 4}
    names = [f"miniwob/{page}" for page in pages]
    tally = dict(zip(names, (Tallied(30, 1.0), Tallied(20, 0.5), Tallied(10, 0.05)), strict=True))
    order = TaskOrder(settings(tasks_by="learnability", **given))
    batch = order.batch(60, 400, tally)
    counts = Counter(template_of(task.task_id) for task, _ in batch)
    # Weights 0.05, 0.25 and 0.05.
    assert [round(counts[name] / 400, 1) for name in names] == [0.1, 0.7, 0.1]
    samples = {template_of(task.task_id): number for task, number in batch}
    assert [samples[name] for name in names] == [4, 4, 8]
    assert len({task.task_id for task, _ in batch}) == 400
    assert not any(is_held_out(task.task_id, 0.3) for task, _ in batch)
    # Each page goes on behind the tasks that were played, and a resumed run begins the same ones.
    assert TaskOrder(settings(tasks_by="learnability", **given)).batch(60, 400, tally) == batch
    in_order = [task for task in order[range(400)] if template_of(task.task_id) == names[0]]
    assert [task for task, _ in batch if template_of(task.task_id) == names[0]][:3] == in_order[30:33]
    # Behind those that are under way, too.
    (ahead, _), *_ = [one for one in batch if template_of(one[0].task_id) == names[0]]
    after = [task for task, _ in order.batch(60, 400, tally, [ahead])]
    assert next(task for task in after if template_of(task.task_id) == names[0]) == in_order[31]
    # At first all pages are alike, and so are the tasks and their numbers by seed.
    assert len({template_of(task.task_id) for task, _ in order.batch(0, 12, {})}) == 3
    by_seed = TaskOrder(settings(**given)).batch(3, 5, tally)
    assert by_seed == [(task, 4) for task in order[range(3, 8)]]


@pytest.mark.parametrize("name", ["shop/{}/mugs", "shop/mugs/0"])
def test_templates_without_more_tasks_are_one_line(name, monkeypatch):
    made = {"website": "http://shop.test/", "objective": "Buy a mug."}
    monkeypatch.setattr(
        TaskOrder, "_all_of_seed", lambda self, seed: [Task(task_id=name.format(seed), **made)]
    )
    order = TaskOrder(settings(tasks_by="learnability", held_out=0.0))
    assert [task.task_id for task, _ in order.batch(0, 1, {})] == [name.format(16)]
    with pytest.raises(UserError, match="has 1 tasks to train on, and no more in 1000 seeds: make ids"):
        order.batch(0, 2, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": ()}, "config.pages, config.applications and config.tasks_file are empty"),
        (
            {"tasks_file": "tasks.jsonl"},
            "config.play.judge.kind is 'none': live pages pay nothing themselves",
        ),
        (
            {"tasks_file": "tasks.jsonl", "play": {"judge": {"kind": "actor"}}},
            "config.play.judge.kind is 'actor': .* name a judge, other than the policy itself",
        ),
        (
            {"tasks_file": "tasks.jsonl", "play": JUDGED, "tasks_by": "learnability"},
            "config.tasks_by=learnability: tasks of config.tasks_file have no seeds",
        ),
        (
            {"play": {"teacher": {"kind": "scripted"}}},
            "config.play.teacher.kind is 'scripted' and config.objective.salvage_weight 0: no reply of it",
        ),
        (
            {
                "play": {"teacher": {"kind": "auto"}},
                "objective": {"salvage_weight": 0.1},
                "mini_batch_groups": 2,
            },
            "config.play.teacher.kind is 'auto' and config.max_salvage_groups 1: no reply .* more than 1",
        ),
        ({"max_staleness": 2}, "config.max_staleness is 2: online runs play one batch ahead at most"),
        ({"max_masked": 2.0}, "config.max_masked is 2.0"),
        ({"corpus": "full"}, "config.corpus is 'full'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        settings(**changes)


def test_the_scripted_teacher_is_refused_where_it_knows_no_task(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    play = settings(play={"teacher": {"kind": "auto"}}, objective={"salvage_weight": 0.1}).play
    assert play.resolved_teacher(True).kind == "scripted"
    with pytest.raises(UserError, match=r"it knows MiniWoB\+\+ alone; name a model"):
        play.resolved_teacher(False)
    assert settings().play.resolved_teacher(False).kind == "none"


def test_a_fleet_that_ends_while_two_batches_are_under_way_is_an_error(tmp_path, monkeypatch):
    """It plays both, and another one would know of the second alone."""
    order = TaskOrder(settings(held_out=0.0))
    monkeypatch.setattr(FleetEpisodes, "module", "tests.experiments.no_such_player")
    source = FleetEpisodes(order, PlayerSettings(), tmp_path)
    source.begin(0, 2, "policy-000000-a", {})
    fleet = source._fleet
    assert fleet is not None
    while fleet.poll() is None:
        time.sleep(0.05)
    source.begin(2, 2, "policy-000001-b", {})
    assert source._fleet is fleet
    with pytest.raises(UserError, match=r"No module named tests\.experiments\.no_such_player"):
        source.wait(0)


def test_a_batch_that_was_begun_keeps_its_tasks(tmp_path, monkeypatch):
    """A resumed run knows more of what was played."""
    monkeypatch.setattr(FleetEpisodes, "module", "tests.experiments.no_such_player")
    given = settings(tasks_by="learnability", held_out=0.0)
    tally = {f"miniwob/{page}": Tallied(9, 0.5) for page in given.pages}
    asked = []
    for known in ({}, tally):
        source = FleetEpisodes(TaskOrder(given), PlayerSettings(), tmp_path)
        source.begin(0, 4, "policy-000000-a", known)
        asked.append((tmp_path / "000000-policy-000000-a/request.json").read_text())
        source.stop()
    assert asked[0] == asked[1]


def test_a_machine_without_a_browser_trains_nothing(prompts, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="chromium not found"):
        train_online(settings(model="tiny_base", prompts=str(prompts)), tmp_path)
    assert not (tmp_path / "server").exists()


@pytest.mark.slow
def test_lost_browsers_are_masked_and_end_no_run(prompts, tmp_path):
    workdir = tmp_path / "run"
    flags = ["--config.play.fleet.crashes=0", "--config.replays=0", "--config.max_masked=1.0"]
    flags += ["--config.num_samples=4", "--config.iterations=3"]
    process = subprocess.Popen([*command(prompts, workdir), *flags], stderr=subprocess.PIPE)
    killed = 0
    while process.poll() is None:
        time.sleep(5.0)
        # The oldest process is the browser itself.
        for one in browsers(process.pid)[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
                killed += 1
    assert process.returncode == 0, process.stderr and process.stderr.read().decode()[-2000:]
    rows = read_metrics(workdir)
    played = episodes(workdir)
    crashed = [one for one in played if one.outcome == "crashed"]
    assert crashed and killed >= len(crashed) and not any(one.success for one in crashed)
    assert sum(row["episodes/masked"] for row in rows) >= len(crashed)
    assert sum(row["episodes/scored"] + row["episodes/masked"] for row in rows) == len(played)
    assert not left_running(workdir)


def browsers(pid: int) -> list[psutil.Process]:
    """The processes of all browsers of a run, oldest first."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if one.name() == "chromium":
                    found.append((one.create_time(), one.pid, one))
    return [one for _, _, one in sorted(found)]


SHOP = {"website": "http://shop.test/", "objective": "Buy a lamp."}


@pytest.mark.parametrize(
    ("rows", "held_out", "message"),
    [
        ([SHOP, {"objective": "Buy."}], 0.0, r"tasks\.jsonl: not tasks: line 2 \(website: Field required\)"),
        ([SHOP], 0.0, "no task can be played: the guard refuses http://shop.test/"),
        ([SHOP], 0.999, "all tasks are held out; add some, or lower config.held_out"),
    ],
)
def test_a_file_of_tasks_that_cannot_be_played_is_one_line(tmp_path, rows, held_out, message):
    path = write_lines(tmp_path / "tasks.jsonl", rows)
    with pytest.raises(UserError, match=message):
        TaskOrder(settings(tasks_file=str(path), play=JUDGED, held_out=held_out))


def test_tasks_of_a_file_come_with_each_seed(tmp_path):
    rows = [{"website": "https://example.com/", "objective": text} for text in ("Read.", "Search.", "Buy.")]
    path = write_lines(tmp_path / "tasks.jsonl", rows)
    play = JUDGED | {"guard": {"allowed": ("*",)}}
    order = TaskOrder(settings(tasks_file=str(path), play=play, pages=("click-button",), held_out=0.0))
    tasks = order[range(8)]
    assert [task.environment for task in tasks].count("web") == 6
    # Of a task that comes twice all episodes are played.
    samples = {task.task_id: number for task, number in order.batch(0, 8, {})}
    assert len(samples) == 5 and sum(samples.values()) == 8 * 2
    assert {task.task_id for task in tasks[:4]} & {task.task_id for task in tasks[4:]} == {
        task.task_id for task in tasks if task.environment == "web"
    }


class Site(http.server.BaseHTTPRequestHandler):
    """A page on which each visit is another."""

    visits = itertools.count()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(
            f"<title>Shop</title><p>Visitor {next(self.visits)}</p><button>Buy</button>".encode()
        )

    def log_message(self, format, *args): ...


@pytest.mark.slow
def test_live_tasks_are_played_and_pages_that_differ_are_no_faults(prompts, tmp_path):
    path = write_lines(tmp_path / "tasks.jsonl", [SHOP, SHOP | {"objective": "Press the button Buy."}])
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server,
        # The policy of this test never ends an episode itself: the judge has a test call alone.
        ModelServer([completion(outcome("success"))]) as judge,
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        line = command(
            prompts,
            tmp_path / "run",
            **{
                "pages": "()",
                "tasks_file": path,
                "tasks_by": "seed",
                "play.teacher.kind": "none",
                "objective.salvage_weight": 0.0,
                "held_out": 0.0,
                "play.judge.kind": "chat",
                "play.judge.model": "judge",
                "play.judge.base_url": f"{judge.url}/v1",
                "play.guard.hosts": f"('shop.test=127.0.0.1:{server.server_port}',)",
                "play.guard.private": "('http://shop.test',)",
            },
        )
        done = subprocess.run(line, capture_output=True, text=True)
        server.shutdown()
    assert done.returncode == 0, done.stderr[-2000:]
    rows, played = read_metrics(tmp_path / "run"), episodes(tmp_path / "run")
    assert {one.task.environment for one in played} == {"web"} and len(played) == 8
    assert sum(row["episodes/scored"] for row in rows) == len(played)
    assert sum(row["episodes/masked"] for row in rows) == 0


@pytest.mark.slow
def test_a_policy_that_never_acts_is_not_trained(random_policy, prompts, tmp_path):
    settings = [f"--config.{name}={value}" for name, value in arguments(prompts).items()]
    line = [*command(prompts, tmp_path / "run"), f"--config.model={random_policy}", *settings[2:]]
    done = subprocess.run([*line, "--config.max_response_tokens=8"], capture_output=True, text=True)
    assert done.returncode == 2 and "no reply had an action that could be carried out" in done.stderr
    assert not list((tmp_path / "run").glob("checkpoints/*"))
