"""The line on judges in a model card."""

from collection.report.card import judge_lines
from collection.report.evaluations import Evaluation
from rmsweb_jax.records.schema import JudgeFingerprint
from tests.report.evaluated import make_results


def test_a_card_names_the_judges_of_each_evaluation():
    official = JudgeFingerprint(
        method="webjudge",
        source="github.com/microsoft/fara@9b8af39",
        model="o4-mini",
        model_version="o4-mini-2025-04-16",
        temperature=0.0,
    )
    reward = JudgeFingerprint(method="reward")
    judged = {"online_mind2web": (official,), "miniwob": (reward,), "webvoyager": ()}
    evaluations = [
        Evaluation(
            "sft", name, make_results("sft", name, 0.5).model_copy(update={"judges": judges}), {}, seed=0
        )
        for name, judges in judged.items()
    ]
    assert judge_lines(evaluations) == [
        "sft on Online-Mind2Web: judged by webjudge by o4-mini-2025-04-16 at temperature 0, from "
        f"github.com/microsoft/fara@9b8af39 ({official.id}).",
        f"sft on MiniWoB++: judged by reward ({reward.id}).",
        "sft on WebVoyager: judged by a judge that was not recorded.",
    ]
