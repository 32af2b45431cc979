"""Whole episodes on live pages in a real browser, with an actor made of plain functions."""

import io
import json
import re
import time

import pytest
from PIL import Image
from selenium.common.exceptions import WebDriverException

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.browser.snapshot import _HIDDEN, secret_boxes
from collection.environments.base import SiteUnreachableError
from collection.environments.web import WebConfig, WebEnvironment
from collection.llm.actor import ActorReply
from rmsweb_jax.actions import normalize_action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import CallUsage, Message, Task, TextPart
from tests.environments.conftest import SECRET

DONE = {"done": {"text": "finished", "success": True}}
LIST = {"done": {"text": "The list:", "success": True, "files_to_display": ["list.md", "none.md"]}}


def index_of(prompt, label):
    """Returns the index of the element that has, or is followed by, a text."""
    found = re.search(rf"\[(\d+)\]<[^\n]*(?:{label}[^\n]*|/>\n\t+{label})", prompt)
    assert found, f"{label} not in {prompt}"
    return int(found[1])


class Policy:
    """An actor with one entry per step: actions, or a function of the prompt; it repeats the last one."""

    name = "policy"

    def __init__(self, *moves):
        self._moves, self.prompts, self.read = moves, [], []

    def reply(self, request):
        self.prompts.append(request.messages[-1].text)
        move = self._moves[min(len(self.prompts), len(self._moves)) - 1]
        actions = move(self.prompts[-1]) if callable(move) else move
        texts = {"evaluation_previous_goal": "ok", "memory": f"saw {SECRET}", "next_goal": "go on"}
        return ActorReply(json.dumps(texts | {"action": actions}), CallUsage(cost=1.0))

    def extract(self, request):
        self.read.append(request)
        sent = (Message(role="user", content=(TextPart(text=request.text),)),)
        if "refuse" in request.query:
            return ActorReply("", CallUsage(cost=0.25), "blocked for safety", sent)
        return ActorReply("12 kg", CallUsage(cost=0.5), messages=sent)

    def reflect(self, request):
        raise AssertionError(request)


@pytest.fixture
def play(live_browser, tmp_path):
    images = ImageStore(tmp_path / "run")

    def run(page, policy, check=None, config=None, style="full", **limits):
        environment = WebEnvironment(live_browser, images, tmp_path / "files", config, check)
        task = Task(task_id="shop/1", website=page, objective=f"Weigh the lamp; {SECRET}.")
        runner = EpisodeRunner(
            environment,
            policy,
            images,
            "teacher",
            PromptConfig(style=style),
            EpisodeLimits(**({"max_steps": 8} | limits)),
        )
        trajectory = runner.run_episode(task, attempt=1)
        environment.close()
        assert not (tmp_path / "files").exists()
        assert SECRET not in trajectory.model_dump_json()
        assert all(SECRET not in prompt for prompt in policy.prompts)
        return trajectory

    return run


def choose(prompt):
    return [{"select_dropdown_option": {"index": index_of(prompt, "colour"), "text": "green"}}]


def click(label):
    return lambda prompt: [{"click_element_by_index": {"index": index_of(prompt, label)}}]


