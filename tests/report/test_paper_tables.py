"""The paper's tables from evaluation folders: the source of each cell, and refusals."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas
import pytest

from collection.config import ReportSettings
from collection.evaluation.judge_error import JudgeError
from collection.evaluation.results import to_json
from collection.report.comparison import pairs
from collection.report.evaluations import read_evaluations
from collection.report.paper_tables import number, p_value, points
from collection.report.published import ABLATION, BENCHMARKS, MAIN, REFLECTION, STEPS_SAVED
from configs.report import get_config
from experiments import report
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import JudgeFingerprint
from rmsweb_jax.settings import from_config
from tests.evaluation.made import REWARD
from tests.report.evaluated import make_results, named, read_json, write_evaluation
from tests.scripts import run_script


def write_table(folder: Path, name: str, results: str, **settings) -> Path:
    folder.mkdir(exist_ok=True)
    config = get_config("demo")
    config.update({"table": name, "results": results, **settings})
    report.main(from_config(ReportSettings, config), folder)
    return folder


def read_plot(path: Path) -> pandas.DataFrame:
    return pandas.read_csv(path)


def cells(folder: Path, first: str, table: int = 0) -> list[str]:
    """The row of `table.md` that begins with `first`, of its table of that number."""
    part = (folder / "table.md").read_text().split("\n## ")[1 + table]
    rows = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in part.splitlines() if line.startswith("|")]
    return next(row for row in rows if row[0].replace("\\", "") == first)


def head(folder: Path, table: int = 0) -> list[str]:
    part = (folder / "table.md").read_text().split("\n## ")[1 + table]
    line = next(line for line in part.splitlines() if line.startswith("|"))
    return [cell.strip().replace("\\", "") for cell in line.split("|")[1:-1]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Base and SFT on WebVoyager with 100 tasks, SFT on MiniWoB++ too; the latter's first runs unjudged."""
    root = tmp_path_factory.mktemp("evaluations")
    return {
        "8b_base": [
            write_evaluation(root / "base", make_results("base", "webvoyager", 0.4, tasks=range(100)))
        ],
        "8b_sft": [
            write_evaluation(
                root / "sft",
                make_results("sft", "webvoyager", 0.7, tasks=range(30, 100), seed=1, unjudged=40),
            ),
            write_evaluation(root / "miniwob", make_results("sft", "miniwob", 0.5)),
        ],
        "mine": [write_evaluation(root / "mine", make_results("mine", "webvoyager", 0.9, tasks=range(50)))],
    }


@pytest.fixture(scope="module")
def main_table(folders, tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("main"), "main", named(folders))


@pytest.fixture(scope="module")
def whole_table(folders, tmp_path_factory):
    """With the rows that were not measured."""
    return write_table(tmp_path_factory.mktemp("whole"), "main", named(folders), published=True)


def test_only_measured_rows_and_benchmarks_are_there_with_the_papers_figure(main_table):
    columns = head(main_table)
    assert [name for name in columns if name.endswith(": paper")] == ["WebVoyager: paper"]
    text = (main_table / "table.md").read_text() + (main_table / "main.tex").read_text()
    assert "Fara-7B" not in text and "F595" not in text and "WebTailBench" not in text
    assert len([row for row in MAIN.rows if f"| {row.title} |" in text]) == 2
    assert cells(main_table, "8B + SFT")[columns.index("WebVoyager: paper")] == "82.65"
    assert cells(main_table, "mine")[columns.index("WebVoyager: paper")] == "—"


def test_every_published_row_is_there_on_request_with_the_papers_figures(whole_table):
    columns = head(whole_table)
    for row in MAIN.rows:
        found = cells(whole_table, row.title)
        for benchmark, one in BENCHMARKS.items():
            place = columns.index(f"{one.title}: paper")
            assert found[place] == row.rates.get(benchmark, "—")
    for title in ("8B + SFT + RL", "Fara-7B"):
        place = columns.index("WebVoyager: measured")
        assert cells(whole_table, title)[place : place + 2] == ["not run", "not run"]
    # No policy was measured there.
    assert "WebTailBench: measured" not in columns and "WebTailBench: paper" in columns


