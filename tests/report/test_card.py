"""The lines on judges in a model card."""

import dataclasses

from collection.report.card import Card, render_card
from collection.report.evaluations import Evaluation
from rmsweb_jax.records.schema import JudgeFingerprint
from tests.evaluation.made import REWARD
from tests.report.evaluated import make_results


def test_a_card_names_the_judges_of_each_evaluation():
    official = JudgeFingerprint(
        method="webjudge",
        source="github.com/microsoft/fara@9b8af39",
        model="o4-mini",
        model_version="o4-mini-2025-04-16",
        temperature=0.0,
    )
    judged = {"online_mind2web": ((official, 9),), "miniwob": ((REWARD, 3),), "webvoyager": ()}
    evaluations = [
        Evaluation(
            "sft", name, dataclasses.replace(make_results("sft", name, 0.5), judges=judges), {}, seed=0
        )
        for name, judges in judged.items()
    ]
    card = Card(
        name="n",
        license="apache-2.0",
        license_source="as given",
        base_model="",
        base="b",
        format="merged",
        rank=8,
        stages=(),
        evaluations=evaluations,
        contamination=(),
        teachers=(),
        files=(),
    )
    lines = render_card(card).replace("\\", "").splitlines()
    assert [line for line in lines if line.startswith("- Judged by")] == [
        "- Judged by webjudge, model o4-mini-2025-04-16, temperature 0, from "
        f"github.com/microsoft/fara@9b8af39 (id {official.id}): sft on Online-Mind2Web (9 verdicts).",
        f"- Judged by reward (id {REWARD.id}): sft on MiniWoB++ (3 verdicts).",
        "- Judged by a judge that was not recorded: sft on WebVoyager.",
    ]
