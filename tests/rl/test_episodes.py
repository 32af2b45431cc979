"""Groups of episodes: which of them count, what is trained on of them, and what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.rl import get_config
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.episodes import FORK_LIST, FORKS, TEACHER, Fork
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, CallUsage, Incident, RlPrompt, SampledTokens
from rmsweb_jax.rl.config import Objective, OnlineConfig
from rmsweb_jax.rl.episodes import (
    TOO_FEW,
    Begun,
    EpisodeRollouts,
    Tallied,
    count_targets,
    episode_metrics,
    masked,
)
from rmsweb_jax.rl.metrics import readable_groups, rollout_metrics
from rmsweb_jax.rl.prompts import open_rl_data
from rmsweb_jax.rl.rollout import MiniBatch, SampledGroups, mini_batches
from rmsweb_jax.rl.step import trees_of
from rmsweb_jax.settings import from_config
from tests.agent.plain_episode import CLICK, DONE, TASK, Lines, Page, reply, run

TWO_STEPS = (reply(CLICK), reply(DONE))
POLICY = "policy-000003-abc"
CONFIG = OnlineConfig(prompts="prompts", model="model", max_prompt_tokens=4096, num_samples=4)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompts")
    messages = run(Page(), Lines(reply(DONE))).steps[0].messages
    prompt = RlPrompt(
        prompt_id="p", task_id="miniwob/p/1", site="p", category="", messages=messages, target=reply(CLICK)
    )
    write_dataset(folder, [prompt], "rl_prompts")
    return folder


@pytest.fixture(scope="module")
def encoder(prompts):
    return Encoder.load(resolve_model("tiny_base"), ImageStore(prompts), 16_384)


@pytest.fixture(scope="module")
def data(prompts, encoder):
    return open_rl_data(
        prompts, encoder, corpus="mined", max_prompt_tokens=4096, held_out=0.0, workdir=prompts
    )


def episode(encoder, attempt=1, success=True, texts=TWO_STEPS, **changes):
    """An episode as a policy's server and the loop record it."""
    played = run(Page(1.0 if success else 0.0), Lines(*texts))
    steps = []
    for step in played.steps:
        tokens = encoder.processor.encode_response(step.response, newline=False).tokens.tolist()
        sampled = SampledTokens(tokens=tuple(tokens), log_probs=(-0.5,) * len(tokens), policy=POLICY)
        size = encoder.prompt_size("", "", step.messages).prompt_length
        steps.append(step.model_copy(update={"sampled": sampled, "usage": CallUsage(prompt_tokens=size)}))
    update = {"steps": tuple(steps), "attempt": attempt, "trajectory_id": f"miniwob/p/1#policy-{attempt}"}
    return played.model_copy(update=update | changes)


def three_episodes(encoder):
    """A success, a failure with the same steps, and one that ends at once."""
    short = episode(encoder, 3, success=False, texts=(reply(DONE),))
    return [episode(encoder, 1), episode(encoder, 2, success=False), short]


class Source:
    """Has the same data set for all tasks, and keeps the calls."""

    teaches = False

    def __init__(self, folder, begun=None):
        self.folder, self.earlier, self.calls, self.stopped = folder, begun or {}, [], 0

    def begin(self, first, count, policy, tally):
        self.calls.append((first, policy))

    def begun(self, first):
        return self.earlier.get(first)

    def wait(self, first):
        return self.folder

    def stop(self):
        self.stopped += 1


class Server:
    """The names of adapters at a server; `left` are those of a killed run."""

    def __init__(self, *policies, left=()):
        self.policies, self.left, self.held = list(policies), left, set()

    @property
    def policy(self):
        return self.policies[-1]

    def load(self, model, version):
        known = [*self.left, *self.policies]
        self.policies = [*(name for name in known if name in self.held), policy(version)]
        self.left = ()


def policy(version):
    return f"policy-{version:06d}-abc"


