"""A teacher that quotes its guidance: no sample may hold it. Episodes in a real browser, then the stage."""

import dataclasses
import html
import json
import re
import urllib.parse
from typing import Literal

import pytest

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from collection.config import BuildSftSettings
from collection.corpus.guidance import QUOTE_WORDS, QuoteFinder, guidance_for, read_guidance
from collection.environments.web import WebEnvironment
from collection.llm.actor import LLMActor
from collection.llm.model import ModelReply
from configs.build_sft import get_config
from experiments.build_sft import main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Message, Reflection, SftSample, Task, TextPart
from rmsweb_jax.settings import from_config
from tests.loopback import PageHandler, serving
from tests.trajectories import step, trajectory

FIRST = "The supplier at the top was chosen by mistake in the last round."
SECOND = "Open the third offer from the bottom and read its terms, before you compare any prices."
GUIDANCE = f"{FIRST}\n{SECOND}"
OBJECTIVE = "Find the cheapest offer for a lamp and say who makes it."
# What is typed into the field appears below it, as on pages that complete or confirm an input.
PAGE = """<title>Offers</title><h1>Offers for lamps</h1><p>Read the terms of each supplier with care.</p>
<input id=q placeholder=Filter oninput="shown.textContent = this.value"><p id=shown></p>"""


def words(text):
    return re.findall(r"[a-z]+", text.lower())


def letters(sample):
    """All letters of a sample in a row: another way to compare than the filter's."""
    texts = [message.text for message in sample.messages] + [sample.response.replace("\\n", " ")]
    texts = [html.unescape(urllib.parse.unquote(text)) for text in texts]
    return "".join(letter for letter in "".join(texts).lower() if "a" <= letter <= "z")


def quotes(sample):
    parts = words(GUIDANCE)
    runs = ["".join(parts[at : at + QUOTE_WORDS]) for at in range(len(parts) - QUOTE_WORDS + 1)]
    return [run for run in runs if run in letters(sample)]


@dataclasses.dataclass(frozen=True)
class Way:
    """How step 2 quotes.

    Attributes:
      fields: of the reply.
      action: in place of a wait.
      kept: steps whose samples stay, of 1 to 4.
    """

    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    action: dict | None = None
    kept: tuple[int, ...] = (1,)


WAYS = {
    "verbatim in its thinking": Way({"thinking": f"I was told: {GUIDANCE}"}, kept=(1, 3, 4)),
    "in its memory": Way({"memory": f"{SECOND.upper()} And: {FIRST}"}),
    "typed into a page": Way(action={"input_text": {"index": 1, "text": SECOND}}),
    "in an address": Way(
        action={"go_to_url": {"url": f"http://127.0.0.1:PORT/?q={urllib.parse.quote(SECOND)}"}}
    ),
    "in its plan": Way(action={"write_file": {"file_name": "todo.md", "content": f"- {FIRST}\n- {SECOND}"}}),
    "in a question about the page": Way(action={"extract_structured_data": {"query": f"{SECOND} Which?"}}),
    "in the answer": Way({}, {"done": {"text": f"Nobody. {FIRST}", "success": True}}),
}


class QuotingModel:
    """A model that waits, and quotes in step 2."""

    name = "teacher"

    def __init__(self, way, port):
        self._way, self._port, self._step = way, port, 0
        self.prompts = []

    def complete(self, request):
        if request.purpose == "extract":
            return ModelReply("No supplier is named.")
        self._step += 1
        self.prompts.append(request.messages[-1].text)
        fields = {"evaluation_previous_goal": "Unknown", "memory": "nothing yet", "next_goal": "Look"}
        action = (
            {"done": {"text": "Nobody.", "success": True}} if self._step == 4 else {"wait": {"seconds": 0}}
        )
        if self._step == 2:
            fields |= self._way.fields
            # Not a third wait, which would be a stall.
            action = self._way.action or {"write_file": {"file_name": "notes.md", "content": "-"}}
        reply = json.dumps(fields | {"action": [action]})
        return ModelReply(reply.replace("PORT", str(self._port)))


class _Handler(PageHandler):
    def get(self):
        self.reply(PAGE)


@pytest.fixture(scope="module")
def site():
    with serving(_Handler) as address:
        yield int(address.partition(":")[2])


@pytest.fixture(scope="module")
def own_browser():
    with Browser(BrowserConfig(width=500, height=320, quiet_ms=20)) as browser:
        yield browser


def play(way, browser, port, workdir):
    """Plays an episode with the guidance of attempt 1, and writes it as `collect` does.

    Nothing was reflected on two refused attempts after it.
    """
    images, teacher = ImageStore(workdir), QuotingModel(way, port)
    environment = WebEnvironment(browser, images, workdir / "files", check=lambda: 1.0)
    task = Task(task_id="shop/1", website=f"http://127.0.0.1:{port}/", objective=OBJECTIVE)
    runner = EpisodeRunner(
        environment,
        LLMActor(teacher),
        images,
        "teacher",
        PromptConfig(style="full"),
        EpisodeLimits(max_steps=5),
    )
    run = runner.run_episode(task, 4, guidance=GUIDANCE)
    environment.close()
    reflection = Reflection(task_id="shop/1", attempt=1, guidance=GUIDANCE)
    write_atomic(workdir / "reflections.jsonl", reflection.model_dump_json().encode() + b"\n")
    write_dataset(workdir, [run], "trajectories", {"reflections": 1})
    write_atomic(workdir / "report.json", b"{}")
    return run, teacher


def build(source, workdir):
    """Runs the stage; returns samples by the step's number, and the report."""
    config = get_config("demo")
    config.trajectories = str(source)
    workdir.mkdir()
    main(from_config(BuildSftSettings, config), workdir)
    samples = list(read_dataset(workdir, SftSample))
    return samples, json.loads((workdir / "report.json").read_text())


