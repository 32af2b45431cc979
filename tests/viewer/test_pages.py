"""Pages through the application, without a browser: status, safety, labels, export."""

import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from collection.viewer.app import ROUTES, Viewer, link, make_app
from collection.viewer.episodes import step_pages
from collection.viewer.export import export
from collection.viewer.folders import Folders
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import Labels
from collection.viewer.pages import Pages
from rmsweb_jax.errors import UserError
from tests.trajectories import CLICK, SHOT, step, trajectory
from tests.viewer.made import NO_SHOT, make_runs
from tests.viewer.serving import make_pages

ADDRESS = "http://127.0.0.1:8400"
TASK, HOSTILE_ID = "miniwob/login-user/1", "miniwob/hostile/1#teacher-1"
EPISODE = link("/episode", data="runs/collect", id=f"{TASK}#teacher-2")
ALL = [
    link("/"),
    link("/run", data="runs/collect"),
    link("/episodes"),
    link("/episodes", result="failed", q="input_text", sort="-steps"),
    EPISODE,
    link("/episode", data="runs/collect", id=HOSTILE_ID),
    link("/chain", data="runs/collect", task=TASK),
    link("/chain", data="runs/collect", task="miniwob/hostile/1"),
    link("/run", data="runs/rl"),
    link("/episodes", tokens_from=1, steps_to=2, date_from="2020-01-01", columns="task_id,steps"),
    link("/mined", data="runs/mine/audit"),
    link("/pair", data="runs/mine/audit", task=TASK),
    link("/run", data="runs/rl"),
    link("/run", data="runs/rl", prompt="p1"),
    link("/evaluation"),
    link("/evaluation", differ=1),
    link("/judges", data="runs/judge"),
    link("/judges", data="runs/judge", all=1),
    link("/dates", data="runs/evaluate/dated"),
    link("/compare", task="miniwob/login-user/102"),
    link("/compare", task="miniwob/hostile/1"),
    link("/compare", task=TASK, first=f"{TASK}#teacher-1", second=f"{TASK}#teacher-2"),
    link("/run", data="runs/mine"),
    link("/trainings", data="runs/rl,runs/rl2"),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("viewer")
    make_runs(folder / "runs")
    return folder


def open_client(work, token: str = "") -> TestClient:
    pages, _, _ = make_pages(work / "runs", work)
    return TestClient(make_app(Viewer(pages), token), base_url=ADDRESS)


@pytest.fixture(scope="module")
def client(work):
    return open_client(work)


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("address", ALL)
def test_every_page_opens_and_has_no_element_of_the_records(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    tags = _Tags()
    tags.feed(answer.text)
    scripts = {attributes.pop("src") for tag, attributes in tags.found if tag == "script"}
    assert "/static/viewer.js" in scripts <= {"/static/viewer.js", "/static/uPlot.min.js"}
    for tag, attributes in tags.found:
        assert tag != "svg" and not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "action"):
            assert re.match(r"[/#]|$", attributes.get(name) or ""), (tag, attributes)


@pytest.mark.parametrize(
    "address",
    [
        link("/episode", data="runs/collect", id="missing"),
        link("/episode", data="../etc", id=HOSTILE_ID),
        link("/run", data="runs/other"),
        link("/chain", data="runs/rl", task=TASK),
        link("/mined", data="runs/collect"),
        link("/pair", data="runs/mine/audit", task="other"),
        link("/compare", task="other"),
        link("/judges", data="runs/rl"),
        link("/dates", data="runs/rl"),
        link("/image", data="runs/collect", sha="../../../etc/passwd"),
        link("/image", data="runs/collect", sha=NO_SHOT),
        link("/image", data="/etc", sha=SHOT),
        link("/trainings", data="runs/rl,runs/collect"),
        "/static/../app.py",
        "/static/%2e%2e/app.py",
    ],
)
def test_what_is_not_there_is_not_found(client, address):
    assert client.get(address).status_code == 404


def test_screenshots_are_images_that_run_nothing(client):
    shot = client.get(link("/image", data="runs/collect", sha=SHOT))
    assert shot.headers["content-type"] == "image/png"
    assert "sandbox" in shot.headers["content-security-policy"]


def plots(text) -> dict[str, Any]:
    """The plots of a page by title."""
    found = (json.loads(html.unescape(one)) for one in re.findall(r'data-plot="([^"]*)"', text))
    return {plot["title"]: plot for plot in found}


def test_a_training_has_its_curves_with_the_evaluation_after_the_last_update(client):
    text = client.get(link("/run", data="runs/rl")).text
    found = plots(text)
    titles = {"Reward of rollouts", "Held-out prompts", "Held-out reward by action", "Drift", "Clip fraction"}
    assert set(found) == titles | {"Padding of rows"}
    assert found["Held-out prompts"]["x"] == [1, 2, 3, 4]
    assert found["Held-out prompts"]["lines"] == [{"label": "reward", "y": [0.1, 0.2, 0.3, 0.4]}]
    assert (
        "<dt>row tokens</dt><dd>768</dd>" in text and 'href="/trainings?data=runs%2Frl%2Cruns%2Frl2"' in text
    )


def test_runs_have_their_funnel_and_their_rounds(client):
    text = re.sub(r"\s+", " ", client.get(link("/run", data="runs/mine")).text)
    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="n">(−?\d*)</td><td class="n">(\d+)</td>', text)
    gates = [("all tasks", "", "4"), ("no run solved the task", "−2", "2"), ("replay", "−1", "1")]
    assert rows == [*gates, ("1 prompts made of them", "", "1")]
    assert "Filter/sort/search context not applied" in text and 'value="4.53"' in text
    rounds = plots(client.get(link("/run", data="runs/collect")).text)["Success by round"]
    assert rounds["x"] == [1, 2] and rounds["lines"][0]["y"] == [25, 100]


def test_a_failure_says_why_where_it_went_wrong_and_where_that_is_known_from(client):
    failed = re.sub(r"\s+", " ", client.get(EPISODE.replace("-2", "-1")).text)
    assert (
        "<b>Critical action or task endpoint incomplete</b>" in failed
        and 'href="#step-2">step 2</a>' in failed
    )
    assert "From a mined pair, whose failure cues named." in failed
    assert link("/pair", data="runs/mine/audit", task=TASK).replace("&", "&amp;") in failed
    paired = link("/compare", task=TASK, first=f"{TASK}#teacher-1", second=f"{TASK}#teacher-2")
    assert paired.replace("&", "&amp;") in failed
    assert "Why it failed" not in client.get(EPISODE).text
    captcha = client.get(link("/episode", data="runs/collect", id="miniwob/login-user/2#teacher-1")).text
    assert (
        "Access, anti-bot, or technical obstruction" in captcha and "From cues of this run alone" in captcha
    )
    listed = client.get(link("/episodes", dataset="runs/collect", failure_mode="endpoint_incomplete")).text
    assert "1 episodes" in listed and "#step-2" in listed


def test_an_episode_that_ended_before_its_reward_is_not_solved_everywhere(client):
    words = "not solved (ended before a reward)"
    assert (
        words in client.get(link("/episode", data="runs/collect", id="miniwob/login-user/3#teacher-1")).text
    )
    listed = client.get(link("/episodes", result="no_reward")).text
    assert "1 episodes" in listed and words in listed and "unjudged" not in listed
    assert f"{words} 1" in client.get(link("/run", data="runs/collect")).text


def test_failures_of_evaluations_are_grouped_and_rates_drawn(client):
    text = client.get("/evaluation").text
    groups = re.findall(r'href="(/episodes[^"]*failure_mode=[^"]*)" aria-label="(\d+) of', text)
    assert groups
    for address, count in groups:
        assert f'id="total">{count} episodes' in client.get(html.unescape(address)).text
    found = plots(text)["pass@1"]
    assert found["names"] == ["rl", "sft"] and len(found["bars"][0]) == 2 and found["limits"] == [0, 100]
    assert found["lines"][0]["y"] == pytest.approx([100, 200 / 3])


def test_runs_have_their_cost_and_what_they_were_made_from(client):
    text = client.get("/").text
    assert "$1.25" in text and "runs/mine/audit" in re.sub(r"<th scope.*?</th>", "", text)
    live = client.get(link("/run", data="runs/collect")).text
    assert re.search(r">gemini</th><td>reply</td>\s*<td class=\"n\">1</td>", live)


def test_judges_are_shown_where_they_or_a_reader_differ(client):
    text = client.get(link("/judges", data="runs/judge")).text
    assert "1 of 5 episodes" in text and "75.0 %" in text
    assert "5 episodes" in client.get(link("/judges", data="runs/judge", all=1)).text
    name = f"{TASK}#teacher-1"
    client.post("/label", data={"kind": "episodes", "name": name, "label": "solved"})
    assert "2 of 5 episodes" in client.get(link("/judges", data="runs/judge")).text
    client.post("/label", data={"kind": "episodes", "name": name, "label": ""})


def test_rates_differences_and_shades_are_shown(client):
    text = client.get("/evaluation").text
    assert re.search(r"runs/evaluate/sft</th><td>runs/evaluate/rl</td>", text)
    assert "-33.3 <span" in text
    groups = client.get(link("/run", data="runs/rl")).text
    assert 'class="shade-5" title="log p -4.5"' in groups and 'class="shade-0"' in groups


def test_attempts_are_told_apart_by_their_steps_and_their_guidance(client):
    page = client.get(link("/compare", task="miniwob/login-user/102")).text
    assert "differs from the first from step 2 on" in page
    chain = re.sub(r"\s+", " ", client.get(link("/chain", data="runs/collect", task=TASK)).text)
    assert re.search(r'class="gone">[^<]*the password', chain), chain
    assert re.search(r'class="new">[^<]*nothing more', chain)
    assert "acts differently from the attempt before from step 2 on" in chain


def test_columns_can_be_hidden_and_ranges_limit(client):
    text = client.get(link("/episodes", columns="task_id,steps,other")).text
    assert 'aria-label="show tokens"' in text and 'aria-label="hide steps"' in text
    assert "5 episodes" in client.get(link("/episodes", dataset="runs/collect", steps_from=0)).text
    assert "1 episodes" in client.get(link("/episodes", dataset="runs/collect", steps_from=4)).text
    assert "0 episodes" in client.get(link("/episodes", date_to="2001-01-01")).text


def test_other_hosts_and_sites_are_refused(client, work):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"host": "evil.example:8400"}).status_code == 403
    for host in ("localhost:8400", "[::1]:8400", "127.0.0.1"):
        assert client.get("/", headers={"host": host}).status_code == 200
    assert client.get("/", headers={"origin": "http://evil.example"}).status_code == 403
    embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/", headers=embedded).status_code == 403
    assert client.get("/", headers=embedded | {"sec-fetch-mode": "navigate"}).status_code == 200
    posted = client.post("/label", data={}, headers={"origin": "http://evil.example"})
    assert posted.status_code == 403


