"""Official judges from a checkout: their code decides, our model answers; other checkouts are refused."""

import base64
import dataclasses
import io
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from collection.judges.base import unjudged
from collection.judges.build import judge_config, make_judge
from collection.judges.config import JudgeSettings
from collection.judges.official import checkouts
from collection.judges.official.checkouts import OFFICIAL, check_checkout
from collection.judges.official.evidence import action_words, element_words, episode
from collection.judges.official.judge import NO_SCREENSHOTS, JudgeEndpoint, OfficialJudge
from collection.llm.config import ModelConfig
from collection.llm.model import IMAGE_TOKENS, ModelRequest, content_key
from configs.evaluate import get_config
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Element
from rmsweb_jax.settings import from_config
from tests.judges.data_sets import judge as judge_data
from tests.judges.data_sets import put_data, settings
from tests.judges.official_checkout import ADDRESS, CODE, git, make_checkout, pin
from tests.judges.runs import run, shots
from tests.judges.server import model_at
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.trajectories import reply, step

ACTOR = ModelConfig(kind="chat", model="gpt-4o", base_url="http://127.0.0.1:1/v1")


class Screenshots:
    """An image source that draws a small page for each name; half of them are partly transparent."""

    def get(self, sha256):
        picture = Image.new("RGBA" if int(sha256, 16) % 2 else "RGB", (96, 72), f"#{sha256[-6:]}")
        content = io.BytesIO()
        picture.save(content, "PNG")
        return content.getvalue()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    folder = make_checkout(tmp_path / "checkout")
    pin(monkeypatch, folder)
    return folder


def judge(checkout, server, **settings):
    return OfficialJudge("webvoyager", checkout, model_at(server, **settings))


def says(*texts):
    """Says one text after the other, the last one for ever."""
    left = list(texts)
    return lambda _: completion(left.pop(0) if len(left) > 1 else left[0])


