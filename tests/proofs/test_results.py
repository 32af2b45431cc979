"""Results on disk: each page and the index are what their JSON files say."""

import importlib
import json

import pytest

from tests.proofs.index import index, proofs
from tests.proofs.result import RESULTS, digest, judged, render, sources

STORED = sorted(path.stem for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("name", STORED)
def test_a_page_is_made_from_its_figures(name):
    proof = importlib.import_module(f"tests.proofs.{name}").PROOF
    result = json.loads((RESULTS / f"{name}.json").read_bytes())
    assert proof.name == result["name"] == name
    assert result["claims"] == judged(proof, result["figures"])
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == render(proof, result)


def test_the_index_is_up_to_date():
    assert (RESULTS / "index.md").read_text(encoding="utf-8") == index()


def test_every_proof_has_a_summary():
    assert set(STORED) <= set(proofs())
    for name, summary in proofs().items():
        assert summary.endswith("."), name


def test_a_digest_covers_what_a_proof_starts_and_reads():
    names = {str(path.relative_to(RESULTS.parents[1])) for path in sources("tests.proofs.evaluation")}
    assert {
        "experiments/evaluate.py",
        "rmsweb_jax/serve/server.py",
        "configs/evaluate.py",
        "collection/browser/snapshot.js",
        "collection/agent/prompts/state.j2",
        "rmsweb_jax/tiny_base/model.safetensors",
    } <= names
    assert "tests/proofs/result.py" not in names


def test_a_digest_covers_only_the_names_that_are_used_of_a_lazy_package():
    names = {str(path.relative_to(RESULTS.parents[1])) for path in sources("docs.examples.score_a_reply")}
    assert "rmsweb_jax/api.py" in names
    names = {str(path.relative_to(RESULTS.parents[1])) for path in sources("tests.proofs.reward")}
    assert "rmsweb_jax/__init__.py" in names and "rmsweb_jax/api.py" not in names


def test_a_digest_ignores_comments_and_presentation(monkeypatch):
    from tests.proofs import result

    def changed(old: str, new: str) -> bool:
        own = RESULTS.parents[1] / "tests/proofs/kill.py"
        code = own.read_text(encoding="utf-8")
        assert old in code
        tree = result.without_docstrings(code.replace(old, new))
        with monkeypatch.context() as patch:
            patch.setattr(
                result, "_code", lambda path: tree if path == own else result._code.__wrapped__(path)
            )
            return digest("kill") != before

    before = digest("kill")
    assert not changed("SHARD_RECORDS = 5", "SHARD_RECORDS = 5  # records")
    assert not changed("no record is lost", "no record disappears")
    assert changed("SHARD_RECORDS = 5", "SHARD_RECORDS = 6")
