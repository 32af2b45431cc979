"""The guidance for the next round, made from a finished one."""

import pytest

from collection.fleet.rounds import describe_outcome, reflect, summarize
from collection.llm.actor import ActorReply
from rmsweb_jax.records.schema import CallUsage
from tests.trajectories import CLICK, DONE, step, trajectory


class Coach:
    def __init__(self, text, problem=""):
        self._reply = ActorReply(text, CallUsage(cost=0.5), problem)
        self.requests = []

    def reflect(self, request):
        self.requests.append(request)
        return self._reply


RUN = trajectory(
    step(1, CLICK, memory="a\nb"), step(2, DONE), success=False, attempt=3, declared_success=True
)


def test_the_coach_sees_a_line_a_step_and_how_it_ended():
    coach = Coach(" Look twice.\n")
    reflected = reflect(RUN, "Look.", coach)
    (request,) = coach.requests
    assert request.summary == summarize(RUN) and len(request.summary.splitlines()) == 2
    assert request.summary.startswith(
        "1. http://miniwob.test/login-user.html | a b | goal: go on | 1 actions"
    )
    assert request.outcome == describe_outcome(RUN) and request.guidance == "Look."
    assert (reflected.reflection.guidance, reflected.reflection.attempt) == ("Look twice.", 3)
    assert reflected.usage.cost == 0.5


@pytest.mark.parametrize("text", ["", "Look at the"])
def test_a_reflection_cut_off_or_blocked_leaves_the_guidance_as_it_was(text):
    reflected = reflect(RUN, "Look.", Coach(text, "cut off at the token limit"))
    assert (reflected.reflection.guidance, reflected.usage.cost) == ("Look.", 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"outcome": "captcha", "detail": "the last page: Robot Check"},
            "captcha (the last page: Robot Check)",
        ),
        ({"outcome": "unreachable", "detail": "refused"}, "the start page could not be opened (refused)"),
        ({"outcome": "done", "declared_success": True}, "but the request was not fulfilled"),
    ],
)
def test_how_it_ended_in_words(changes, words):
    description = describe_outcome(RUN.model_copy(update=changes))
    assert description.startswith("did not reach the goal: ") and words in description