def take(tmp_path, data, runs, config=CONFIG):
    """The group that an online run makes of episodes of one task."""
    folder = tmp_path / "episodes"
    write_dataset(folder, runs, "trajectories")
    rollouts = EpisodeRollouts(Source(folder), Server(POLICY), data, config)  # pyright: ignore
    try:
        (group,) = rollouts.take(1)
    finally:
        rollouts.close()
    return group


def responses_of(group):
    return sum(len(turn.responses) for turn in group.sampled)


def change_last(trajectory, **changes):
    *before, last = trajectory.steps
    return trajectory.model_copy(update={"steps": (*before, last.model_copy(update=changes))})


def test_each_prompt_of_the_episodes_is_computed_once(tmp_path, encoder, data):
    runs = three_episodes(encoder)
    group = take(tmp_path, data, runs)
    assert group.fate == "accepted" and group.rewards.tolist() == [1.0, 0.0, 0.0]
    first, second = group.turns
    # All begin at one page; two of them have the same second prompt.
    assert len(first.responses) == 3 and len(second.responses) == 2
    advantage = (1 - 1 / 3) / (np.std([1, 0, 0], ddof=1) + 1e-6)
    assert first.advantages == pytest.approx([advantage, -advantage / 2, -advantage / 2])
    assert second.advantages == pytest.approx([advantage, -advantage / 2])
    assert [encoder.processor.decode_response(one) for one in second.responses] == [reply(DONE)] * 2
    assert not any(turn.truncated.any() for turn in group.turns)
    metrics = rollout_metrics([group])
    assert metrics["reward/mean"] == pytest.approx(1 / 3) and metrics["gates/accepted"] == 1.0
    assert episode_metrics([group])["episodes/turns"] == 5
    rows = list(readable_groups([group], encoder.processor.decode_response, 2))
    assert rows[0]["responses"][0]["field"] == "" and rows[0]["target"] == ""


def test_what_was_played_is_counted_by_template(tmp_path, encoder, data):
    folder = tmp_path / "episodes"
    lost = episode(encoder, 3, success=False, outcome="crashed")
    write_dataset(folder, [episode(encoder, 1), episode(encoder, 2, success=False), lost], "trajectories")
    rollouts = EpisodeRollouts(
        *(Source(folder), Server(POLICY), data, CONFIG),  # pyright: ignore
        tally={"miniwob/p": Tallied(3, 0.4), "miniwob/q": Tallied(1, 1.0)},
    )
    rollouts.take(1)
    rollouts.close()
    assert rollouts.tally == {"miniwob/p": (4, pytest.approx(0.4 + 0.3 * 0.1)), "miniwob/q": (1, 1.0)}


def test_failures_may_weigh_less(tmp_path, encoder, data):
    runs = three_episodes(encoder)
    whole = take(tmp_path / "whole", data, runs)
    half = take(tmp_path / "half", data, runs, CONFIG.model_copy(update={"negative_weight": 0.5}))
    for one, other in zip(half.turns, whole.turns, strict=True):
        factors = np.where(other.advantages < 0, 0.5, 1.0)
        assert one.advantages.tolist() == (factors * other.advantages).tolist()
    with pytest.raises(UserError, match=r"negative_weight is -1: make it 0 or more"):
        from_config(OnlineConfig, {"prompts": "p", "model": "m", "negative_weight": -1})