def test_the_code_of_the_checkout_decides_and_the_model_gets_its_messages(checkout, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    record = run(3, objective="Find\nthe lamp.", final_text="[12] EUR\n\nin all")
    with PromptServer(says("It is so.\nSUCCESS", "NOT SUCCESS")) as server:
        official = judge(checkout, server)
        verdict, other = official.judge(record, Screenshots()), official.judge(run(2), Screenshots())
        asked = server.calls[0].body
    assert (verdict.success, verdict.text, other.success) == (True, "It is so.\nSUCCESS", False)
    assert verdict.usage.prompt_tokens == 1000 and verdict.key and other.key != verdict.key
    system, user = asked["messages"]
    assert system == {"role": "system", "content": [{"type": "text", "text": "Judge."}]}
    words, *pictures = user["content"]
    assert "Find the lamp.  Please interact with" in words["text"]
    assert "ANSWER; [(12) EUR in all]" in words["text"] and words["text"].endswith(" None")
    seen = [base64.b64encode(Screenshots().get(shot)).decode() for shot in shots(3)]
    assert [one["image_url"] for one in pictures] == [
        {"url": f"data:image/jpeg;base64,{data}", "detail": "high"} for data in seen
    ]
    assert asked["model"] == "judge-1" and asked["temperature"] == 1.0
    found, repository = verdict.fingerprint, pinned().repository
    assert found is not None
    assert (found.method, found.model) == ("webvoyager", "judge-1") and found.evidence == {
        "screenshots": "15"
    }
    assert found.source == f"{ADDRESS}@{repository.commit}"


def test_garbage_is_asked_again_once_and_then_unjudged(checkout):
    with PromptServer(says("blue", "green", "red")) as server:
        verdict = judge(checkout, server).judge(run(), Screenshots())
        assert len(server.calls) == 2
    assert verdict.success is None and verdict.text == "green\n[no verdict: its code reads None]"
    with PromptServer(says("", "SUCCESS")) as server:
        verdict = judge(checkout, server).judge(run(), Screenshots())
        assert verdict.success is True and len(server.calls) == 2 and verdict.usage.prompt_tokens == 2000
    record = run(judge_text=verdict.text)
    assert unjudged(record)


def test_an_api_that_fails_leaves_the_run_unjudged_although_the_code_would_ask_for_ever(checkout):
    failing = Answer(503, {"error": {"message": "overloaded"}})
    with PromptServer(lambda _: failing) as server:
        official = judge(checkout, server)
        verdict = official.judge(run(), Screenshots())
        assert verdict.success is None and "status 503: overloaded" in verdict.text
        server.reply_to = says("SUCCESS")
        assert official.judge(run(), Screenshots()).success is True
        server.reply_to = lambda _: Answer(401, {"error": {"message": "no such key"}})
        with pytest.raises(UserError, match="check the API key"):
            official.judge(run(3), Screenshots())


@pytest.mark.parametrize(
    ("objective", "reason"),
    [("Please crash.", "RuntimeError: two lines"), ("Please leave.", "exit code 3")],
)
def test_code_that_fails_leaves_the_run_unjudged_and_the_next_one_judged(checkout, objective, reason):
    with PromptServer(says("SUCCESS")) as server:
        official = judge(checkout, server)
        verdict = official.judge(run(objective=objective), Screenshots())
        assert (verdict.success, verdict.text) == (None, f"[no verdict: {reason}]")
        assert official.judge(run(), Screenshots()).success is True


def test_a_repeated_question_gets_a_reply_of_its_own_and_known_replies_cost_nothing(checkout, tmp_path):
    record = run(objective="Look twice.")
    with PromptServer(says("NOT SUCCESS", "SUCCESS")) as server:
        for _ in range(2):
            model = model_at(server, file=tmp_path / "calls.jsonl")
            official = OfficialJudge("webvoyager", checkout, model)
            assert official.judge(record, Screenshots()).success is True
            assert (model.asked, model.hits) in ((2, 0), (0, 2))
        assert len(server.calls) == 2


def test_runs_without_answer_or_screenshots_need_no_call(checkout):
    with PromptServer(says("SUCCESS")) as server:
        official = judge(checkout, server)
        assert official.judge(run(final_text=" "), Screenshots()).success is False
        blind = run()
        steps = tuple(
            one.model_copy(update={"observation": one.observation.model_copy(update={"screenshot": None})})
            for one in blind.steps
        )
        verdict = official.judge(blind.model_copy(update={"steps": steps}), Screenshots())
        assert (verdict.success, verdict.text) == (None, NO_SCREENSHOTS) and not server.calls


def test_official_judges_run_where_recorded_runs_are_judged(checkout, tmp_path):
    on = {"judges": ("webvoyager",), "official.webvoyager": str(checkout), "cross_check": ""}
    data = put_data(tmp_path / "data")
    with PromptServer(says("SUCCESS", "NOT SUCCESS")) as server:
        changes = settings(data, server.url, workers=1, **on)
        report = judge_data(tmp_path / "judge", changes)
    found = report["judges"]["webvoyager"]
    assert (found["name"], found["passed"], found["failed"]) == ("webvoyager (judge-1)", 1, 6)
    lines = map(json.loads, (tmp_path / "judge/judgements.jsonl").read_text().splitlines())
    sources = {one["fingerprint"]["source"] for one in lines if one["judge"] == "webvoyager"}
    assert sources == {f"{ADDRESS}@{pinned().repository.commit}"}


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("import a_package_of_nobody", "needs the Python package a_package_of_nobody: give config"),
        ("raise ValueError(1)", "the webvoyager judge: ValueError: 1"),
    ],
)
def test_code_that_cannot_be_imported_is_one_line_before_anything_is_judged(
    tmp_path, monkeypatch, start, reason
):
    folder = make_checkout(tmp_path / "checkout", f"{start}\n{CODE}")
    pin(monkeypatch, folder)
    with pytest.raises(UserError, match=reason) as error:
        judge_config(JudgeSettings(kind="actor", method="webvoyager", official=str(folder)), ACTOR, {})
    assert "\n" not in str(error.value)


# --- Checkouts ---


def refusal(folder) -> str:
    with pytest.raises(UserError) as error:
        check_checkout(folder, pinned().repository)
    assert "\n" not in str(error.value)
    return str(error.value)


def pinned():
    return checkouts.OFFICIAL["webvoyager"]


def test_a_checkout_of_another_state_is_refused(checkout, tmp_path):
    check_checkout(checkout, pinned().repository)
    assert "no such folder; get it with: git clone https://github.com/tests/judge" in refusal(
        tmp_path / "none"
    )
    (tmp_path / "plain").mkdir()
    assert "not a git checkout" in refusal(tmp_path / "plain")
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(checkout), str(copy))
    check_checkout(copy, pinned().repository)
    git(copy, "commit", "--quiet", "--allow-empty", "-m", "Another")
    commit = pinned().repository.commit
    assert (
        f"this judge is of {ADDRESS} at {commit[:12]}; get it with: git -C {copy} checkout {commit}"
        in refusal(copy)
    )