@pytest.mark.parametrize("name", WAYS)
def test_no_sample_holds_guidance_that_the_teacher_quotes(name, own_browser, site, tmp_path):
    way = WAYS[name]
    run, teacher = play(way, own_browser, site, tmp_path / "collect")
    assert run.success and not any(step.error for step in run.steps)
    assert all(
        GUIDANCE in prompt and "never quote, repeat or mention" in prompt for prompt in teacher.prompts
    )
    text = run.model_dump_json()
    assert "never quote, repeat or mention" not in text, "the note is live only, too"
    samples, report = build(tmp_path / "collect", tmp_path / "sft")
    ids = {int(sample.sample_id.split("/")[2]) for sample in samples}
    assert ids == set(way.kept) and not any(map(quotes, samples))
    made = len(run.steps) + sum(len(step.extractions) for step in run.steps)
    assert report["samples_dropped"]["quoted_guidance"] == made - len(samples) > 0
    drops = [json.loads(line) for line in (tmp_path / "sft/drops.jsonl").read_text().splitlines()]
    assert all(drop["reason"] == "quoted_guidance" and drop["detail"] for drop in drops)


def test_an_attempt_gets_the_guidance_of_the_last_one_before_it():
    task = [{1: "one", 3: "three"}, {2: "two"}]
    given = {attempt: guidance_for(task, attempt) for attempt in range(1, 6)}
    assert given == {1: "", 2: "one", 3: "one\ntwo", 4: "three\ntwo", 5: "three\ntwo"}
    assert guidance_for([], 2) == ""


TASK = Task(task_id="shop/1", website="http://shop.test/", objective=OBJECTIVE)


def page(text):
    return step(1, page=text).observation


def sample(prompt="", response="", kind: Literal["action", "text"] = "action"):
    message = Message(role="user", content=(TextPart(text=prompt),))
    return SftSample(
        sample_id="s", kind=kind, task_id="shop/1", site="shop.test", messages=(message,), response=response
    )


@pytest.mark.parametrize(
    "guidance,shown,said,found",
    [
        ("Press the button that says Add to cart.", "", "press the button that says add to cart", True),
        # The page, the task and the rules may be repeated.
        (
            "Press 'Add both lamps to the cart now'.",
            "Add both lamps to the cart now",
            "add both lamps to the cart now",
            False,
        ),
        ("Find the cheapest offer for a lamp.", "", "find the cheapest offer for a lamp", False),
        # Five words in a row are none.
        ("Press the button that says Add to cart.", "", "press the button that says: no", False),
        # A short guidance is found whole; one of two words says nothing.
        ("Scroll down first.", "", "so I scroll down first", True),
        ("Scroll down first.", "", "so I scroll down", False),
        ("Scroll first.", "", "scroll first", False),
        ("", "", "anything at all, in any number of words", False),
        # Scripts without spaces are compared by the letter.
        ("先打开倒数第三个报价", "", "应该先打开倒数第三个报价。", True),
        ("it's the shop's third-party offers page", "", "it’s the shop’s third party offers page", True),
        # However it is written.
        (GUIDANCE, "", SECOND.upper(), True),
        (GUIDANCE, "", SECOND.replace(",", " -- ").replace(".", "!") + "”", True),
        (GUIDANCE, "", "“the third offer from the bottom” counts … later", True),
        (GUIDANCE, "", "Open the third of-\nfer from\nthe\r\nbottom\tand\n\nread", True),
        (
            GUIDANCE,
            "",
            "> - **Open** the *third* `offer` from\n> - the ~~bottom~~ and __read__ [its](#)",
            True,
        ),
        (GUIDANCE, "", "Ópen the th\u00adird off\u200ber from&nbsp;the bottom &amp; read", True),
        (GUIDANCE, "", "so o\u2060pen the third offer from the_bottom", True),
        # The limit: a paraphrase that shares no six words in a row cannot be found.
        (GUIDANCE, "", "the lowest but two is the one to look at; its conditions come first", False),
    ],
)
def test_what_is_a_quotation(guidance, shown, said, found):
    finder = QuoteFinder(guidance, TASK)
    finder.show_page(page(shown))
    assert bool(finder.find(sample(response=json.dumps({"memory": said})))) == found


def test_a_page_that_shows_what_the_teacher_typed_does_not_excuse_it():
    said = sample(response=json.dumps({"action": [{"input_text": {"text": SECOND}}]}))
    first, second = QuoteFinder(GUIDANCE, TASK), QuoteFinder(GUIDANCE, TASK)
    first.show_page(page(""))
    assert first.find(said)
    first.show_page(page(f"value={SECOND}"))
    assert first.find(sample(prompt=f"value={SECOND}"))
    # Here the page said it first.
    second.show_page(page(SECOND))
    assert not second.find(said) and not second.find(sample(prompt=SECOND))


def test_guidance_that_is_missing_or_damaged_is_refused(tmp_path):
    write_dataset(tmp_path, [trajectory(attempt=2)], "trajectories", {})
    assert read_guidance([tmp_path]) == {}
    write_dataset(tmp_path, [trajectory(attempt=2)], "trajectories", {"reflections": 1})
    with pytest.raises(UserError, match=r"reflections\.jsonl: missing, so samples that quote guidance"):
        read_guidance([tmp_path])
    (tmp_path / "reflections.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="line 1 is no reflection"):
        read_guidance([tmp_path])
    (tmp_path / "reflections.jsonl").write_text(
        Reflection(task_id="shop/1", attempt=1, guidance=GUIDANCE).model_dump_json() + "\n"
    )
    assert read_guidance([tmp_path, tmp_path]) == {"shop/1": [{1: GUIDANCE}, {1: GUIDANCE}]}