def test_without_a_weight_failures_are_left_out_but_counted(tmp_path, encoder, data):
    runs = three_episodes(encoder)
    config = CONFIG.model_copy(update={"negative_weight": 0.0, "train_groups": 1, "mini_batch_groups": 1})
    whole, group = (
        take(tmp_path / name, data, runs, one) for name, one in (("whole", CONFIG), ("part", config))
    )
    assert [len(turn.responses) for turn in group.turns] == [1, 1]
    assert [turn.advantages[0] for turn in group.turns] == [turn.advantages[0] for turn in whole.turns]
    assert episode_metrics([group]) == episode_metrics([whole])
    assert rollout_metrics([group]) == pytest.approx(rollout_metrics([whole]))
    (batch,) = mini_batches(SampledGroups((group,), (), (group,), 1, False), config)
    branches = [branch for tree in trees_of(batch, salvage=True) for branch in tree.made().branches]
    # Both turns of the episode that succeeded share its weight.
    assert [np.sum(branch.values["pg_weight"]) for branch in branches] == pytest.approx([0.5, 0.5])
    # A turn of a failed episode that takes a verified action has an advantage.
    bonus = take(tmp_path / "bonus", data, runs, config.model_copy(update={"step_bonus": 1.0}))
    assert [len(turn.responses) for turn in bonus.turns] == [2, 1]


def test_without_a_weight_a_rejected_group_is_its_anchor_alone(tmp_path, encoder, data):
    config = CONFIG.model_copy(update={"negative_weight": 0.0})
    group = take(tmp_path, data, [episode(encoder, number, success=False) for number in (1, 2)], config)
    assert group.fate == "unsolved" and responses_of(group) == 4
    (anchor,) = group.turns
    assert anchor.prompt.target == reply(CLICK) and anchor.responses == ()


@pytest.mark.parametrize(("credit", "expected"), [("episode", [1 / 4, 1 / 2, 1 / 4]), ("turn", [1 / 3] * 3)])
def test_an_episodes_weight_is_that_of_its_turns(tmp_path, encoder, data, credit, expected):
    runs = [episode(encoder, 1), episode(encoder, 2, success=False, texts=(reply(DONE),))]
    config = CONFIG.model_copy(update={"credit": credit, "train_groups": 1, "mini_batch_groups": 1})
    group = take(tmp_path, data, runs, config)
    (batch,) = mini_batches(SampledGroups((group,), (), (group,), 1, False), config)
    branches = [branch for tree in trees_of(batch, salvage=True) for branch in tree.made().branches]
    # The first turns of both, then the second one of the first.
    for name in ("pg_weight", "kl_weight"):
        assert [np.sum(branch.values[name]) for branch in branches] == pytest.approx(expected)


def test_the_verified_action_of_a_mined_decision_has_a_bonus(tmp_path, encoder, data):
    runs = three_episodes(encoder)
    without = take(tmp_path / "without", data, runs)
    group = take(tmp_path / "with", data, runs, CONFIG.model_copy(update={"step_bonus": 0.25}))
    bonuses = [
        np.round(turn.advantages - before.advantages, 6).tolist()
        for turn, before in zip(group.turns, without.turns, strict=True)
    ]
    # The first two click on the page of the decision, as it does; the later page is another.
    assert bonuses == [[0.25, 0.25, 0.0], [0.0, 0.0]]
    with pytest.raises(UserError, match=r"step_bonus is -1: make it 0 or more"):
        from_config(OnlineConfig, {"prompts": "p", "model": "m", "step_bonus": -1})


def test_a_group_without_success_anchors_a_verified_reply_to_its_task(tmp_path, encoder, data):
    group = take(tmp_path, data, [episode(encoder, number, success=False) for number in (1, 2)])
    assert group.fate == "unsolved" and responses_of(group) == 4
    *_, anchor = group.turns
    assert anchor.prompt.target == reply(CLICK) and anchor.responses == ()
    trees = trees_of(MiniBatch((), group.turns), salvage=True)
    anchored = [
        branch for tree in trees for branch in tree.made().branches if "salvage_weight" in branch.values
    ]
    assert len(anchored) == 1 and np.sum(anchored[0].values["salvage_weight"]) == pytest.approx(1.0)
    other = dataclasses.replace(data, sizes={0: dataclasses.replace(data.sizes[0], task_id="another")})
    group = take(tmp_path / "other", other, [episode(encoder, number, success=False) for number in (1, 2)])
    assert not any(turn.prompt.target for turn in group.turns)


