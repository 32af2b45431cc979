"""The fingerprint of a judge: in verdicts, records and results; old records are still read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.evaluation.results import gather_results, score
from collection.judges import evidence
from collection.judges.base import GAVE_UP
from collection.judges.model_judge import PROMPTS
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory
from tests.judges.runs import run
from tests.judges.server import Pictures, judge_at, says
from tests.judges.verdicts import outcome
from tests.llm.answers import candidate, completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer

OUTCOME, YES = "own_outcome", outcome("success")
FIELDS = {
    "method": st.sampled_from(["reward", "own_outcome"]),
    "source": st.sampled_from(["", "github.com/a/b@1"]),
    "model": st.sampled_from(["", "gpt-4o"]),
    "model_version": st.sampled_from(["", "gpt-4o-2024-08-06", "gpt-4o-2024-11-20"]),
    "prompt_sha256": st.sampled_from(["", "0" * 64]),
    "temperature": st.sampled_from([None, 0.0, 1.0]),
    "evidence": st.dictionaries(st.sampled_from("ab"), st.sampled_from("01")),
}
FINGERPRINTS = st.builds(JudgeFingerprint, **FIELDS)


def named(answer: Answer, **names: str) -> Answer:
    """An endpoint's answer that names its model."""
    assert isinstance(answer.body, dict)
    return Answer(body=answer.body | names)


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        ("chat", named(completion(YES), model="judge-1-2026-08-06")),
        ("gemini", named(candidate([{"text": YES}]), modelVersion="judge-1-2026-08-06")),
    ],
)
def test_a_verdict_names_judge_model_and_version_also_from_the_cache(api, answer, tmp_path):
    with PromptServer(lambda _: answer) as server:
        for _ in range(2):
            with judge_at(server, OUTCOME, file=tmp_path / "calls.jsonl", kind=api) as judge:
                verdict = judge.judge(run(), Pictures())
            assert verdict.fingerprint == judge.fingerprint.model_copy(
                update={"model_version": "judge-1-2026-08-06"}
            )
        assert len(server.calls) == 1
    found = verdict.fingerprint
    assert found is not None
    assert (found.method, found.model, found.temperature) == (OUTCOME, "judge-1", 0.0)
    assert len(found.prompt_sha256) == 64 and found.evidence["references"] == "False"


def test_a_verdict_without_a_call_or_a_reply_has_the_judges_fingerprint():
    refused = completion("", "content_filter")
    with PromptServer(lambda _: refused) as server, judge_at(server, OUTCOME) as judge:
        for one in (run(final_text=""), run()):
            verdict = judge.judge(one, Pictures())
            assert verdict.fingerprint == judge.fingerprint


def test_methods_differ_and_every_prompt_counts(monkeypatch):
    with PromptServer(says()) as server:
        found = []
        for method in PROMPTS:
            with judge_at(server, method) as judge:
                found.append(judge.fingerprint.prompt_sha256)
    assert len(set(found)) == len(PROMPTS)
    folder = Path(evidence.__file__).parent / "prompts"
    sources = {path.name: path.read_text() for path in folder.glob("*.j2")}
    environment = evidence._environment()
    for prompt in PROMPTS.values():
        before = evidence.prompt_sha256((prompt.template,))
        # Also one that it includes.
        for name in (prompt.template, "rules.j2"):
            with monkeypatch.context() as patch:
                changed = sources | {name: sources[name] + "x"}
                patch.setattr(environment.loader, "get_source", lambda _, key, c=changed: (c[key], key, None))
                evidence.prompt_sha256.cache_clear()
                assert evidence.prompt_sha256((prompt.template,)) != before
            evidence.prompt_sha256.cache_clear()


@given(FINGERPRINTS, FINGERPRINTS)
def test_equal_ids_are_equal_fingerprints_in_any_order(one, other):
    turned = one.model_copy(update={"evidence": dict(reversed(one.evidence.items()))})
    assert (one.id == other.id) is (one == other) and one.id == turned.id


def test_results_and_report_name_each_judge_once_and_old_files_are_read():
    asked = JudgeFingerprint(method="own_outcome", model="gpt-4o", model_version="gpt-4o-2024-08-06")
    rule = asked.model_copy(update={"model_version": ""})
    runs = [
        run(task_id=f"web/shop.test/{number}", judge="x", judge_fingerprint=one, judge_text=text)
        for number, (one, text) in enumerate(
            ((rule, GAVE_UP), (asked, "SUCCESS"), (None, "SUCCESS"), (asked, "SUCCESS"))
        )
    ]
    results = gather_results("sft", "m", 1, runs)
    assert results.judges == ((asked, 2),)
    assert score(results)["judges"] == [{"id": asked.id, "verdicts": 2, **asked.model_dump()}]
    record = json.loads(runs[1].model_dump_json())
    assert Trajectory.model_validate(record) == runs[1]
    del record["judge_fingerprint"]
    assert Trajectory.model_validate(record).judge_fingerprint is None
