"""The scripted teacher on real pages in Chromium."""

import pytest

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.environments.miniwob import MiniWobEnvironment, make_task
from collection.fleet.rounds import reflect
from collection.teacher.mistakes import MistakeConfig
from collection.teacher.teacher import ScriptedTeacher
from configs.collect import get_config
from rmsweb_jax.records.images import ImageStore

PAGES = get_config("demo").pages
MORE_PAGES = ("click-button-sequence", "click-collapsible-2", "click-dialog", "click-tab-2", "focus-text")


@pytest.fixture
def play(browser, tmp_path):
    images = ImageStore(tmp_path)

    def run(page, seed, attempt=1, guidance="", **mistakes):
        teacher = ScriptedTeacher(MistakeConfig(**mistakes))
        environment = MiniWobEnvironment(browser, images)
        runner = EpisodeRunner(
            environment,
            teacher,
            images,
            "teacher",
            PromptConfig(style="compact"),
            EpisodeLimits(max_steps=15),
        )
        trajectory = runner.run_episode(make_task(page, seed), attempt, guidance)
        return trajectory, reflect(trajectory, guidance, teacher).reflection.guidance

    return run


@pytest.mark.parametrize("page", [*PAGES, *MORE_PAGES])
def test_solves_every_page_when_it_makes_no_mistakes(page, play):
    for seed in (0, 2):
        trajectory, _ = play(page, seed)
        assert trajectory.success, (seed, trajectory.task.objective, trajectory.steps[-1].response)
        assert all(not step.error and not step.repaired for step in trajectory.steps)
        assert all(step.observation.screenshot for step in trajectory.steps)


@pytest.mark.parametrize(
    "kind,failing",
    [("premature_done", True), ("skipped_field", True), ("wrong_index", True), ("needless_scroll", False)],
)
def test_each_kind_of_mistake_is_seen_and_heeded(kind, failing, play):
    """A round goes wrong, its reflection names why, and the next round avoids just that."""
    weights = {kind: 1.0}
    seed = {"wrong_index": 3}.get(kind, 0)
    clean, _ = play("login-user", seed)
    wrong, guidance = play("login-user", seed, rate=1.0, weights=weights)
    assert wrong.success is not failing
    if not failing:
        assert len(wrong.steps) == len(clean.steps) + 2
    again, _ = play("login-user", seed, attempt=2, rate=1.0, weights=weights, heeded=0.0)
    assert [step.response for step in again.steps] != [step.response for step in clean.steps]
    better, _ = play("login-user", seed, attempt=2, guidance=guidance, rate=1.0, weights=weights, heeded=0.0)
    assert better.success
    assert [step.response for step in better.steps] == [step.response for step in clean.steps]


def test_runs_repeat_exactly(play):
    first, _ = play("search-engine", 5, rate=1.0)
    second, _ = play("search-engine", 5, rate=1.0)
    assert first.model_copy(update={"seconds": 0.0}) == second.model_copy(update={"seconds": 0.0})
