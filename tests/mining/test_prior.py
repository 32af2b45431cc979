"""The prior's command: what it counts, and what it refuses."""

import json

import pytest

from collection.mining.config import FailurePriorSettings
from collection.mining.taxonomy import PAPER_SHARES, rule_label
from configs.failure_prior import get_config
from experiments.failure_prior import main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.settings import from_config
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.mining.label_server import REVIEW, user_of, verdict
from tests.mining.runs import WANDERS, failure_of, pair_of, success_of
from tests.scripts import run_script

PAIR = pair_of(1)
# Of every pair here but where a test says so.
RULE = rule_label(PAIR.success, PAIR.localization)


def pool(folder, *runs):
    write_dataset(folder, runs, "trajectories")
    return str(folder)


def tasks(folder, count):
    """The given number of tasks, with a pair each."""
    return pool(folder, *(run(number) for number in range(count) for run in (success_of, failure_of)))


def prior(tmp_path, pools, server=None, **settings):
    """Runs the stage; returns its report and labels."""
    config = get_config("paper" if server else "rules")
    config.pools = pools
    if server:
        actor = {"kind": "chat", "base_url": f"{server.url}/v1", "calls": 1, "max_tokens": 100}
        config.update({"actor": actor})
    config.update(settings)
    workdir = tmp_path / "prior"
    workdir.mkdir(exist_ok=True)
    main(from_config(FailurePriorSettings, config), workdir)
    labels = [json.loads(line) for line in (workdir / "labels.jsonl").read_text().splitlines()]
    return json.loads((workdir / "report.json").read_text()), labels


def answers(prompt):
    """Answers by the task's last digit: 0 to 5 confident, 6 and 7 reviewed, 8 and 9 left to the rules."""
    kind = user_of(prompt) % 10
    if kind < 6:
        return completion(verdict("unverifiable_evidence", 0.8))
    if REVIEW not in prompt:
        return completion(verdict("ui_navigation", 0.6) if kind < 8 else "It is hard to say.")
    return completion(verdict("constraint_mismatch", 0.5) if kind < 8 else verdict("filter_context", 0.1))


def test_the_distribution_by_category_and_source(tmp_path, capsys):
    with PromptServer(answers) as server:
        report, labels = prior(tmp_path, tasks(tmp_path / "pool", 20), server)
        assert len(server.calls) == 28
    assert report["tasks"] == report["pairs"] == 20 and report["pair_kinds"] == {"primary": 20}
    rows = report["categories"]
    assert rows.keys() == PAPER_SHARES.keys()
    assert rows["unverifiable_evidence"] == {
        "pairs": 12,
        "share": 60.0,
        "paper_share": 39.8,
        "mean_confidence": 0.8,
        "sources": {"judge": 12, "review": 0, "rule": 0},
    }
    assert rows["constraint_mismatch"]["sources"] == {"judge": 0, "review": 4, "rule": 0}
    assert rows[RULE.category]["sources"]["rule"] == 4
    assert sum(row["pairs"] for row in rows.values()) == 20
    assert rows["filter_context"]["mean_confidence"] is None
    assert report["sources"]["review"] == {"labels": 4, "mean_confidence": 0.5}
    assert report["unusable_answers"] == {"judge": 4, "review": 0}
    assert report["mean_confidence"] == pytest.approx(
        sum(label["confidence"] for label in labels) / 20, abs=1e-4
    )
    assert report["requests"] == {"asked": 28, "cache_hits": 0}
    assert report["calls"]["judge"]["calls"] == 28 and report["contamination_checked"] is False
    by_task = {label["task_id"]: label for label in labels}
    ruled = by_task["miniwob/login-user/8"]
    assert (ruled["source"], ruled["category"]) == ("rule", RULE.category)
    assert tuple(ruled["cues"]) == RULE.cues != ()
    assert [answer["text"] for answer in ruled["answers"]] == [
        "It is hard to say.",
        verdict("filter_context", 0.1),
    ]
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["unverifiable_evidence", "12", "60.00", "39.80", "0.80", "12", "0", "0"]
    assert table[-1].split()[:2] == ["all", "20"] and table[-1].split()[-3:] == ["12", "4", "4"]


def test_rules_make_no_model_call(tmp_path, capsys):
    pools = ",".join(
        (
            pool(tmp_path / "a", success_of(1), success_of(2), failure_of(1)),
            pool(tmp_path / "b", failure_of(2, *WANDERS, outcome="max_steps"), failure_of(1)),
        )
    )
    report, labels = prior(tmp_path, pools)
    # The failure that is in both pools counts once.
    assert report["pairs"] == 2 and report["model"] == "rules" and report["cost_usd"] == 0
    wandering = pair_of(2, *WANDERS, outcome="max_steps")
    expected = [RULE, rule_label(wandering.success, wandering.localization)]
    assert [label["category"] for label in labels] == [label.category for label in expected]
    assert [label["confidence"] for label in labels] == [label.confidence for label in expected]
    assert {label["source"] for label in labels} == {"rule"}
    again, _ = prior(tmp_path, pools)
    assert again == report
    first, second = capsys.readouterr().out.split("category")[1:]
    assert first == second


BENCHMARK = {
    "id": "Forum--7",
    "web_name": "Forum",
    "ques": "On the forum, log in as user 3. Then stop.",
    "web": "https://forum.test",
}


def test_a_split_with_a_benchmark_task_is_refused_before_anybody_is_asked(tmp_path):
    pools = tasks(tmp_path / "pool", 5)
    rows = [BENCHMARK | {"id": "Forum--6", "ques": "Find the rules of the forum."}, BENCHMARK]
    file = tmp_path / "WebVoyager_data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with PromptServer(answers) as server:
        with pytest.raises(UserError, match=r"task miniwob/login-user/3 repeats webvoyager Forum--7 \(subs"):
            prior(tmp_path, pools, server, benchmarks={"webvoyager": str(file)})
        assert not server.calls and not (tmp_path / "prior" / "report.json").exists()
        file.write_text(json.dumps(rows[0]))
        report, _ = prior(tmp_path, pools, server, benchmarks={"webvoyager": str(file)})
    assert report["contamination_checked"] is True and report["questions"] == 1
    with pytest.raises(UserError, match=r"config\.benchmarks\.webvoyager=.*give the benchmark's own file"):
        (tmp_path / "prior" / "report.json").unlink()
        prior(tmp_path, pools, benchmarks={"webvoyager": str(tmp_path / "none.jsonl")})


def test_a_split_without_pairs_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"none of the 2 tasks has a success and another run"):
        prior(tmp_path, pool(tmp_path / "pool", success_of(1), failure_of(2)))
    with pytest.raises(UserError, match=r"config.pools is empty"):
        prior(tmp_path, " ")


def test_the_command_ends_in_one_line_and_the_cap_has_a_code_of_its_own(tmp_path):
    with PromptServer(answers) as server:
        options = (f"--config.pools={tasks(tmp_path / 'pool', 3)}", f"--workdir={tmp_path / 'run'}")
        actor = ("kind=chat", f"base_url={server.url}/v1", "max_tokens=100", "price=1,0,1", "cap_usd=0.001")
        capped = run_script(
            "experiments.failure_prior", *options, *(f"--config.actor.{setting}" for setting in actor)
        )
        assert not server.calls
    assert capped.returncode == 4
    warning, error = capped.stderr.splitlines()
    assert warning.startswith("warning: config.benchmarks is empty") and error.startswith("error: budget: $0")