def test_a_group_without_success_anchors_the_teachers(tmp_path, encoder, data):
    other = dataclasses.replace(data, sizes={0: dataclasses.replace(data.sizes[0], task_id="another")})
    config = CONFIG.model_copy(update={"negative_weight": 0.0})
    taught = tmp_path / "episodes" / TEACHER
    failed = [episode(encoder, number, success=False) for number in (1, 2)]
    write_dataset(taught, [episode(encoder, 1, success=False)], "trajectories")
    assert take(tmp_path, other, failed, config).turns == ()
    write_dataset(taught, [episode(encoder, 1)], "trajectories")
    group = take(tmp_path, other, failed, config)
    assert group.fate == "unsolved"
    assert [turn.prompt.target for turn in group.turns] == [reply(CLICK), reply(DONE)]
    counts = episode_metrics([group], [group])
    names = ("unsolved", "with_target", "anchored")
    assert [counts[f"salvage/groups_{name}"] for name in names] == [1, 1, 1]
    # One that is accepted needs none.
    assert not any(
        turn.prompt.target for turn in take(tmp_path, other, three_episodes(encoder), config).turns
    )


def drawn_second(trajectory):
    """A fork: its first reply is a recorded one."""
    first, *rest = trajectory.steps
    return trajectory.model_copy(update={"steps": (first.model_copy(update={"sampled": None}), *rest)})


def test_credit_at_a_fork_takes_the_place_of_the_episodes_turns(tmp_path, encoder, data):
    config = CONFIG.model_copy(update={"credit": "fork"})
    runs = three_episodes(encoder)
    forks = [drawn_second(episode(encoder, number, success=number > 1)) for number in (1, 2, 3)]
    folder = tmp_path / "episodes" / FORKS
    write_dataset(folder, forks, "trajectories")
    place = Fork(task_id=TASK.task_id, replies=(reply(CLICK),), errors=("",), page="f")
    (tmp_path / "episodes" / FORK_LIST).write_text(f"[{place.model_dump_json()}]")
    group = take(tmp_path, data, runs, config)
    (turn,) = group.turns
    assert [encoder.processor.decode_response(one) for one in turn.responses] == [reply(DONE)] * 3
    assert turn.rewards.tolist() == [0.0, 1.0, 1.0] and turn.total_weight == 3.0
    assert turn.advantages == pytest.approx(np.array([-2, 1, 1]) / 3**0.5, abs=1e-5)
    assert turn.prompt.messages == runs[0].steps[1].messages
    assert (
        group.rewards.tolist() == [1.0, 0.0, 0.0] and episode_metrics([group])["episodes/groups_forked"] == 1
    )
    # Without a contrast, on another page, or lost, they do not count.
    page = forks[0].steps[1].observation.model_copy(update={"fingerprint": "g"})
    elsewhere = change_last(forks[0], observation=page)
    lost = forks[0].model_copy(update={"outcome": "crashed"})
    # The tokens of the next, greedy step are not taken for those that are missing.
    unread = episode(encoder, 1, success=False, texts=(reply(CLICK), "click", reply(DONE)))
    first, second, third = unread.steps
    unread = unread.model_copy(update={"steps": (first, second.model_copy(update={"sampled": None}), third)})
    cases = (forks[1:], [elsewhere, forks[1]], [lost, forks[2]], [unread, forks[1]])
    for number, others in enumerate(cases):
        write_dataset(folder, others, "trajectories")
        group = take(tmp_path, data, runs, config)
        assert not group.forked and responses_of(group) == 5, number


def test_a_group_that_is_solved_has_no_anchor(tmp_path, encoder, data):
    group = take(tmp_path, data, [episode(encoder, 1), episode(encoder, 2)])
    assert group.fate == "solved" and not any(turn.prompt.target for turn in group.turns)


