"""The whole mining stage with a model that names the failures, over HTTP."""

import json
from pathlib import Path

import pytest

import collection
from collection.llm.calls import CALLS, BudgetError
from configs.mine import get_config
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.mining.label_server import REVIEW, kept_in, user_of, verdict
from tests.mining.runs import failure_of, success_of
from tests.trajectories import PNG

TASKS = 6


def answers(prompt: str):
    """The first two tasks are sure, the next two reviewed, the others left to the rules."""
    kind = user_of(prompt) // 2
    if kind == 0:
        return completion(verdict("endpoint_incomplete", 0.9))
    if REVIEW not in prompt:
        return completion(verdict("ui_navigation", 0.6) if kind == 1 else "Hard to say.")
    return completion(verdict("endpoint_incomplete", 0.75) if kind == 1 else verdict("no_such_mode"))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    ImageStore(tmp_path / "pool").put(PNG)
    runs = [run(number) for number in range(TASKS) for run in (success_of, failure_of)]
    write_dataset(tmp_path / "pool", runs, "trajectories")
    return tmp_path / "pool"


def mine(pool: Path, workdir: Path, server: PromptServer, **actor: float) -> dict[str, AuditPair]:
    config = get_config("paper")
    config.pools = str(pool)
    chat = {"kind": "chat", "base_url": f"{server.url}/v1", "calls": 1, "max_tokens": 100}
    config.update({"actor": chat | actor})
    workdir.mkdir(exist_ok=True)
    collection.mine(config, workdir)
    return {audit.task_id: audit for audit in read_dataset(workdir / "audit", AuditPair)}


def test_the_model_the_review_and_the_rules_decide(tmp_path, pool):
    with PromptServer(answers) as server:
        audits = mine(pool, tmp_path / "mine", server)
        assert len(server.calls) == 2 + 2 * 4
        sources = [audits[task].label_source for task in sorted(audits)]
        assert sources == ["judge"] * 2 + ["review"] * 2 + ["rule"] * 2
        report = json.loads((tmp_path / "mine/report.json").read_text())
        assert report["label_sources"] == {"judge": 2, "review": 2, "rule": 2}
        # The model's answers are kept with the decision, used or not.
        last = audits[max(audits)]
        assert any("Hard to say." in note for note in last.notes)
        assert any("no_such_mode" in note for note in last.notes)

        (tmp_path / "mine/report.json").unlink()
        assert mine(pool, tmp_path / "mine", server) == audits
        assert len(server.calls) == 10 == kept_in(tmp_path / "mine" / CALLS)


def test_the_money_cap_ends_the_stage_and_keeps_answers(tmp_path, pool):
    with PromptServer(answers) as server:
        with pytest.raises(BudgetError):
            mine(pool, tmp_path / "mine", server, price=(100.0, 0.0, 100.0), cap_usd=0.5)
        answered = kept_in(tmp_path / "mine" / CALLS)
        assert 0 < answered == len(server.calls) < 10
        assert not (tmp_path / "mine/prompts").exists() and not (tmp_path / "mine/report.json").exists()
        mine(pool, tmp_path / "mine", server, price=(100.0, 0.0, 100.0), cap_usd=500.0)
        assert len(server.calls) == 10