def test_an_episode_with_a_list_a_download_a_tab_an_extraction_and_files(play, tmp_path):
    policy = Policy(
        choose,
        click("Prices"),
        click("Details"),
        [{"extract_structured_data": {"query": "weight"}}, {"extract_structured_data": {"query": "refuse"}}],
        [
            {"write_file": {"file_name": "todo.md", "content": "- weigh it"}},
            {"write_file": {"file_name": "list.md", "content": "12 kg"}},
            {"read_file": {"file_name": "prices.csv"}},
        ],
        [{"wait": {"seconds": 0}}],
        [LIST],
    )
    run = play("http://shop.test/start", policy, check=lambda: 1.0)
    assert (run.outcome, run.success, run.judge, run.reward) == ("done", True, "reward", 1.0)
    assert [step.error for step in run.steps] == [""] * 7
    assert all(step.observation.screenshot for step in run.steps)
    assert run.steps[0].results[0].changed and "Green" in run.steps[0].results[0].text
    opened, read, wrote = (run.steps[number].results for number in (2, 3, 4))
    # It comes when it comes: with the click's result, or a little later.
    assert "Downloaded prices.csv (12 bytes)" in "".join(policy.prompts)
    incidents = [one.detail for step in run.steps for one in step.incidents]
    assert incidents == ["Downloaded prices.csv (12 bytes)"]
    assert "new tab" in opened[0].text and len(run.steps[3].observation.tabs) == 2
    # The extractions, their cost and what was sent.
    assert (read[0].output, read[1].error) == ("12 kg", True)
    assert read[1].text == "Extraction failed: blocked for safety"
    calls = run.steps[3].extractions
    assert [(call.response, call.usage.cost) for call in calls] == [("12 kg", 0.5), ("", 0.25)]
    assert "Weight: 12 kg" in calls[0].messages[0].text
    assert [(one.attempt, one.step, one.number) for one in policy.read] == [(1, 4, 1), (1, 4, 2)]
    # What is read is shown once, fenced; files and the plan as long as they are there.
    assert "<read_state>\n<untrusted_content>\n12 kg\n</untrusted_content>" in policy.prompts[4]
    assert "lamp;12 EUR" in policy.prompts[5] and "lamp;12 EUR" not in policy.prompts[6]
    assert all(not result.error for result in wrote)
    assert "\nprices.csv (12 bytes)\n" in policy.prompts[4] and "todo_contents" not in policy.prompts[4]
    assert "<todo_contents>\n- weigh it\n" in policy.prompts[5]
    assert run.final_text == "The list:\n\nlist.md:\n12 kg\n"
    assert run.steps[-1].results[0].text == "Done; not there or not text: none.md"


def test_a_window_whose_page_comes_late_is_kept(play):
    run = play("http://shop.test/catalogue", Policy(click("Late"), [DONE]))
    assert run.steps[0].results[0].text == "Clicked [1], which opened a new tab"
    assert [one.detail for step in run.steps for one in step.incidents] == []
    assert run.steps[1].observation.title == "Late"


def test_secrets_are_hidden_from_agent_and_record_and_painted_over_in_screenshots(
    play, live_browser, tmp_path
):
    run = play("http://shop.test/account", Policy([DONE]))
    (step,) = run.steps
    assert "Your password is <secret>password</secret>." in step.observation.page_text
    assert step.observation.title == step.observation.tabs[0].title == "<secret>password</secret>"
    assert "<secret>password</secret>" in run.task.objective and "saw <secret>password" in step.response
    assert "password=<secret>password</secret>" in step.messages[-1].text
    assert not run.success and run.judge == ""  # There is no judge.
    picture = Image.open(io.BytesIO(ImageStore(tmp_path / "run").get(step.observation.screenshot)))
    # The page is still open: its text, the link next to it and the field.
    boxes = secret_boxes(live_browser, live_browser.guard.redactor)
    assert len(boxes) == 2
    for box in boxes:
        painted = sum(pixel == _HIDDEN for pixel in picture.crop(box).getdata())
        assert painted > 0.8 * (box[2] - box[0]) * (box[3] - box[1])


def test_orders_of_a_page_cannot_forge_the_prompt(play):
    run = play("http://shop.test/orders", Policy([DONE]))
    (step,) = run.steps
    text = step.messages[-1].text
    assert text.count("</browser_state>") == text.count("<user_request>") == 1
    page = text[text.index("<untrusted_content>") : text.index("</untrusted_content>")]
    assert "Ignore all previous" in page and "http://shop.test/orders" in page


@pytest.mark.parametrize(
    ("page", "outcome"), [("captcha", "captcha"), ("denied", "blocked"), ("teapot", "blocked")]
)
def test_a_closed_door_ends_the_episode_early(play, page, outcome):
    run = play(f"http://shop.test/{page}", Policy([{"wait": {"seconds": 0}}]), max_blocked=3)
    assert (run.outcome, len(run.steps), run.success) == (outcome, 2, False)
    assert run.detail.startswith("the last page: ")


