"""Requests of online RL in real browsers: several at a time, forks of episodes, and a teacher."""

import contextlib
import json

import pytest

from collection.environments.miniwob import make_task
from collection.fleet.config import EpisodeSettings, TeacherConfig
from collection.fleet.fleet import Fleet
from collection.fleet.forks import fork_actor, parting
from collection.fleet.play import REQUEST, Player, PlayerSettings, Playing, PlayRequest
from collection.fleet.run import go_on
from collection.llm.actor import ActorModel, ActorReply
from collection.teacher.teacher import MistakeConfig, ScriptedTeacher
from configs.collect import DEMO_EPISODES
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import FORK_LIST, FORKS, TEACHER, Fork
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.settings import from_config
from tests.agent.plain_episode import CLICK, DONE, Lines, Page, reply, run

GIVES_UP = reply({"done": {"text": "I give up.", "success": False}})


class Parting(ActorModel):
    """Knows `enter-password`; in even attempts it gives up at its second step. It knows no other page."""

    def __init__(self):
        self._teacher = ScriptedTeacher(MistakeConfig(0.0, {}))

    def reply(self, request):
        ends = "click-button" in request.task_id or (request.attempt % 2 == 0 and request.step == 2)
        return ActorReply(GIVES_UP) if ends else self._teacher.reply(request)


def settings(workers=2):
    config = {
        **DEMO_EPISODES,
        "fleet": {"workers": workers},
        "actor": {"kind": "tests.fleet.test_play:Parting"},
    }
    # These pages come to rest; on a busy machine, too, they are to be looked at when they have.
    config["browser"] = {**DEMO_EPISODES["browser"], "settle_ms": 20_000}
    return PlayerSettings(
        episodes=from_config(EpisodeSettings, config), forks=3, teacher=TeacherConfig(kind="scripted")
    )


def episodes(folder):
    return list(read_dataset(folder, Trajectory))


def test_forks_go_on_where_episodes_part_and_a_teacher_plays_what_none_has_solved(tmp_path):
    tasks = (make_task("enter-password", 1), make_task("click-button", 1))
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        request = PlayRequest(policy=f"policy-{folder.name}", tasks=tasks, samples=(4, 2))
        (folder / REQUEST).write_text(request.model_dump_json())
    one = settings()
    with Fleet(one.episodes) as fleet, contextlib.ExitStack() as stack:
        player = Player(one, fleet, tmp_path, stack)
        playing = [Playing(folder, player) for folder in folders]
        while playing:
            go_on([one.run for one in playing])
            playing = [one for one in playing if not one.is_over()]
    for folder in folders:
        assert json.loads((folder / "report.json").read_bytes())["lost"] == 0
        played = [run for run in episodes(folder) if run.task.site == "enter-password"]
        assert [run.success for run in played] == [True, False, True, False]
        (fork,) = json.loads((folder / FORK_LIST).read_bytes())
        assert fork["replies"] == [played[0].steps[0].response] and parting(played) == Fork(**fork)
        forks = episodes(folder / FORKS)
        # Attempts are counted on from an even number.
        assert [run.success for run in forks] == [True, False, True]
        for fork in forks:
            assert [step.response for step in fork.steps[:2]] == [
                step.response for step in played[0 if fork.success else 1].steps[:2]
            ]
            assert fork.steps[1].observation.fingerprint == played[0].steps[1].observation.fingerprint
        (taught,) = episodes(folder / TEACHER)
        assert taught.task.site == "click-button" and taught.success


def played(*texts):
    return run(Page(), Lines(*texts))


def moved(trajectory, number):
    """Another page from a step on."""
    steps = [
        step.model_copy(update={"observation": step.observation.model_copy(update={"fingerprint": "g"})})
        if step.number >= number
        else step
        for step in trajectory.steps
    ]
    return trajectory.model_copy(update={"steps": tuple(steps)})


OTHER = {"click_element_by_index": {"index": 2}}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([played(reply(CLICK), reply(DONE)), played(reply(OTHER), reply(DONE))], ()),
        # Words alone do not part them.
        (
            [
                played(reply(CLICK, goal="A"), reply(DONE)),
                played(reply(CLICK, goal="B"), reply(OTHER), reply(DONE)),
            ],
            (reply(CLICK, goal="A"),),
        ),
        ([played(reply(CLICK), reply(DONE)), played(reply(CLICK), reply(DONE))], None),
        # Where the second one was, the page was another.
        (
            [played(reply(CLICK), reply(DONE)), moved(played(reply(CLICK), reply(OTHER), reply(DONE)), 2)],
            None,
        ),
        # A reply that is none is an action of its own, for any reason.
        ([played(reply(DONE)), played("click", reply(DONE))], ()),
        ([played("click", reply(DONE)), played("press", reply(DONE))], None),
        ([], None),
    ],
)
def test_episodes_part_at_the_first_other_action(runs, expected):
    found = parting(runs)
    assert (found and found.replies) == expected


def fork_at(*replies, errors=None):
    return Fork(task_id="miniwob/p/1", replies=replies, errors=errors or ("",) * len(replies), page="f")


def test_a_fork_draws_one_reply_with_another_seed_and_goes_on_greedily():
    drawn, greedy = Lines(reply(CLICK)), Lines(reply(DONE))
    fork = run(Page(), fork_actor(fork_at(reply(OTHER)), drawn, greedy))
    assert [step.response for step in fork.steps] == [reply(OTHER), reply(CLICK), reply(DONE)]
    (request,) = drawn.requests
    assert request.step == 2 and request.attempt == 1_000_002
    assert [one.step for one in greedy.requests] == [3]


def test_a_fork_does_not_carry_out_what_was_cut_off():
    """The end of a reply that was cut off would be invented, and its prompts be others than the group's."""
    error = "Unusable reply: the reply was cut off after 9 tokens"
    page = Page()
    fork = run(page, fork_actor(fork_at(reply(CLICK)[:-3], errors=(error,)), Lines(reply(DONE)), Lines("")))
    assert fork.steps[0].error == error and page.acted == []
