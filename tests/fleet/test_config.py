"""The fleet made from an experiment's config: actor, judges, settings for live sites."""

import pytest

from collection.fleet.config import CollectSettings, resolved
from collection.judges.build import judge_config
from collection.judges.notes import Criterion, Reference, TaskNotes
from configs.collect import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config


def settings(variant="smoke", **sections):
    config = get_config(variant).to_dict()
    config["actor"]["kind"] = "scripted"
    for name, changes in sections.items():
        config[name] |= changes
    return from_config(CollectSettings, config)


def made(run, notes=None):
    """The settings and the judge of a run."""
    run = resolved(run)
    return run, judge_config(run.judge, run.actor, notes or {})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"actor": {"kind": "chat"}}, r"config\.actor\.base_url is empty"),
        ({"actor": {"kind": "policy"}}, r"config\.actor\.model is empty"),
        ({"actor": {"kind": "oracle"}}, r"config\.actor\.kind is 'oracle': use one of auto, scripted"),
        ({"actor": {"kind": "gemini"}}, "set GEMINI_API_KEY"),
        ({"judge": {"kind": "actor"}}, "the actor is scripted, which cannot judge"),
        ({"judge": {"kind": "oracle"}}, r"config\.judge\.kind is 'oracle': use one of none, actor"),
        ({"judge": {"kind": "chat"}}, r"config\.judge\.base_url is empty"),
        ({"judge": {"kind": "gemini", "method": "oracle"}}, r"config\.judge\.method is 'oracle': use one of"),
        ({"fleet": {"engine": "slurm"}}, r"config\.fleet\.engine is 'slurm': use one of local, ray"),
    ],
)
def test_what_cannot_be_is_refused(sections, message, monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(UserError, match=message):
        made(settings(**sections))


@pytest.mark.parametrize("key,kind", [("", "scripted"), ("key", "gemini")])
def test_auto_takes_gemini_when_there_is_a_key(key, kind, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", key)
    assert resolved(settings(actor={"kind": "auto"})).actor.kind == kind


def test_live_sites_are_judged_by_the_actors_model_and_held_to_their_own(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    run, judge = made(settings("web", actor={"kind": "gemini", "cap_usd": 5.0}))
    assert judge is not None and judge.method == "own_outcome"
    assert (judge.model.kind, judge.model.temperature, judge.model.cap_usd) == ("gemini", 0.0, 5.0)
    assert run.guard.task_site
    assert "duckduckgo" in run.search_urls and not run.extra_actions
    assert made(settings())[1] is None


def test_a_judge_of_its_own_shares_the_runs_limits():
    endpoint = {"kind": "chat", "base_url": "http://127.0.0.1:9/v1", "model": "judge"}
    _, judge = made(settings(judge=endpoint, actor={"requests_per_minute": 30.0}))
    assert judge is not None and (judge.model.model, judge.model.requests_per_minute) == ("judge", 30.0)


@pytest.mark.parametrize("shown", [False, True])
def test_notes_reach_the_judge_and_reference_answers_only_on_demand(shown):
    reference = Reference(answer="12 EUR", golden=True)
    rubric = (Criterion(criterion="Tells the price", max_points=2),)
    endpoint = {
        "kind": "chat",
        "base_url": "http://127.0.0.1:9/v1",
        "method": "own_rubric",
        "reference": shown,
    }
    notes = {"t": TaskNotes(reference=reference, rubric=rubric)}
    _, judge = made(settings(judge=endpoint), notes)
    assert judge is not None and judge.method == "own_rubric"
    assert judge.notes == {"t": TaskNotes(reference=reference if shown else None, rubric=rubric)}