def test_measured_figures_have_their_own_columns_with_interval_tasks_runs_and_omissions(main_table):
    columns, found = head(main_table), cells(main_table, "8B + SFT")
    figures = read_json(main_table / "table.json")["measured"]["8b_sft"]["webvoyager"]
    rate = figures["pass_at_1"]
    expected = f"{100 * rate['mean']:.1f} ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
    bounds = f"\\[{100 * rate['least']:.1f} to {100 * rate['most']:.1f}\\] ¶"
    place = columns.index("WebVoyager: measured")
    assert found[place] == f"{expected} {bounds}"
    assert found[place + 1] == "70 × 3, 573 tasks left out, 10 runs without a result"
    assert figures["left_out"] == 573
    assert figures["missing"] == 10
    assert rate["least"] < rate["mean"] < rate["most"]
    # Complete rates are as before, without bounds or a mark.
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", cells(main_table, "mine")[place])


def test_missing_runs_are_marked_in_every_format_and_uneven_ones_too(folders, main_table):
    whole = make_results("sft", "webvoyager", 0.7, tasks=range(30, 100), seed=1, unjudged=40)
    for file, mark, uneven in (
        ("table.md", "] ¶", " ≠"),
        ("differences.tex", r"] \P{}", r" $\neq$"),
    ):
        text = (main_table / file).read_text().replace("\\]", "]").replace("\\_", "_")
        assert mark in text and uneven in text, file
        assert "left out: 10 (10 unjudged) of 8b_sft on WebVoyager" in text
        assert (
            "8b_sft misses 10 runs, 8b_base 0 on WebVoyager (sign test over tasks, p 0.0020)"
            in text.replace("\\", "")
        )
    one = read_json(main_table / "table.json")["differences"][0]
    assert (one["missing"], one["uneven"]) == ([10, 0], True)
    assert one["missing_p"] == pytest.approx(2 / 2**10) and whole.missing == 10


def test_policies_and_benchmarks_that_the_paper_lacks_get_rows_and_columns(main_table):
    columns = head(main_table)
    assert columns[-2:] == ["MiniWoB++: measured", "MiniWoB++: tasks × runs"]
    own = cells(main_table, "mine")
    assert own[columns.index("WebVoyager: paper")] == "—"
    rate = read_json(main_table / "table.json")["measured"]["mine"]["webvoyager"]["pass_at_1"]["mean"]
    assert own[columns.index("WebVoyager: measured")].startswith(f"{100 * rate:.1f} (")
    assert cells(main_table, "8B + SFT")[-1] == "40 × 3, 0 tasks left out, 0 runs without a result"


def test_differences_are_on_shared_tasks_and_say_how_many(main_table):
    found = cells(main_table, "8b_sft − 8b_base", table=2)
    assert found[1:3] == ["WebVoyager", "70 (70, 100)"]
    one = read_json(main_table / "table.json")["differences"]
    assert [(each["first"], each["second"], each["tasks"]) for each in one] == [("8b_sft", "8b_base", 70)]
    assert one[0]["pass_at_1"]["low"] > 0.1
    assert one[0]["holm_p"] == one[0]["permutation_p"] < 0.001
    columns = head(main_table, table=2)
    assert found[columns.index("Permutation p")].replace("\\", "") == p_value(one[0]["permutation_p"])
    assert found[columns.index("McNemar p")].replace("\\", "") == p_value(one[0]["mcnemar_p"])
    assert one[0]["by_level"].keys() == {"easy", "hard"}


def two(root: Path, *more: dict, chance: float = 0.5, **changes) -> str:
    """Evaluations of 8b_base and 8b_sft on the same tasks, with `more` in their reports."""
    made = make_results("any", "apps", chance)
    folders = {}
    for at, label in enumerate(("8b_base", "8b_sft")):
        results = dataclasses.replace(made, label=label, **{name: one[at] for name, one in changes.items()})
        report = more[at] if more else {}
        folders[label] = [write_evaluation(root / label, results, **report)]
    return named(folders)


