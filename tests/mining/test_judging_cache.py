"""An answer is paid for once: over runs, threads and a spent budget."""

import pytest

from collection.llm.calls import CALLS
from collection.mining.label import FailureLabeler, map_threads
from rmsweb_jax.errors import UserError
from tests.judges.server import model_at
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.mining.label_server import REVIEW, kept_in, user_of, verdict
from tests.mining.runs import pair_of

NAMES = ("ui_navigation", "filter_context", "target_discovery")


def by_user(prompt):
    """Each task has a category of its own; every third is named by a review."""
    user = user_of(prompt)
    unsure = user % 3 == 0 and REVIEW not in prompt
    return completion(verdict(NAMES[user % 3], 0.5 if unsure else 0.9))


def labels_of(model, pairs, threads=1):
    """The labels and the numbers of questions that were asked and known."""
    labeler = FailureLabeler(model)
    labels = map_threads(lambda pair: labeler.label(pair.success, pair.localization), pairs, threads)
    return labels, labeler.requests


def test_threads_label_in_order_and_ask_each_question_once(tmp_path):
    pairs = [pair_of(number % 20) for number in range(60)]
    with PromptServer(by_user) as server:
        found, _ = labels_of(model_at(server, file=tmp_path / CALLS), pairs, threads=8)
        assert [label.category for label in found] == [NAMES[number % 20 % 3] for number in range(60)]
        # 20 first judgments and the reviews of 0, 3, ..., 18.
        assert len(server.calls) == len(set(server.prompts)) == 27 == kept_in(tmp_path / CALLS)


def test_after_an_error_no_pair_is_begun(tmp_path):
    def refuses(prompt):
        return Answer(401, {"error": {"message": "no such key"}}) if user_of(prompt) == 4 else by_user(prompt)

    with PromptServer(refuses) as server:
        with pytest.raises(UserError, match="check the API key"):
            labels_of(model_at(server, file=tmp_path / CALLS), map(pair_of, (1, 2, 4, *range(5, 30))))
        assert [user_of(prompt) for prompt in server.prompts] == [1, 2, 4]