def test_a_solved_group_anchors_its_shortest_success_where_that_is_asked(tmp_path, encoder, data):
    config = CONFIG.model_copy(update={"anchor_solved": True, "negative_weight": 0.0})
    short = episode(encoder, 3, texts=(reply(DONE),))
    group = take(tmp_path / "short", data, [episode(encoder, 1), episode(encoder, 2), short], config)
    assert [turn.prompt.target for turn in group.turns] == [reply(DONE)] and group.fate == "solved"
    (tree,) = trees_of(MiniBatch((), group.turns), salvage=True)
    (branch,) = tree.made().branches
    expected = encoder.processor.encode_response(reply(DONE), newline=True).tokens.tolist()
    assert branch.tokens.tolist() == expected
    # Not a reply that was repaired, nor one that is too long.
    repaired = change_last(episode(encoder, 1), repaired=True)
    group = take(tmp_path / "repaired", data, [repaired, episode(encoder, 2)], config)
    assert [turn.prompt.target for turn in group.turns] == [reply(CLICK)]
    tight = config.model_copy(update={"max_response_tokens": len(expected) - 1})
    assert take(tmp_path / "tight", data, [short, short.model_copy(update={"attempt": 4})], tight).turns == ()


REFUSED = Incident(kind="refused", detail="http://b.test/")


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, ""),
        ({"outcome": "max_steps"}, ""),
        ({"outcome": "failures"}, ""),
        ({"outcome": "crashed"}, "browser or application lost"),
        ({"outcome": "unreachable"}, "start page not reached"),
        ({"outcome": "captcha"}, "refused by the site"),
        ({"outcome": "timeout"}, "time limit of the machine"),
        ({"reward": None}, ""),
        ({"live": True, "reward": None, "judge": ""}, "no verdict"),
        ({"live": True, "reward": None, "judge": "", "outcome": "max_steps"}, ""),
        ({"live": True, "reward": None, "judge": "own_outcome"}, ""),
    ],
)
def test_faults_are_not_the_policys(encoder, change, expected):
    change = dict(change)
    if change.pop("live", False):
        change["task"] = TASK.model_copy(update={"environment": "web"})
    failed = episode(encoder, success=False, **change)
    assert masked(failed) == expected
    assert masked(failed.model_copy(update={"success": True})) == ""


def test_guard_and_another_first_page_mask_a_failure(encoder):
    failed = episode(encoder, success=False)
    assert masked(change_last(failed, incidents=(REFUSED,))) == "refused by the guard"
    went = change_last(
        failed, incidents=(REFUSED,), results=(ActionResult(action="go_to_url", text="Refused"),)
    )
    assert masked(went) == ""
    assert masked(failed, "f") == "" and masked(failed, "another") == "another first page"
    assert masked(episode(encoder), "another") == "another first page"


@given(faults=st.lists(st.sampled_from(["crashed", "unreachable", "timeout"]), max_size=3))
@settings(max_examples=8)
def test_lost_episodes_change_nothing_of_a_group(tmp_path_factory, encoder, data, faults):
    runs = [episode(encoder, 1), episode(encoder, 2, success=False), episode(encoder, 3, success=False)]
    lost = [episode(encoder, 4 + at, success=False, outcome=fault) for at, fault in enumerate(faults)]
    whole = take(tmp_path_factory.mktemp("whole"), data, runs)
    config = CONFIG.model_copy(update={"max_masked": 1.0})
    group = take(tmp_path_factory.mktemp("lost"), data, [*runs, *lost], config)
    assert group.rewards.tolist() == whole.rewards.tolist() and len(group.faults) == len(faults)
    for one, other in zip(group.turns, whole.turns, strict=True):
        assert one.advantages.tolist() == other.advantages.tolist()
        assert [a.tolist() for a in one.responses] == [b.tolist() for b in other.responses]


def test_faults_count_as_failures_where_masking_is_off(tmp_path, encoder, data):
    runs = [episode(encoder, 1), episode(encoder, 2, success=False, outcome="crashed", steps=())]
    group = take(tmp_path, data, runs, CONFIG.model_copy(update={"mask_faults": False}))
    assert group.fate == "accepted" and group.rewards.tolist() == [1.0, 0.0] and group.faults == ()
    assert responses_of(group) == 2 and all((turn.advantages > 0).all() for turn in group.turns)