@pytest.mark.parametrize(("digest", "shared"), [("a", "40 (40, 40)"), ("b", "40 (40, 40), other prompts")])
def test_evaluations_of_different_prompts_are_marked(tmp_path, digest, shared):
    reports = [{"benchmark": {"tasks_sha256": one, "excluded": 4}} for one in ("a", digest)]
    folder = write_table(tmp_path / "table", "main", two(tmp_path, *reports))
    assert cells(folder, "8b_sft − 8b_base", table=2)[2] == shared
    assert cells(folder, "8b_sft", table=1)[1:4] == ["apps", "40 × 3", "4"]


def test_a_difference_across_judges_is_refused_or_marked_in_every_format(tmp_path):
    other = JudgeFingerprint(method="webjudge", model="o4-mini", temperature=0.0, source="fara@9b8af39")
    both = two(tmp_path, judges=(((REWARD, 1),), ((other, 1),)))
    with pytest.raises(UserError, match=r"8b_sft and 8b_base.*method webjudge and reward.*across_judges"):
        write_table(tmp_path / "refused", "main", both)
    assert not list((tmp_path / "refused").iterdir())
    folder = write_table(tmp_path / "asked", "main", both, across_judges=True)
    columns, found = head(folder, table=2), cells(folder, "8b_sft − 8b_base", table=2)
    for column in ("pass@1 (points)", "pass@3 (points)", "Fewer steps where both solve (%)"):
        assert found[columns.index(column)].endswith(" §")
    assert cells(folder, "easy", table=3)[3][-1] != "§"
    assert read_json(folder / "table.json")["differences"][0]["across_judges"]
    tex = ("main", "measurements", "differences", "groups")
    (folder / "all.tex").write_text("".join((folder / f"{name}.tex").read_text() for name in tex))
    for file, mark in (("table.md", ") §"), ("all.tex", r") \S{}")):
        text = (folder / file).read_text().replace("\\_", "_").replace("\\-", "-")
        assert mark in text and "Different judges" in text
        assert f"webjudge, model o4-mini, temperature 0, from fara@9b8af39 (id {other.id})" in text
        # Each table names its judges.
        assert text.count(f"reward (id {REWARD.id}): 8b_base on apps (1 verdicts).") == 4, file


def test_groups_are_shown_by_site_type_and_level(main_table):
    text = (main_table / "table.md").read_text()
    for section in ("WebVoyager, by site", "WebVoyager, by type", "WebVoyager, by level"):
        assert f"**{section}**" in text
    assert "Buy\\_it" in text
    assert "35 × 3, few tasks, 5 without a result" in text
    assert "50 × 3, 0 without a result" in text


