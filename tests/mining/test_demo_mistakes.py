"""Finding the scripted teacher's mistakes in recorded runs, played here on a form without a browser."""

import dataclasses
import json
from collections import Counter

import pytest

from collection.agent.prompt import AgentState, PastStep, PromptConfig, build_messages
from collection.llm.actor import DONE_ONLY, StepRequest
from collection.llm.scripted.guidance import warnings_in
from collection.llm.scripted.mistakes import KINDS, MistakeConfig
from collection.llm.scripted.state import parse_state
from collection.llm.scripted.teacher import ScriptedTeacher
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, Observation, Reflection, Step, Tab, Task, Trajectory
from tests.agent.state_messages import state_text
from tests.mining.demo_choices import Choice, Measured, read_teacher, recall_of
from tests.mining.demo_mistakes import acts_in, read_guidance, read_run, read_settings
from tests.proofs.demo_mining import claims, figures_of, tables

LOGIN = 'Enter the username "keli" and the password "3hI" into the text fields and press login.'
FORM = "[1]<input id=username />\n[2]<input id=password type=password />\n[3]<button />\n\tLogin"
WARNING = "It was declared done too early."


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture
def play(images):
    """Plays the form: (number, mistakes, attempt, guidance) -> the run, recorded without its guidance."""

    def run(number: int, config: MistakeConfig, attempt: int = 1, guidance: str = "") -> Trajectory:
        task = Task(task_id=f"t/{number}", website="http://a.test/", objective=LOGIN)
        teacher, filled, steps, done, past = ScriptedTeacher(config), {}, [], False, []
        sent = False
        while not done:
            state = AgentState(task, tuple(past), len(past) + 1, 9)
            seen = _observation("START" if sent else FORM)
            shown = state, seen, "3 links", PromptConfig("compact")
            live = tuple(build_messages(*shown, guidance))
            request = StepRequest(task.task_id, attempt, state.step_number, live, images)
            text = teacher.reply(request).text
            steps.append(
                Step(
                    number=state.step_number,
                    observation=seen,
                    messages=tuple(build_messages(*shown)),
                    response=text,
                )
            )
            reply = json.loads(text)
            ((name, params),) = reply["action"][0].items()
            past.append(PastStep(state.step_number, "", reply["memory"], reply["next_goal"], results=("ok",)))
            done = name == "done"
            sent = sent or (name == "click_element_by_index" and params["index"] == 3)
            if name == "input_text":
                filled[params["index"]] = params["text"]
        return Trajectory(
            trajectory_id=f"{task.task_id}#teacher-{attempt}",
            task=task,
            actor="teacher",
            model="scripted",
            attempt=attempt,
            steps=tuple(steps),
            outcome="done",
            success=sent and filled == {1: "keli", 2: "3hI"},
        )

    return run