def test_a_group_with_too_few_episodes_is_left_out(tmp_path, encoder, data):
    runs = [episode(encoder, 1), episode(encoder, 2, success=False, outcome="crashed")]
    group = take(tmp_path, data, runs)
    assert group.fate == TOO_FEW and group.turns == () and not group.accepted
    assert episode_metrics([group])["episodes/groups_too_few"] == 1
    assert "reward/mean" not in rollout_metrics([group])


def test_a_run_most_of_whose_episodes_are_lost_stops(tmp_path, encoder, data):
    runs = [episode(encoder, number, success=False, outcome="crashed") for number in (1, 2)]
    runs.append(episode(encoder, 3))
    with pytest.raises(UserError, match=r"2 of 3 episodes have no reward.*2 browser or application lost"):
        take(tmp_path, data, runs)
    # The same command plays them again.
    assert [path.name for path in tmp_path.iterdir()] == ["episodes-refused-1"]


def test_prompts_that_the_server_refuses_are_left_out(tmp_path, encoder, data):
    runs = [
        change_last(episode(encoder, 1), sampled=None, usage=CallUsage()),
        episode(encoder, 2, success=False),
    ]
    group = take(tmp_path, data, runs)
    # Those of both episodes: it is one prompt.
    assert group.too_long == 2 and len(group.turns) == 1


def test_prompts_over_the_limit_are_left_out(tmp_path, encoder, data):
    runs = [episode(encoder, 1), episode(encoder, 2, success=False)]
    longest = max(step.usage.prompt_tokens for step in runs[0].steps)
    group = take(tmp_path, data, runs, CONFIG.model_copy(update={"max_prompt_tokens": longest - 1}))
    assert group.too_long == 2 and len(group.turns) == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"sampled": None}, "without its tokens"),
        ({"usage": CallUsage(prompt_tokens=7)}, "7 prompt tokens at the server"),
        ({"sampled": SampledTokens(tokens=(1,), log_probs=(0.0,), policy="old")}, "old has replied"),
    ],
)
def test_tokens_of_something_else_are_refused(tmp_path, encoder, data, change, message):
    runs = [change_last(episode(encoder, 1), **change), episode(encoder, 2, success=False)]
    with pytest.raises(UserError, match=message):
        take(tmp_path, data, runs)


AHEAD = CONFIG.model_copy(update={"max_staleness": 1, "iterations": 3, "gen_batch_groups": 1})


def played_by(name, encoder):
    """Episodes of a task whose tokens another policy has drawn."""
    runs = [episode(encoder, 1), episode(encoder, 2, success=False)]
    return [
        run.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"sampled": step.sampled.model_copy(update={"policy": name})})
                    for step in run.steps
                )
            }
        )
        for run in runs
    ]


def test_the_next_batch_is_played_by_the_policy_before_while_that_is_updated(tmp_path, encoder, data):
    source, server = Source(tmp_path / "episodes"), Server()
    rollouts = EpisodeRollouts(source, server, data, AHEAD)  # pyright: ignore
    for version, by in enumerate((0, 0, 1)):
        write_dataset(source.folder, played_by(policy(by), encoder), "trajectories")
        rollouts.load(None, version)  # pyright: ignore
        # The policy that still plays stays at the server.
        assert server.policies == sorted({policy(by), policy(version)})
        (group,) = rollouts.take(1)
        assert group.version == by and group.turns[0].version == by
        source.folder = tmp_path / f"episodes-{version}"
        calls = [(0, policy(0)), (1, policy(0)), (2, policy(1))]
        # Each policy begins the next batch when it is loaded, while the one before may still be played.
        assert source.calls == calls[: version + 2]
    # After the last iteration none would be trained on.
    rollouts.load(None, 3)  # pyright: ignore
    assert source.calls == calls and server.held == set() and not source.stopped
    rollouts.close()