def test_the_same_folders_give_the_same_bytes(main_table, folders, tmp_path):
    again = write_table(tmp_path / "again", "main", named(folders))
    for path in sorted(main_table.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    assert {path.name for path in main_table.iterdir()} == {
        *("table.md", "table.json", "main.tex", "measurements.tex", "differences.tex", "groups.tex"),
        *(f"{name}.{end}" for name in PLOTS for end in ("pdf", "png", "csv")),
    }


PLOTS = ("pass-at-1", "cost-webvoyager", "cost-miniwob")


def test_captions_say_only_what_is_true_of_these_runs(main_table, tmp_path):
    text = (main_table / "differences.tex").read_text()
    assert "Tasks that only one of the two played are left out" in text and "on both sides" in text
    assert "ther prompts" not in text
    folder = write_table(tmp_path / "same", "main", two(tmp_path, chance=0.0))
    text = (folder / "table.md").read_text()
    assert "left out" not in text.split("## How to read")[0].replace("40 tasks left out", "")
    assert "both sides" not in text.split("## How to read")[0] and "as printed in" not in text
    found = cells(folder, "8b_sft − 8b_base", table=2)
    assert found[head(folder, table=2).index("McNemar p")].replace("\\", "") == "> 0.999"
    # Neither solved anything.
    assert "Fewer steps where both solve (%)" not in head(folder, table=2)


def test_rates_are_shown_corrected_for_the_errors_of_the_judge(folders, tmp_path):
    """Of the runs that are done 0.9 of the successes passed and 0.25 of the failures."""
    counts = np.tile((9, 1, 1, 3), (50, 1))
    errors = tmp_path / "judge_errors.json"
    errors.write_text(json.dumps({"own_outcome": JudgeError("judge-1", counts).report()}))
    known = ",".join(f"{label}={errors}:own_outcome" for label in ("8b_base", "8b_sft"))
    folder = write_table(tmp_path / "table", "main", named(folders), judge_errors=known)
    base, sft, _, apart = read_json(folder / "table.json")["corrected"]
    raw = read_json(folder / "table.json")["measured"]["8b_base"]["webvoyager"]["pass_at_1"]
    assert base["judged"] == raw
    # All that was done has passed, and there are no more successes than that.
    assert base["corrected"]["mean"] == pytest.approx(raw["mean"])
    assert sft["policy"] == "8b_sft" and apart["policy"] == "8b_sft − 8b_base"
    assert cells(folder, "8b_base", table=4)[3] == "90.0 (87.1 to 92.3)"
    for wrong, message in (
        (f"8b_base={errors}", "LABEL=FILE:JUDGE"),
        (f"other={errors}:own_outcome", "config.judge_errors names 'other'"),
    ):
        with pytest.raises(UserError, match=message):
            write_table(tmp_path / "wrong", "main", named(folders), judge_errors=wrong)


def test_columns_are_chosen_by_their_titles(folders, tmp_path):
    names = named(folders)
    chosen = write_table(tmp_path / "chosen", "main", names, columns="measured, pass@1 (points),Holm p")
    assert head(chosen) == ["System", "WebVoyager: measured", "MiniWoB++: measured"]
    assert head(chosen, table=2) == ["First − second", "Benchmark", "pass@1 (points)", "Holm p"]
    assert "Steps when solved" in head(chosen, table=1)
    text = (chosen / "differences.tex").read_text()
    assert "Holm corrects" in text and "McNemar" not in text
    with pytest.raises(UserError, match=r"config\.columns has 'mesured': use titles of columns: System, "):
        write_table(tmp_path / "wrong", "main", names, columns="mesured")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX with booktabs and adjustbox")
def test_a_paper_can_take_all_tables(whole_table, tmp_path):
    names = ("main", "measurements", "differences", "groups")
    inputs = [f"\\input{{{whole_table / name}}} Table~\\ref{{tab:{name}}}.\\clearpage" for name in names]
    lines = [r"\documentclass[twocolumn]{article}", r"\usepackage{booktabs,adjustbox}", r"\begin{document}"]
    (tmp_path / "paper.tex").write_text("\n".join([*lines, *inputs, r"\end{document}"]))
    command = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex")
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "undefined" not in done.stdout and "multiply defined" not in done.stdout


def test_tokens_are_the_cost_where_a_policy_has_no_price(tmp_path):
    free = write_evaluation(tmp_path / "free", make_results("free", "miniwob", 0.5, cost=0.0))
    paid = write_evaluation(tmp_path / "paid", make_results("paid", "miniwob", 0.6))
    both = named({"free": [free], "paid": [paid]})
    folder = write_table(tmp_path / "tokens", "main", both)
    assert read_plot(folder / "cost-miniwob.csv")["x"].tolist()[:3] == [20_500, 41_000, 61_500]
    assert cells(folder, "free", table=1)[-2:] == ["no price", "20,000 in, 500 out"]
    folder = write_table(tmp_path / "dollars", "main", both, prices="free=0.1/0.4")
    assert read_plot(folder / "cost-miniwob.csv")["x"].tolist() == pytest.approx(
        [0.0022, 0.0044, 0.0066, 0.01, 0.02, 0.03]
    )
    cost = read_json(folder / "table.json")["measured"]["free"]["miniwob"]["cost"]
    assert [cost[f"usd_at_{k}"] for k in (1, 2, 3)] == pytest.approx([0.0022, 0.0044, 0.0066])


def test_the_reflection_table_has_steps_and_savings(tmp_path):
    with_, without = (make_results("r", "webvoyager", 0.8, seed=seed) for seed in (1, 2))
    longer = dataclasses.replace(without, table=without.table.assign(steps=2 * without.table["steps"]))
    folders = {
        "with_reflection": [write_evaluation(tmp_path / "with", with_)],
        "without_reflection": [write_evaluation(tmp_path / "without", longer)],
    }
    folder = write_table(tmp_path / "table", "reflection", named(folders))
    columns, row = head(folder), cells(folder, "With reflection")
    assert row[columns.index("WebVoyager: steps (paper)")] == "9.57"
    assert re.fullmatch(r"\d\.\d\d \(.*\)", row[columns.index("WebVoyager: steps (measured)")])
    saved = cells(folder, "Steps saved, %")
    place = columns.index("WebVoyager: steps (paper)")
    assert saved[place : place + 3][0] == "12.9"
    figures = read_json(folder / "table.json")["differences"][0]
    assert (figures["first"], figures["second"]) == ("with_reflection", "without_reflection")
    assert saved[place + 1].startswith(f"{100 * figures['steps_saved']['mean']:.1f} (")
    assert 0.4 < figures["steps_saved"]["mean"] < 0.6
    assert saved[place + 2] == "40 shared tasks"
    whole = write_table(tmp_path / "whole", "reflection", named(folders), published=True)
    saved = cells(whole, "Steps saved, %")
    assert saved[head(whole).index("WebTailBench: steps (paper)")] == "19.7"
    assert "WebTailBench: steps (measured)" not in head(whole)


def test_pairs_of_compared_policies():
    labels = ["other", "32b_rl", "8b_rl", "8b_base", "8b_sft", "another"]
    assert pairs("main", labels) == [("8b_sft", "8b_base"), ("8b_rl", "8b_sft"), ("another", "other")]
    assert pairs("ablation", ["dapo", "full", "no_kl"]) == [("dapo", "full"), ("no_kl", "full")]
    assert pairs("ablation", ["a", "b"]) == [("b", "a")]
    assert pairs("reflection", ["without_reflection", "with_reflection"]) == [
        ("with_reflection", "without_reflection")
    ]
    assert pairs("reflection", ["with_reflection"]) == []


def test_the_papers_figures_agree_with_its_text():
    """Gains over SFT, losses of the ablations and steps saved, as the paper's sections print them."""

    def gap(table, first: str, second: str) -> list[float]:
        rows = {row.label: row.rates for row in table.rows}
        return [round(float(rows[first][name]) - float(rows[second][name]), 1) for name in BENCHMARKS]

    assert gap(MAIN, "8b_rl", "8b_sft") == [3.7, 7.0, pytest.approx(2.4, abs=0.11)]
    assert gap(MAIN, "32b_rl", "32b_sft") == [1.2, 2.0, 7.7]
    assert gap(ABLATION, "full", "full_corpus") == pytest.approx([2.0, 5.7, 4.8], abs=0.11)
    assert gap(ABLATION, "full", "anchor_free") == [1.7, 5.9, 1.0]
    assert gap(ABLATION, "full", "dapo") == [1.5, 3.8, 3.0]
    first, second = (row.steps for row in REFLECTION.rows)
    saved = {name: f"{100 * (1 - float(first[name]) / float(second[name])):.1f}" for name in BENCHMARKS}
    assert saved == STEPS_SAVED


@pytest.fixture(scope="module")
def invalid(tmp_path_factory):
    """A folder of evaluations that cannot be in a table, by what is wrong with them, and a good one."""
    root = tmp_path_factory.mktemp("invalid")
    results = make_results("sft", "miniwob", 0.5)
    for name in ("good", "begun", "torn", "mixed"):
        write_evaluation(root / name, results)
    write_evaluation(root / "apart", make_results("rl", "miniwob", 0.5, tasks=range(100, 140)))
    for path in ("begun/report.json", "begun/results.jsonl", "torn/results.jsonl"):
        (root / path).unlink()
    (root / "begun/progress.json").write_text(json.dumps({"done": 5, "total": 120}))
    (root / "other").mkdir()
    (root / "other/report.json").write_bytes(to_json({"stage": "mine"}))
    shorter = make_results("sft", "miniwob", 0.5, tasks=range(10))
    shorter.write(root / "mixed")
    return root


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("", "config.results is empty"),
        ("sft", "config.results has 'sft'"),
        ("a b={good}", "config.results has 'a b="),
        ("sft={root}/nowhere", "no folder"),
        ("sft={root}/begun", r"has not finished \(5 of 120 are done\)"),
        ("sft={root}/torn", "results.jsonl is missing"),
        ("sft={root}/other", "not a workdir of experiments.evaluate"),
        ("sft={root}/mixed", "not of the same evaluation"),
        ("sft={good},sft={good}", "two evaluations of 'sft' on MiniWoB"),
        ("sft={good},rl={root}/apart", "no task in common"),
    ],
    ids=["none", "no folder", "label", "missing", "begun", "torn", "stage", "mixed", "twice", "apart"],
)
def test_invalid_evaluations_give_one_line(invalid, tmp_path, results, message):
    with pytest.raises(UserError, match=message) as raised:
        write_table(tmp_path / "table", "main", results.format(root=invalid, good=invalid / "good"))
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "table").iterdir())