def test_a_token_is_asked_for_once(work):
    client = open_client(work, token="secret")
    assert client.get("/").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    answer = client.get("/?token=secret")
    assert answer.status_code == 200 and "token" not in str(answer.url)
    assert client.get("/episodes").status_code == 200
    assert (
        open_client(work, token="secret").get(link("/image", data="runs/collect", sha=SHOT)).status_code
        == 401
    )


def test_labels_are_files_that_the_judges_read(client, work):
    name = f"{TASK}#teacher-1"
    for label in ("solved", "failed"):
        assert client.post("/label", data={"kind": "episodes", "name": name, "label": label}).text == label
    assert client.post("/label", data={"kind": "mined", "name": TASK, "label": "wrong"}).text == "wrong"
    line = (work / "labels/episodes.jsonl").read_text()
    assert json.loads(line) == {"trajectory_id": name, "success": False}
    assert '"wrong"' in (work / "labels/mined.jsonl").read_text()
    assert Labels(work / "labels").get("episodes", name) == "failed"
    assert (
        'data-label="failed" data-key="f" aria-pressed="true"' in client.get(EPISODE.replace("-2", "-1")).text
    )
    assert client.post("/label", data={"kind": "episodes", "name": name, "label": ""}).text == ""
    assert (work / "labels/episodes.jsonl").read_text() == ""
    for wrong in ({"kind": "other"}, {"kind": "mined", "name": TASK, "label": "solved"}):
        assert client.post("/label", data=wrong).status_code == 400
    assert client.post("/label", data={"name": "x" * 5000}).status_code == 413