def test_a_stopped_run_stops_what_plays_ahead(tmp_path, encoder, data):
    source = Source(tmp_path / "episodes")
    write_dataset(source.folder, played_by(policy(0), encoder), "trajectories")
    rollouts = EpisodeRollouts(source, Server(), data, AHEAD)  # pyright: ignore
    rollouts.load(None, 0)  # pyright: ignore
    rollouts.take(1)
    rollouts.close()
    assert source.stopped == 1


@pytest.mark.parametrize(
    ("begun", "left", "config", "expected"),
    [
        (Begun(policy(1), False), (policy(1),), AHEAD, policy(1)),
        # Complete episodes need no server.
        (Begun(policy(1), True), (), AHEAD, policy(1)),
        # Their adapters are gone, or they are too old.
        (Begun(policy(1), False), (), AHEAD, policy(2)),
        (Begun(policy(0), True), (), AHEAD, policy(2)),
        (Begun(policy(1), True), (policy(1),), CONFIG, policy(2)),
        (None, (), AHEAD, policy(2)),
    ],
)
def test_a_resumed_run_goes_on_with_what_plays_ahead(tmp_path, encoder, data, begun, left, config, expected):
    source, server = Source(tmp_path / "episodes", {16: begun} if begun else {}), Server(left=left)
    write_dataset(source.folder, played_by(expected, encoder), "trajectories")
    config = config.model_copy(update={"iterations": 4})
    rollouts = EpisodeRollouts(source, server, data, config, position=16)  # pyright: ignore
    rollouts.load(None, 2)  # pyright: ignore
    (group,) = rollouts.take(1)
    rollouts.close()
    ahead = [(17, policy(2))] if config.max_staleness else []
    assert source.calls == [(16, expected), *ahead] and policy(group.version) == expected


class Tasks(Source):
    """The ids of the tasks that a run plays."""

    def __init__(self, *names):
        super().__init__(None)
        self.names = names

    def task_ids(self, first, count):
        return [self.names[number % len(self.names)] for number in range(first, first + count)]


def test_a_run_says_how_many_of_its_tasks_have_a_target(data, caplog):
    config = CONFIG.model_copy(update={"iterations": 2, "gen_batch_groups": 3})
    caplog.set_level("INFO")
    some = Tasks("miniwob/p/1", "miniwob/p/2")
    assert count_targets(some, data, config) == {"tasks": 6, "tasks_with_targets": 3}
    (line,) = caplog.messages
    assert line == "3 of the 6 tasks that are played have a verified reply in prompts"
    none = Tasks("miniwob/p/2")
    without = config.model_copy(update={"objective": Objective(salvage_weight=0.0)})
    assert count_targets(none, data, without) == {"tasks": 6, "tasks_with_targets": 0}
    assert caplog.messages[1:] == [
        "0 of the 6 tasks that are played have a verified reply in prompts: "
        "groups without success have no anchor"
    ]
    none.teaches = True
    assert count_targets(none, data, config)["tasks_with_targets"] == 0
    none.teaches = False
    solved = config.model_copy(update={"anchor_solved": True})
    assert count_targets(none, data, solved)["tasks_with_targets"] == 0
    asked = {
        "config.objective.salvage_weight=0.1": config,
        "config.step_bonus=0.5": without.model_copy(update={"step_bonus": 0.5}),
    }
    for name, wrong in asked.items():
        with pytest.raises(UserError, match=rf"^0 of the 6 tasks .* without which {name} can do nothing"):
            count_targets(none, data, wrong)


def test_the_demos_online_variants_ask_for_no_anchor():
    configs = {variant: get_config(variant) for variant in ("online", "online,async", "smoke,online")}
    assert {name: one.objective.salvage_weight for name, one in configs.items()} == dict.fromkeys(
        configs, 0.0
    )
