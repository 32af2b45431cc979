"""The report of a run: its figures, tables, plots and pages."""

import json
from pathlib import Path

import pandas
import pytest
from selenium.webdriver.common.by import By

from collection.config import ReportSettings
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
    assert summary["differences"]["rl_minus_sft"]["tasks"] == 4


def test_stages_that_have_not_run_are_marked(begun_run, tmp_path):
    folder = draw(begun_run, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["models"] == {"base": None, "sft": None, "rl": None}
    assert summary["differences"]["sft_minus_base"] is None
    assert summary["stages"]["rl"] == {"status": "not run", "seconds": None}
    assert not (folder / "table.md").exists() and (folder / "pages/index.html").exists()


def test_tables_and_plots_of_the_run_are_next_to_the_summary(drawn):
    names = {path.name for path in drawn.iterdir()}
    assert names >= {"table.md", "main.tex", "differences.tex", "pass-at-1.pdf"}
    assert "| rl − sft | MiniWoB++ | 4 (4, 4) |" in (drawn / "table.md").read_text()
    curves = {path.name for path in (drawn / "curves").iterdir()}
    assert curves >= {"dynamics.pdf", "sft-loss.png", "rl-held-out-prompts.csv"}
    rewards = pandas.read_csv(drawn / "curves/rl-held-out-prompts.csv")
    # Before the first update, and after the last one.
    assert rewards[["x", "y"]].to_numpy().tolist() == [[1, 0.45], [11, 0.65]]


def test_a_missing_run_is_a_user_error(tmp_path):
    config = get_config("demo")
    with pytest.raises(UserError, match=r"--config\.run=DIR"):
        report.main(from_config(ReportSettings, config), tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("report.json", "{", r"rl/report\.json"),
        ("metrics.jsonl", '{"step": 1\n', r"metrics\.jsonl: line 1"),
    ],
)
def test_a_damaged_file_is_a_user_error(tmp_path, file, text, words):
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl" / file).write_text(text)
    with pytest.raises(UserError, match=words):
        build_summary(RunFolder(tmp_path))
        RunFolder(tmp_path).metrics("rl")


def test_the_held_out_reward_is_broken_down_before_and_after(drawn):
    held_out = json.loads((drawn / "summary.json").read_text())["held_out"]
    assert held_out["reward"] == {"first": 0.45, "last": 0.65}
    assert held_out["type"] == {
        "click_element_by_index": {"first": 0.5, "last": 0.75},
        # No held-out prompt of that type was left to score after training.
        "done": {"first": 0.25, "last": None},
    }
    assert held_out["category"] == {"ui_navigation": {"first": 0.4, "last": 0.6}}


def test_the_folder_of_a_stage_gets_its_pages_or_a_line(whole_run, tmp_path, capsys):
    folder = draw(whole_run / "evaluate/rl", tmp_path / "rl")
    assert capsys.readouterr().out == f"{folder / 'pages/index.html'}: open it in a browser\n"
    assert "pass@1" in next((folder / "pages").glob("evaluation-*.html")).read_text()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: has no report\.json"):
        draw(tmp_path / "empty", tmp_path / "other")


def test_the_page_opens_from_disk_without_errors_or_requests(drawn):
    with open_browser() as driver:
        driver.get((drawn / "pages/index.html").as_uri())
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert {url.partition(":")[0] for url in sent} <= {"file", "data"}
        driver.find_element(By.LINK_TEXT, "Episodes").click()
        assert len(driver.find_elements(By.CSS_SELECTOR, "#episodes tbody tr")) > 10