@pytest.mark.parametrize("change", ["edit", "remove", "add", "ignored", "hidden", "not shown", "index"])
def test_changed_files_are_refused(checkout, tmp_path, change):
    path = checkout / "evaluation/auto_eval.py"
    if change == "edit":
        path.write_text(f"{CODE}\n# changed\n")
    elif change == "remove":
        path.unlink()
    elif change == "index":  # git fails where it has to compare.
        path.write_text(f"{CODE}\n# changed\n")
        (checkout / ".git/index").write_bytes(b"DIRC")
    elif change in ("add", "ignored", "not shown"):
        if change == "not shown":
            git(checkout, "config", "status.showUntrackedFiles", "no")
        (checkout / ".git/info/exclude").write_text("openai.py\n" * (change == "ignored"))
        (checkout / "evaluation/openai.py").write_text("")
    else:
        git(checkout, "update-index", "--assume-unchanged", "evaluation/auto_eval.py")
        path.write_text(CODE.replace("NOT SUCCESS", "FAILURE"))
    assert "changed since commit" in refusal(checkout)


def test_settings_name_a_checked_folder_and_a_chat_model(checkout, tmp_path):
    good = JudgeSettings(kind="actor", method="webvoyager", official=str(checkout))
    config = judge_config(good, ACTOR, {})
    assert config is not None and config.checkout == checkout
    assert isinstance(make_judge(config, tmp_path), OfficialJudge)
    wrong = {
        "webvoyager runs from its own repository; clone": {"official": ""},
        "own_outcome is a judge of this project": {"method": "own_outcome"},
        "no such folder": {"official": str(tmp_path / "none")},
        "none/python.*: No such file": {"official_python": str(tmp_path / "none/python")},
        "the code of webvoyager takes no reference answers": {"reference": True},
        "webvoyager judges by screenshots": {"screenshots": False},
    }
    for message, change in wrong.items():
        with pytest.raises(UserError, match=message):
            judge_config(good.model_copy(update=change), ACTOR, {})
    with pytest.raises(UserError, match="is of kind gemini: give one of kind chat"):
        judge_config(good, ACTOR.model_copy(update={"kind": "gemini"}), {})


@pytest.mark.parametrize(
    ("variant", "method", "address"),
    [
        ("webvoyager", "webvoyager", "github.com/MinorJerry/WebVoyager"),
        ("online_mind2web", "webjudge", "github.com/microsoft/fara"),
        ("webtailbench", "universal_verifier", "github.com/microsoft/fara"),
        ("paper,webvoyager", "browser_use", "github.com/browser-use/eval"),
        ("paper,webtailbench", "browser_use", "github.com/browser-use/eval"),
    ],
)
def test_variants_of_benchmarks_take_official_judges_and_say_how_to_get_them(
    monkeypatch, variant, method, address
):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    settings = from_config(JudgeSettings, get_config(variant).to_dict()["judge"])
    commit = OFFICIAL[method].repository.commit
    with pytest.raises(UserError) as error:
        judge_config(settings, ACTOR, {})
    assert str(error.value) == (
        f"config.judge.official is empty: {method} runs from its own repository; clone https://{address}, "
        f"check out {commit}, and give the folder"
    )


# --- Evidence ---


def test_history_names_elements_and_not_their_numbers(tmp_path):
    elements: dict[int | None, Element] = {
        1: Element(index=1, tag="input", text="", attributes={"placeholder": 'Say "hi"', "class": "x"}),
        2: Element(index=2, tag="a", text="Add  to\ncart", attributes={"href": "/cart"}),
    }

    def words(*actions):
        return [action_words(action, elements) for action in parse_reply(reply(*actions)).actions]

    assert words(
        {"click_element_by_index": {"index": 2}},
        {"input_text": {"index": 1, "text": "a lamp"}},
        {"click_element_by_index": {"index": 7}},
        {"go_to_url": {"url": "https://shop.test/"}},
        {"scroll": {"down": True, "num_pages": 1.0}},
        {"go_back": {}},
    ) == [
        '<a href="/cart">Add to cart</a> -> CLICK',
        '<input placeholder="Say &quot;hi&quot;"> -> TYPE: a lamp',
        "CLICK",
        "GOTO: https://shop.test/",
        'SCROLL: {"down": true, "num_pages": 1.0}',
        "GO BACK",
    ]