@pytest.mark.parametrize("prices", ["sft=cheap", "sft=1", "sft=-1/2", "rl=1/2"])
def test_bad_prices_are_one_line(tmp_path, prices):
    good = write_evaluation(tmp_path / "good", make_results("sft", "miniwob", 0.5))
    with pytest.raises(UserError, match=r"config\.prices"):
        read_evaluations(f"sft={good}", prices)


def test_the_command_line_takes_the_table_by_its_short_name(tmp_path):
    good = write_evaluation(tmp_path / "good", make_results("full", "miniwob", 0.5, tasks=range(6)))
    flags = ("--config.published=True", f"--config.results=full={good}", f"--workdir={tmp_path / 'table'}")
    done = run_script("experiments.report", "--table=ablation", *flags)
    assert done.returncode == 0, done.stderr
    columns = head(tmp_path / "table")
    assert cells(tmp_path / "table", "Full recipe")[columns.index("WebTailBench: paper")] == "57.74"
    assert read_json(tmp_path / "table/table.json")["table"] == "ablation"


def test_an_unknown_table_is_one_line(tmp_path):
    with pytest.raises(UserError, match="main, ablation, reflection"):
        write_table(tmp_path / "table", "results", "")


def test_numbers_are_written_for_people():
    interval = {"mean": 0.0561, "low": -0.0204, "high": 0.0913}
    assert points(interval) == "+5.6 (−2.0 to +9.1)"
    assert points({"mean": 0.0, "low": -0.0001, "high": 0.2}) == "0.0 (0.0 to +20.0)"
    assert number({"mean": 9.567, "low": 9.0, "high": 10.0}, 2, "none") == "9.57 (9.00 to 10.00)"
    assert number(None, 2, "none solved") == "none solved"
    found = [p_value(p) for p in (1.0, 0.9999, 0.04999, 0.001, 0.00099)]
    assert found == ["> 0.999", "> 0.999", "0.0500", "0.0010", "< 0.001"]


def test_folders_of_evaluations_may_have_commas(tmp_path):
    made = {name: make_results(name, "miniwob", 0.5) for name in ("sft", "rl")}
    folders = {name: write_evaluation(tmp_path / f"{name},1", one) for name, one in made.items()}
    found = read_evaluations(", ".join(f"{name}={folder}" for name, folder in folders.items()))
    assert [one.label for one in found] == ["sft", "rl"]
