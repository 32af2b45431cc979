import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from collection.config import ReportSettings
from collection.report.page import render_page
from collection.report.page_plots import Series, line_plot, series
from collection.report.sources import STAGES, RunFolder
from collection.report.summary import build_summary
from configs.report import get_config
from experiments import report
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config
from tests.browser.plain import open_browser


def draw(root: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    config = get_config("demo")
    config.run = str(root)
    report.main(from_config(ReportSettings, config), folder)
    return folder


@pytest.fixture(scope="module")
def drawn(whole_run, tmp_path_factory) -> Path:
    return draw(whole_run, tmp_path_factory.mktemp("report"))


def test_summary_has_every_figure_under_its_key(drawn):
    summary = json.loads((drawn / "summary.json").read_text())
    assert summary["models"]["rl"]["pass_at_1"]["mean"] == 1.0
    assert summary["models"]["sft"]["pass_at_1"]["mean"] == pytest.approx(2 / 6)
    assert summary["models"]["sft"]["mean_steps_solved"]["mean"] == 3.0
    assert summary["differences"]["sft_minus_base"]["pass_at_1"]["mean"] == pytest.approx(2 / 6)
    assert summary["differences"]["rl_minus_sft"]["pass_at_3"]["mean"] == pytest.approx(1 / 2)
    assert summary["teacher"] == {"kind": "scripted", "model": "scripted"}
    assert summary["collection"]["solve_at_2_by_round"] == {"1": 0.0, "2": 0.0, "3": 1.0}
    assert summary["filter"]["dropped"]["not_successful"] == 4
    assert summary["mining"]["categories"]["ui_navigation"]["prompts"] == 1
    assert summary["stages"].keys() == STAGES.keys()
    assert summary["total_seconds"] == pytest.approx(sum(s["seconds"] for s in summary["stages"].values()))


def test_missing_and_unended_runs_are_listed(drawn):
    summary = json.loads((drawn / "summary.json").read_text())
    assert (summary["models"]["base"]["missing"], summary["models"]["base"]["never_done"]) == (0, 12)
    assert "0 without a result, 12 never done" in (drawn / "index.html").read_text()
    assert summary["differences"]["rl_minus_sft"]["tasks"] == 4


def test_stages_that_have_not_run_are_marked(begun_run, tmp_path):
    folder = draw(begun_run, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["models"] == {"base": None, "sft": None, "rl": None}
    assert summary["differences"]["sft_minus_base"] is None
    assert summary["stages"]["rl"] == {"status": "not run", "seconds": None}
    text = re.sub(r"<[^>]*>", " ", (folder / "index.html").read_text())
    for what in ("Mining: not run", "SFT: not run", "RL: not run", "Evaluation: not run"):
        assert what in text


def test_the_page_refers_to_nothing_outside_its_folder(drawn):
    page = (drawn / "index.html").read_text()
    targets = re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)", page)
    assert targets
    assert all(re.match(r"#|data:|pages/index", one or two) for one, two in targets)
    assert "@import" not in page


def test_drawing_again_gives_the_same_bytes(whole_run, drawn, tmp_path):
    again = draw(whole_run, tmp_path)
    assert (again / "index.html").read_bytes() == (drawn / "index.html").read_bytes()


def test_ids_are_unique(drawn):
    ids = re.findall(r' id="([^"]*)"', (drawn / "index.html").read_text())
    assert len(ids) == len(set(ids))


def test_a_missing_run_is_a_user_error(tmp_path):
    config = get_config("demo")
    with pytest.raises(UserError, match=r"--config\.run=DIR"):
        report.main(from_config(ReportSettings, config), tmp_path)


def test_a_damaged_report_is_a_user_error(tmp_path):
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl/report.json").write_text("{")
    with pytest.raises(UserError, match=r"rl/report\.json"):
        build_summary(RunFolder(tmp_path))


def test_a_damaged_line_is_a_user_error(tmp_path):
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl/metrics.jsonl").write_text('{"step": 1\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 1"):
        RunFolder(tmp_path).metrics("rl")


def test_an_empty_run_makes_a_page(tmp_path):
    run = RunFolder(tmp_path)
    assert "not run" in render_page(run, build_summary(run), "empty")


def test_series_leave_out_rows_without_a_number():
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "a": None}, {"step": 3}, {"step": 4, "a": 2}]
    assert series(rows, "a", "A") == Series("A", (1, 4), (1.0, 2))
    assert series(rows, "b", "B") is None


def test_the_held_out_reward_is_broken_down_before_and_after(drawn):
    held_out = json.loads((drawn / "summary.json").read_text())["held_out"]
    assert held_out["reward"] == {"first": 0.45, "last": 0.65}
    assert held_out["type"] == {
        "click_element_by_index": {"first": 0.5, "last": 0.75},
        # No held-out prompt of that type was left to score after training.
        "done": {"first": 0.25, "last": None},
    }
    assert held_out["category"] == {"ui_navigation": {"first": 0.4, "last": 0.6}}
    text = re.sub(r"<[^>]*>", " ", (drawn / "index.html").read_text())
    assert "Held-out reward by action type" in text
    assert "Held-out reward by failure mode" in text


def test_the_page_shows_panels_and_leads_to_the_pages_of_episodes(drawn):
    page = (drawn / "index.html").read_text()
    assert "Training dynamics" in page and 'href="pages/index.html"' in page
    names = [path.name.partition("-")[0] for path in (drawn / "pages").glob("*.html")]
    assert {"episode", "chain", "pair", "run", "compare", "evaluation"} <= set(names)


def test_the_folder_of_a_stage_gets_its_pages_or_a_line(whole_run, tmp_path, capsys):
    folder = draw(whole_run / "evaluate/rl", tmp_path / "rl")
    assert capsys.readouterr().out == f"{folder / 'pages/index.html'}: open it in a browser\n"
    assert "pass@1" in next((folder / "pages").glob("evaluation-*.html")).read_text()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: has no report\.json"):
        draw(tmp_path / "empty", tmp_path / "other")


def test_plots_follow_the_colour_scheme():
    svg = line_plot([Series("a", range(100), range(100))], "p", "A plot")
    assert "var(--series-1)" in svg
    assert not re.search(r"(?:fill|stroke): #", svg)


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with open_browser() as driver:
        yield driver


def test_the_page_opens_from_disk_without_errors_or_requests(chromium, drawn):
    chromium.get((drawn / "index.html").as_uri())
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url.partition(":")[0] for url in sent} <= {"file", "data"}
    broken = "return [...document.images].filter(image => !image.complete || !image.naturalWidth).length"
    assert chromium.execute_script(broken) == 0
    width = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    whole, visible = chromium.execute_script(width)
    assert whole <= visible
    chromium.find_element(By.PARTIAL_LINK_TEXT, "Episodes, attempts").click()
    chromium.find_element(By.LINK_TEXT, "Episodes").click()
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#episodes tbody tr")) > 10