def _observation(text: str) -> Observation:
    return Observation(
        url="http://a.test/",
        title="",
        tabs=(Tab(tab_id="0001", url="http://a.test/", title=""),),
        current_tab="0001",
        page_text=text,
        elements=(),
        fingerprint=text,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_is_found_at_its_step(play, kind):
    config = MistakeConfig(rate=1.0, weights={kind: 1.0})
    steps = Counter()
    for number in range(20):
        run, flawless = play(number, config), play(number, MistakeConfig())
        reading = read_run(run, config, {})
        assert reading.agrees and reading.found is not None and reading.found.kind == kind
        # Both runs are at equal states up to the first reply that differs.
        pairs = zip(run.steps, flawless.steps, strict=False)
        first = next(ours.number for ours, theirs in pairs if ours.response != theirs.response)
        assert reading.found.step == first
        assert reading.found.right == acts_in(
            parse_state(run.steps[first - 1].messages[-1].text, DONE_ONLY),
            flawless.steps[first - 1].response,
        )
        steps[first] += 1
        # The next click corrects one that misses the button.
        wins = kind == "needless_scroll" or (kind == "wrong_index" and first == len(flawless.steps) - 1)
        assert run.success == wins and flawless.success
    assert len(steps) > 1


def test_clean_runs_show_none(play):
    config = MistakeConfig(rate=0.5)
    readings = [(run, read_run(run, config, {})) for run in (play(number, config) for number in range(60))]
    clean = [run for run, reading in readings if reading.drawn is None]
    assert all(reading.agrees for _, reading in readings)
    assert all((reading.found is None) == (reading.drawn is None) for _, reading in readings)
    assert all(run.success for run in clean) and 10 < len(clean) < 50


def test_guidance_decides_about_the_draw(play):
    """A warned kind is drawn less often; who does not know the guidance draws another."""
    config = MistakeConfig(rate=1.0, weights={"premature_done": 1.0}, heeded=0.0)
    assert warnings_in(WARNING) == {"premature_done"}
    run = play(1, config, attempt=2, guidance=WARNING)
    assert WARNING not in run.steps[0].messages[-1].text
    guided = read_run(run, config, {("t/1", 2): WARNING})
    assert guided.agrees and guided.found is None
    untold = read_run(run, config, {})
    assert untold.drawn is not None and not untold.agrees


def test_a_run_under_other_settings_is_not_known(play):
    run = play(1, MistakeConfig(rate=1.0, weights={"skipped_field": 1.0}))
    assert not read_run(run, MistakeConfig(), {}).agrees


def test_acts_go_by_labels():
    def acts(text: str, index: int):
        view = parse_state(state_text(page_text=text), DONE_ONLY)
        return acts_in(view, json.dumps({"action": [{"click_element_by_index": {"index": index}}]}))

    button = "[{}]<button />\n\tGo"
    assert acts(button.format(1), 1) == acts("[1]<a />\n\tmore\n" + button.format(7), 7)
    twice = button.format(1) + "\n" + button.format(2)
    assert acts(twice, 1) != acts(twice, 2)
    assert acts(twice, 1) != acts(twice, 9) != acts(twice, 2)
    view = parse_state(state_text(page_text=twice), DONE_ONLY)
    assert acts_in(view, "no JSON") == acts_in(view, '{"action": [3]}') == ()


def _choice(
    failed: Trajectory, won: Trajectory, config: MistakeConfig, at: tuple[int, int], decision: str = "kept"
) -> Choice:
    found = read_run(failed, config, {}).found
    assert found is not None
    audit = AuditPair(
        task_id=failed.task.task_id,
        site="t",
        success_id=won.trajectory_id,
        localization_id=failed.trajectory_id,
        category="endpoint_incomplete",
        label_confidence=0.9,
        label_source="rule",
        decision=decision,
        scores={"total": 0.8, "state": 0.9, "action": 0.8, "category": 0.6},
        success_step=at[0],
        localization_step=at[1],
    )
    return Choice(audit, found, won, failed, None, {})


def test_choices_are_judged_on_both_sides(play):
    config = MistakeConfig(rate=1.0, weights={"premature_done": 1.0})
    failed, won = play(1, config), play(1, MistakeConfig(), attempt=2)
    at = len(failed.steps)
    right = _choice(failed, won, config, (at, at))
    assert right.at_mistake and right.at_remedy and right.hit
    later = _choice(failed, won, config, (at + 1, at))
    assert later.at_mistake and not later.at_remedy and not later.hit
    earlier = _choice(failed, won, config, (at, at - 1))
    assert earlier.at_remedy and not earlier.at_mistake and not earlier.hit


def test_the_page_counts_all_tasks_with_a_mistake_and_the_mined_ones(play):
    config = MistakeConfig(rate=1.0, weights={"premature_done": 1.0})
    runs = [(play(number, config), play(number, MistakeConfig(), attempt=2)) for number in range(5)]
    choices = []
    for number, (failed, won) in enumerate(runs):
        at = len(failed.steps)
        chosen = (at, at) if number else (at + 1, at)
        choices.append(_choice(failed, won, config, chosen, "kept" if number < 4 else "category_score"))
    known = {failed.trajectory_id: (failed, read_run(failed, config, {})) for failed, _ in runs}
    pool = [run for pair in runs for run in pair]
    recall = recall_of(pool, known, {one.audit.task_id for one in choices if one.kept and one.hit})
    assert recall["premature_done"] == [5, 3] and recall["several"] == [0, 0]
    # A task without a success has no prompt to be found.
    assert recall_of([failed for failed, _ in runs], known, set())["premature_done"] == [0, 0]
    measured = Measured("pool", Counter(kept=4, category_score=1), choices, recall, 0, 0)
    assert measured.share == 3 / 4
    figures = figures_of(known, [measured])
    assert [(claim.measured, claim.holds) for claim in claims(figures)][1:] == [
        ("3 of 5, 60.0%", False),
        ("0 of 0, 0.0%", True),
        ("3 of 4, 75.0%", False),
    ]
    text = tables(figures)
    assert "| premature_done | 4 | 4 | 3 | 3 | 1 | 1 | 1 | 1 |" in text
    miss = next(line for line in text.splitlines() if line.startswith("| t/0 |"))
    assert "no step of the success does what was right there" in miss


def test_a_collecting_run_is_read(play, tmp_path):
    config = MistakeConfig(rate=1.0, weights={"wrong_index": 1.0})
    run = play(1, config)
    write_dataset(tmp_path, [run], "trajectories")
    with pytest.raises(UserError, match=r"config\.json"):
        read_settings(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"mistakes": dataclasses.asdict(config)}))
    assert read_settings(tmp_path) == config
    with pytest.raises(UserError, match=r"reflections\.jsonl"):
        read_guidance(tmp_path)
    line = Reflection(task_id="t/1", attempt=1, guidance=WARNING).model_dump_json()
    (tmp_path / "reflections.jsonl").write_text(line + "\n")
    assert read_guidance(tmp_path) == {("t/1", 2): WARNING}
    ((found, reading),) = read_teacher(tmp_path).values()
    assert found == run and reading.agrees and reading.found is not None


def test_a_pool_of_other_models_is_refused(play, tmp_path):
    run = play(1, MistakeConfig()).model_copy(update={"model": "other"})
    write_dataset(tmp_path, [run], "trajectories")
    (tmp_path / "config.json").write_text(json.dumps({"mistakes": dataclasses.asdict(MistakeConfig())}))
    (tmp_path / "reflections.jsonl").write_text("")
    with pytest.raises(UserError, match="scripted teacher"):
        read_teacher(tmp_path)