@given(st.text(), st.dictionaries(st.sampled_from(["href", "title", "onclick", "aria-label"]), st.text()))
def test_element_words_are_one_short_line(text, attributes):
    words = element_words(Element(index=1, tag="a", text=text, attributes=attributes))
    assert (
        words.startswith("<a") and "\n" not in words and len(words) < 6 * 5 * 210 and "onclick" not in words
    )


def test_an_episode_holds_all_that_judges_may_see(tmp_path):
    steps = (
        step(1, {"input_text": {"index": 1, "text": 'desk lamp "small" 比较'}}, screenshot=shots(1)[0]),
        step(2, response="I cannot see the page.", error="not JSON", screenshot=None),
        step(3, {"click_element_by_index": {"index": 9}}, screenshot=shots(2)[1]),
        step(4, {"done": {"text": "12 €\n\n🙂", "success": True}}, screenshot=shots(1)[0]),
    )
    shown = episode(run().model_copy(update={"steps": steps}), Screenshots(), (), tmp_path)
    assert json.loads(json.dumps(shown)) == shown
    assert [bool(one["screenshot"]) for one in shown["steps"]] == [True, False, True, True]
    # The final answer is not an action in Online-Mind2Web's histories.
    assert [bool(one["action"]) for one in shown["steps"]] == [True, True, True, False]
    assert [one["done"] for one in shown["steps"]] == [False, False, False, True]


# --- Requests of other programs ---


@pytest.fixture
def endpoint():
    one = JudgeEndpoint()
    yield one
    one.close()


def post(endpoint, key, path="/chat/completions", content=None):
    headers = {"Authorization": f"Bearer {key}"}
    body = json.dumps({"model": "m", "messages": "hello"}).encode() if content is None else content
    asked = urllib.request.Request(endpoint.url + path, body, headers)
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def test_only_a_client_with_its_key_is_answered(endpoint):
    key = endpoint.add(lambda body: body["messages"])
    assert post(endpoint, key) == "hello" and endpoint.url.startswith("http://127.0.0.1:")
    for wrong in (("other",), ("",), (key, "/models")):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            post(endpoint, *wrong)
    endpoint.remove(key)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(endpoint, key)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"messages": "hello"}'])
def test_what_is_no_request_is_refused_and_not_to_be_tried_again(endpoint, content):
    key = endpoint.add(lambda body: body["messages"])
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(endpoint, key, content=content)
    assert post(endpoint, key) == "hello"


def test_a_refusal_has_its_reason(endpoint):
    def fail(body):
        raise UserError("the budget is spent")

    key = endpoint.add(fail)
    with pytest.raises(urllib.error.HTTPError, match="400") as error:
        post(endpoint, key)
    assert json.load(error.value) == {"error": {"message": "the budget is spent"}}


def test_a_judge_may_ask_about_a_hundred_screenshots_at_once(endpoint):
    begun, done = threading.Semaphore(0), threading.Event()
    started = []

    def answer(body):
        started.append(body["messages"])
        begun.release()
        assert done.wait(120)
        return f"reply to {body['messages']}"

    key, quick = endpoint.add(answer), endpoint.add(lambda body: "quick")
    with ThreadPoolExecutor(100) as pool:
        contents = [json.dumps({"model": "m", "messages": number}).encode() for number in range(100)]
        replies = [pool.submit(post, endpoint, key, content=content) for content in contents]
        assert all(begun.acquire(timeout=120) for _ in range(8))
        # Another judgement does not wait for these, of which so many are answered at a time.
        quickly, at_once = [post(endpoint, quick) for _ in range(50)], len(started)
        done.set()
        assert (quickly, at_once) == (["quick"] * 50, 8)
        assert [one.result() for one in replies] == [f"reply to {number}" for number in range(100)]


def test_a_request_of_another_program_has_its_own_key_and_size():
    plain = ModelRequest((), "judge", 0)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    chat = {"messages": [{"role": "system", "content": "x" * 30}, {"role": "user", "content": [image]}]}
    raw = dataclasses.replace(plain, chat=chat)
    assert raw.estimated_tokens == IMAGE_TOKENS + 10 + 1
    keys = [content_key("m", one) for one in (plain, raw, dataclasses.replace(raw, repeat=1))]
    assert len(set(keys)) == 3 and content_key("m", dataclasses.replace(plain, repeat=1)) == keys[0]
    with pytest.raises(UserError, match="kind=chat"), PromptServer(says("x")) as server:
        model_at(server, "gemini").complete(raw)
