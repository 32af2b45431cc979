import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.sft.data import SftData
from rmsweb_jax.sft.evaluate import Evaluator, choose_actions
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.training.mesh import make_mesh
from tests.policies import REPLY, random_messages
from tests.qwen.test_sharded import figures, free_port
from tests.sft.evaluate_together import CONFIG, open_corpus
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(random_policy, tmp_path_factory) -> SftData:
    """Sixteen samples of eight tasks, every fourth an extraction; about half of the tasks are held out."""
    folder = tmp_path_factory.mktemp("corpus")
    images = ImageStore(folder)

    def sample(number: int) -> SftSample:
        extraction = number % 4 == 3
        return SftSample(
            sample_id=f"s{number}",
            task_id=f"t{number // 2}",
            site="s",
            kind="text" if extraction else "action",
            messages=random_messages(number, images, repeats=1 + number % 3),
            response=f"{number} prices" if extraction else REPLY % number,
        )

    write_dataset(folder, (sample(number) for number in range(16)), "sft_samples")
    return open_corpus(random_policy, folder, make_mesh())


@pytest.fixture(scope="module")
def model(random_policy):
    return load_model(random_policy)


@pytest.fixture(scope="module")
def evaluated(data, model):
    graphdef, params, frozen = split_model(model, "all")
    return Evaluator(CONFIG, data, graphdef, make_mesh())(params, frozen)


def test_metrics_are_those_of_the_samples_one_by_one(data, model, evaluated):
    metrics, replies = evaluated
    losses, right, tokens, exact = [], 0, 0, []
    forward = nnx.jit(lambda model, inputs: nnx.log_softmax(model.logits(model(inputs))))
    for batch in data.held_out_batches():
        log_probs = np.asarray(forward(model, batch.inputs))
        scored, branches = batch.scored, np.asarray(batch.scored.branch)
        for row, branch in {(row, branches[row, at]) for row, at in np.argwhere(branches > 0).tolist()}:
            places = branches[row] == branch
            scores, wanted = log_probs[row, scored.index[row, places]], scored.tokens[row, places]
            losses.append(-scores[np.arange(len(wanted)), wanted].mean())
            matches, action = scores.argmax(-1) == wanted, scored.values["action"][row, places] > 0
            right, tokens = right + matches.sum(), tokens + len(wanted)
            if action.any():
                exact.append(matches[action].all())
    assert len(losses) == len(data.held_out) > len(exact) > 0
    assert metrics["eval/loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert metrics["eval/token_accuracy"] == pytest.approx(right / tokens)
    assert metrics["eval/teacher_forced_action_accuracy"] == np.mean(exact)
    # A random policy says nothing that could be parsed, and does not end.
    assert (metrics["eval/action_reward"], metrics["eval/action_accuracy"]) == (0, 0)
    assert 0 <= metrics["eval/truncated"] <= 1
    assert len(replies) == 4 and all(reply.reply and reply.reward == 0 for reply in replies)


def test_replies_are_scored_against_their_targets(data, model):
    config = CONFIG.model_copy(update={"replies": 3})
    actions = choose_actions(data, config.replies)
    targets = [sample.response for sample, _ in actions]
    asked = []

    def score(reply: str, target: str) -> float:
        asked.append((reply, target))
        return (1.0, 0.3, 0.7)[targets.index(target)]

    evaluator = Evaluator(config, data, None, make_mesh(), score)
    metrics, replies = evaluator.greedy_replies(model)
    assert metrics["eval/action_reward"] == pytest.approx(2 / 3)
    assert metrics["eval/action_accuracy"] == pytest.approx(1 / 3)
    assert asked == [(reply.reply, reply.target) for reply in replies]
    assert [(reply.sample_id, reply.target) for reply in replies] == [
        (sample.sample_id, sample.response) for sample, _ in actions
    ]
    assert evaluator.greedy_replies(model) == (metrics, replies)


def test_replies_are_to_the_same_held_out_actions_in_every_run(data):
    held_out = {data.source[number].sample_id for number in data.held_out.tolist()}
    chosen = [sample for sample, size in choose_actions(data, 100) if size.sample_id == sample.sample_id]
    assert {sample.sample_id for sample in chosen} <= held_out
    assert all(sample.kind == "action" for sample in chosen) and len(chosen) < len(held_out)
    assert [sample for sample, _ in choose_actions(data, 2)] == chosen[:2]
    tasks = [
        {data.source[number].task_id for number in part.tolist()} for part in (data.train, data.held_out)
    ]
    assert not tasks[0] & tasks[1]


@pytest.mark.slow
def test_two_processes_evaluate_as_one_does_share_the_work_and_stop_together(
    data, evaluated, random_policy, tmp_path
):
    metrics, replies = evaluated
    corpus = tmp_path / "corpus"
    shutil.copytree(data.source.folder, corpus)
    arguments = [str(random_policy), str(corpus), f"127.0.0.1:{free_port()}", "2"]
    found = figures(
        [
            subprocess.Popen(
                [sys.executable, "-m", "tests.sft.evaluate_together", *arguments, str(number)],
                cwd=ROOT,
                env=device_environment(1),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
    )
    for view in found:
        assert view["stop"] == [False, True]
        assert view["metrics"] == pytest.approx(metrics, abs=1e-5)
        assert view["replies"] == [reply.reply for reply in replies]
    assert [len(view["measured"]) for view in found] == [8, 8]
    shares = [sum(view["encoded"].values()) for view in found]
    assert abs(shares[0] - shares[1]) <= 1, shares
    measured, encoded = (
        sum((Counter(view[name]) for view in found), start=Counter()) for name in ("measured", "encoded")
    )
    assert measured == {size.sample_id: 1 for size in data.sizes}
    # Once for the loss, and once for the reply.
    held_out = Counter(data.sizes[number].sample_id for number in data.held_out)
    assert encoded == held_out + Counter(reply.sample_id for reply in replies)