def test_damaged_labels_are_one_line(tmp_path):
    (tmp_path / "mined.jsonl").write_text('{"task_id": 1')
    with pytest.raises(UserError, match=r"mined\.jsonl: not a file of labels"):
        Labels(tmp_path)


def test_files_that_vanish_leave_a_page_that_says_so(tmp_path):
    root = make_runs(tmp_path / "runs")
    pages, _, _ = make_pages(root, tmp_path)
    client = TestClient(make_app(Viewer(pages)), base_url=ADDRESS)
    for path in (root / "collect").glob("images-*"):
        path.unlink()
    assert client.get(EPISODE).status_code == 200
    (root / "collect/manifest.json").unlink()
    answer = client.get(EPISODE)
    assert answer.status_code == 404 and "runs/collect" in answer.text
    assert client.get("/episodes").status_code == 200


def test_damaged_files_of_a_run_leave_a_page(tmp_path):
    root = make_runs(tmp_path / "runs")
    (root / "rl/metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n{"step": 2, "rew')
    (root / "rl/groups.jsonl").write_text('{"step": 1}\n[]\n{"step": "x", "responses": 3}\n')
    (root / "rl/replies.jsonl").write_text('{"step": 1, "reward": 0.5}\nnothing\n')
    (root / "rl/report.json").write_text('{"stage"')
    (root / "collect/progress.json").write_text('{"done": 1, "total": "many"}')
    (root / "collect/live").mkdir()
    for number, text in enumerate(('{"worker": "1"', '{"since": "x"}', '{"since": 1.0}')):
        (root / f"collect/live/{number}.json").write_text(text)
    pages, _, _ = make_pages(root, tmp_path)
    client = TestClient(make_app(Viewer(pages)), base_url=ADDRESS)
    for page in (link("/"), link("/run", data="runs/collect"), link("/run", data="runs/rl")):
        answer = client.get(page)
        assert answer.status_code == 200, (page, answer.text)
    (root / "evaluate/rl/results.jsonl").write_text('{"label": 3')
    assert "not evaluation results" in client.get(link("/evaluation")).text


def test_a_step_shows_what_is_new_and_what_was_acted_on():
    def page(number, text):
        one = step(number, CLICK)
        seen = one.observation.model_copy(update={"page_text": text})
        return one.model_copy(update={"observation": seen})

    first, second = step_pages(trajectory(page(1, "[1]<a>x\n[3]<b>y"), page(2, "[1]<a>x\n[4]<b>y\n[3]<i>z")))
    assert [(line.new, line.acted) for line in first.lines] == [(False, False), (False, True)]
    assert [(line.new, line.acted) for line in second.lines] == [(False, False), (False, False), (True, True)]
    assert first.acted == ("[3] <button> Login",)
    assert first.actions == ('{"click_element_by_index": {"index": 3}}',)


def test_an_export_has_all_pages_and_links_only_its_files(work, tmp_path):
    pages, index, _ = make_pages(work / "runs", tmp_path)
    start = export(pages, index, tmp_path / "out", 500)
    assert start == tmp_path / "out/index.html"
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert sum(name.startswith("episode-") for name in files) == 11
    for path in (tmp_path / "out").glob("*.html"):
        tags = _Tags()
        tags.feed(path.read_text())
        for _, attributes in tags.found:
            for target in (attributes.get("href"), attributes.get("src")):
                assert not target or (tmp_path / "out" / target.partition("#")[0]).exists(), (path, target)
    with pytest.raises(UserError, match="has files"):
        export(pages, index, tmp_path / "out", 500)


def test_a_short_export_says_so(work, tmp_path):
    pages, index, _ = make_pages(work / "runs", tmp_path)
    export(pages, index, tmp_path / "out", 2)
    names = [path.name for path in (tmp_path / "out").glob("*.html")]
    kinds = Counter(name.partition("-")[0] for name in names)
    assert (kinds["episode"], kinds["chain"], kinds["pair"], kinds["compare"]) == (2, 2, 1, 2)
    assert "Only some of the 11 episodes" in (tmp_path / "out/not-exported.html").read_text()


def test_trainings_of_several_folders_keep_their_names_and_a_damaged_one_ends_no_export(tmp_path):
    for name in ("alpha", "beta"):
        folder = tmp_path / name / "rl"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss/train": 0.5}\n')
    folders = Folders([tmp_path / "alpha", tmp_path / "beta"])
    index = EpisodeIndex(tmp_path / "index.sqlite", folders)
    pages = Pages(folders, index, Labels(tmp_path / "labels"))
    page = ROUTES["/trainings"](pages, {"data": "alpha/rl,beta/rl"})
    assert [line["label"] for line in page.values["plots"][0]["lines"]] == ["alpha/rl", "beta/rl"]
    (folder / "report.json").write_text('{"stage": "rl", "final": null}')
    assert export(pages, index, tmp_path / "out", 5).exists()