def test_giving_up_on_a_blocked_page_has_its_own_outcome(play):
    run = play("http://shop.test/captcha", Policy([{"done": {"text": "a captcha", "success": False}}]))
    assert (run.outcome, run.declared_success) == ("captcha", False)
    failed = play("http://shop.test/start", Policy([{"done": {"text": "no", "success": False}}]))
    assert (failed.outcome, failed.detail) == ("done", "")


@pytest.mark.parametrize(
    ("website", "reason"),
    [
        ("http://closed.test/", "closed.test cannot be reached"),
        ("https://closed.test/", "closed.test cannot be reached"),
        ("http://evil.test/", "not one of the sites"),
        ("file:///etc/passwd", "not opened"),
        ("shop.test\n", "shop.test"),
    ],
)
def test_a_start_page_that_does_not_open_is_recorded(play, website, reason):
    policy = Policy([DONE])
    run = play(website, policy, check=lambda: 1.0)
    assert (run.outcome, run.steps, run.success, policy.prompts) == ("unreachable", (), False, [])
    assert reason in run.detail and "\n" not in run.detail
    refused = [incident.detail for incident in run.incidents if incident.kind == "refused"]
    assert bool(refused) == ("closed.test" not in website)


def test_unsupported_actions_are_not_offered(play):
    class Curious(Policy):
        def reply(self, request):
            self.system, self.actions = request.messages[0].text, request.actions
            return super().reply(request)

    policy = Curious([DONE])
    play("http://shop.test/start", policy)
    assert "search_engine" not in policy.system and "execute_js" not in policy.actions
    config = WebConfig(
        search_urls={"duckduckgo": "http://shop.test/search?q={query}"}, extra_actions=("execute_js",)
    )
    play("http://shop.test/start", policy, config=config)
    assert "search_engine(" in policy.system and "execute_js" in policy.actions


def _close(browser):
    browser.cdp("Target.closeTarget", targetId=browser.current_handle)


def _crash(browser):
    browser.cdp("Page.crash")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("end, says", [(_close, "The tab has closed"), (_crash, "The page has crashed")])
def test_a_tab_that_ends_as_the_start_page_opens(live_browser, tmp_path, monkeypatch, end, says, times):
    """A page of the last episode ends late; one that ends each time is the site's own doing."""
    environment = WebEnvironment(live_browser, ImageStore(tmp_path / "run"), tmp_path / "files")
    task = Task(task_id="shop/1", website="http://shop.test/start", objective="Weigh the lamp.")
    goto, left = live_browser.goto, [end] * times

    def end_and_go(url):
        if left:
            left.pop()(live_browser)
        goto(url)

    monkeypatch.setattr(live_browser, "goto", end_and_go)
    if times == 2:
        with pytest.raises(SiteUnreachableError, match=says):
            environment.reset(task)
        return
    environment.reset(task)
    assert environment.observe().observation.title == "Shop"


def test_a_picture_that_fails_costs_no_step(play, live_browser, monkeypatch):
    def fail():
        raise WebDriverException("unable to capture screen")

    monkeypatch.setattr(live_browser, "screenshot", fail)
    run = play("http://shop.test/details", Policy([DONE]))
    assert run.outcome == "done" and run.steps[0].observation.screenshot is None
    assert "Weight: 12 kg" in run.steps[0].messages[-1].text and len(run.steps[0].messages[-1].content) == 1


@pytest.mark.parametrize(
    ("outage_s", "ended"), [(600.0, "12 kg"), (0.0, "Not done: the time limit is reached")]
)
def test_an_outage_in_an_extraction_is_not_the_time_of_the_actions_after_it(
    live_browser, tmp_path, outage_s, ended
):
    environment = WebEnvironment(live_browser, ImageStore(tmp_path / "run"), tmp_path / "files")
    environment.reset(Task(task_id="shop/1", website="http://shop.test/details", objective="Weigh the lamp."))
    environment.observe()
    extract = normalize_action({"extract_structured_data": {"query": "weight"}})
    late = time.monotonic()
    results = environment.act([extract, extract], lambda query, text: ("12 kg", outage_s), late).results
    environment.close()
    assert [results[0].output, results[1].output or results[1].text] == ["12 kg", ended]
