"""Benchmark files become tasks; an invalid file gives one line with its name and the error."""

import csv
import json
import re
from pathlib import Path

import pytest

from collection.browser.config import BrowserConfig
from collection.evaluation.benchmarks import LOADERS, held_out_tasks
from configs.evaluate import VARIANTS, get_config
from configs.rl import get_config as get_rl_config
from rmsweb_jax.errors import UserError
from tests.evaluation.rows import (
    EXCLUDED,
    REFERENCES,
    TAILBENCH,
    VOYAGER,
    load_benchmark,
    mind2web_settings,
    real_settings,
    tail_settings,
    voyager_settings,
    write_json,
    write_lines,
)


def test_webvoyager_with_exclusions_and_answers(tmp_path):
    benchmark = load_benchmark(voyager_settings(tmp_path))
    assert [task.task_id for task in benchmark.tasks] == [
        f"webvoyager/{name}" for name in ("Stays--0", "Papers--0", "Words--0")
    ]
    assert benchmark.excluded == ("webvoyager/Stays--1",)
    assert benchmark.tasks[0].site == "Stays" and benchmark.tasks[0].website == VOYAGER[0]["web"]
    assert benchmark.notes.keys() == {"webvoyager/Stays--0", "webvoyager/Papers--0"}
    reference = benchmark.notes["webvoyager/Stays--0"].reference
    assert reference is not None and reference.golden and reference.notice == "real-time"
    assert [(file.name, file.rows) for file in benchmark.files] == [
        ("tasks.jsonl", 4),
        ("excluded.json", 1),
        ("references.json", 3),
    ]
    assert all(len(file.sha256) == 64 for file in benchmark.files)
    # What is excluded must not have been trained on either.
    assert len(benchmark.questions) == 4
    plain = load_benchmark(voyager_settings(tmp_path, excluded_file="", references_file=""))
    assert len(plain.tasks) == 4 and not plain.notes and len(plain.files) == 1


def test_webtailbench_with_rubrics_and_types(tmp_path):
    benchmark = load_benchmark(tail_settings(tmp_path))
    flight = benchmark.tasks[0]
    assert flight.website == "https://search.example.com/" and flight.category == flight.site == "flights"
    assert flight.objective == TAILBENCH[0]["ques"].strip()
    first, second = benchmark.notes[flight.task_id].rubric
    assert (first.max_points, first.condition) == (4, "") and second.condition.startswith("Only if")


def hub_table(path, rows, **columns):
    """Rows as the hub publishes them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = ("benchmark", "id", "task_summary", "precomputed_rubric")
        table = csv.DictWriter(file, [columns.get(name, name) for name in names], delimiter="\t")
        table.writeheader()
        for row in rows:
            rubric = json.dumps(row["precomputed_rubric"])
            values = (row["category"], row["id"], row["ques"], columns.get("rubric", rubric))
            table.writerow(dict(zip(table.fieldnames, values, strict=True)))
    return path


def test_webtailbench_from_the_hubs_table_is_the_same(tmp_path):
    rows = [TAILBENCH[0] | {"ques": 'Say "Oslo",\tthen\nbook.\r'}, TAILBENCH[1]]
    lines = tail_settings(tmp_path, tasks_file=str(write_lines(tmp_path / "a.jsonl", rows)))
    table = lines | {"tasks_file": str(hub_table(tmp_path / "a.tsv", rows))}
    one, other = load_benchmark(lines), load_benchmark(table)
    assert (one.tasks, one.notes, one.questions) == (other.tasks, other.notes, other.questions)


def test_the_second_edition_of_webtailbench_is_a_benchmark_of_its_own(tmp_path):
    table = str(hub_table(tmp_path / "v2.tsv", TAILBENCH))
    settings = tail_settings(tmp_path, tasks_file=table, split="test_v2")
    benchmark = load_benchmark(settings)
    assert benchmark.name == "webtailbench_v2"
    assert benchmark.tasks[0].task_id == "webtailbench_v2/air_1" and len(benchmark.notes) == 2
    assert {one.benchmark for one in benchmark.questions} == {"webtailbench_v2"}
    with pytest.raises(UserError, match=r"these 2 rows are not the 609 that webtailbench_v2 publishes"):
        load_benchmark(settings | {"own_rows": False})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"task_summary": "task"}, r"\.tsv: not as webtailbench publishes it \(no column 'task_summary'\)"),
        (
            {"rubric": "{half"},
            r"\.tsv, row 1: .*\(precomputed_rubric: Value error, key must be",
        ),
        ({"rubric": '{"items": [{}]}'}, r"\.tsv, row 1: .*precomputed_rubric\.items\.0\.criterion: Field"),
    ],
)
def test_a_table_of_another_form_is_one_line(tmp_path, columns, message):
    table = str(hub_table(tmp_path / "a.tsv", TAILBENCH, **columns))
    with pytest.raises(UserError, match=message) as error:
        load_benchmark(tail_settings(tmp_path, tasks_file=table))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("benchmark", ["webvoyager", "online_mind2web", "webtailbench"])
def test_a_published_file_with_one_changed_row_is_refused(tmp_path, benchmark):
    settings = real_settings(benchmark)
    data = Path(settings["tasks_file"]).read_text(encoding="utf-8")
    path = tmp_path / Path(settings["tasks_file"]).name
    one_other = re.sub(r'("(?:ques|confirmed_task)": ?")', r"\1Please: ", data, count=1)
    one_less = data.rstrip().rpartition("\n")[0]
    for changed in (one_other,) if benchmark == "online_mind2web" else (one_other, one_less):
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(UserError, match=f"rows are not the .* that {benchmark} publishes"):
            load_benchmark(settings | {"tasks_file": str(path)})
        own = settings | {"tasks_file": str(path), "own_rows": True}
        own |= {"excluded_file": "", "references_file": ""} if benchmark == "webvoyager" else {}
        assert load_benchmark(own).own_rows


def test_online_mind2web_with_levels(tmp_path):
    benchmark = load_benchmark(mind2web_settings(tmp_path))
    assert dict(benchmark.levels) == {"online_mind2web/a1": "easy", "online_mind2web/b2": "hard"}
    assert [task.site for task in benchmark.tasks] == ["example.com"] * 2
    assert [task.website for task in benchmark.tasks] == [
        "https://tea.example.com/",
        "https://search.example.com/",
    ]


def test_own_tasks_from_a_file(tmp_path):
    path = write_lines(
        tmp_path / "tasks.jsonl",
        [
            {"website": "http://shop.test/", "objective": "Buy a lamp."},
            {"website": "http://wiki.test/", "objective": "Edit a page.", "task_id": "wiki/1"},
        ],
    )
    benchmark = load_benchmark({"benchmark": "own_tasks", "tasks_file": str(path), "task_ids": ()})
    assert [task.site for task in benchmark.tasks] == ["shop.test", "wiki.test"]
    write_lines(path, [{"website": "http://shop.test/", "objective": "Buy."}, {"objective": "Buy."}])
    with pytest.raises(UserError, match=r"tasks\.jsonl: not tasks: line 2 \(website: Field required\)"):
        load_benchmark({"benchmark": "own_tasks", "tasks_file": str(path), "task_ids": ()})


def test_held_out_seeds_alone_and_chosen_tasks(tmp_path):
    tasks = held_out_tasks(("a", "b"), 1_000_000, 2)
    assert [(task.site, task.seed) for task in tasks] == [
        (page, seed) for seed in (1_000_000, 1_000_001) for page in "ab"
    ]
    with pytest.raises(UserError, match=r"config\.first_seed is 999999: seeds below 1000000 are trained on"):
        held_out_tasks(("a",), 999_999, 2)
    with pytest.raises(UserError, match="no tasks"):
        held_out_tasks((), 1_000_000, 2)
    with pytest.raises(UserError, match=r"config\.seeds is 0: make it 1 or more"):
        held_out_tasks(("a",), 1_000_000, 0)
    settings = get_config("demo").to_dict() | {"task_ids": ("miniwob/click-tab/1000001",)}
    assert [task.task_id for task in load_benchmark(settings).tasks] == ["miniwob/click-tab/1000001"]
    chosen = load_benchmark(voyager_settings(tmp_path, task_ids=("webvoyager/Papers--0",)))
    assert len(chosen.tasks) == len(chosen.notes) == 1 and len(chosen.questions) == 4


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_names_a_benchmark_with_the_settings_that_it_reads(variant, tmp_path):
    settings = get_config(variant).to_dict()
    assert settings["benchmark"] in ("", *LOADERS) and settings["runs"] == 3
    if settings["benchmark"] == "miniwob":
        assert load_benchmark(settings).tasks
        return
    if settings["benchmark"] == "apps":
        # tests/apps/test_own_application.py plays them.
        assert not set(settings["applications"]) & set(get_rl_config("8b,online").applications)
        return
    with pytest.raises(UserError, match=r"config\.(tasks_file|benchmark) is empty: give"):
        load_benchmark(settings)
    files = {
        "webvoyager": voyager_settings,
        "webtailbench": tail_settings,
        "online_mind2web": mind2web_settings,
    }
    if settings["benchmark"] in files:
        given = files[settings["benchmark"]](tmp_path)
        given.pop("references_file", None)
        assert given.keys() <= settings.keys()
        assert load_benchmark(settings | given).tasks
    assert settings["fleet"]["workers"] == 16 and settings["limits"]["max_steps"] == 100
    # So that the command in the config's header can be given.
    assert settings["benchmark"] != "own_tasks" or {"hosts", "private"} <= settings["guard"].keys()


def test_one_site_of_webvoyager_runs_under_the_browsers_own_name():
    """RMSWeb, appendix: without the desktop user agent, which trips that site's defences."""
    config = BrowserConfig(**get_config("webvoyager").to_dict()["browser"])
    assert config.user_agent_for("https://dictionary.cambridge.org/") == ""
    assert config.user_agent_for("https://www.booking.com/") == "desktop"


def lines(rows):
    return lambda folder: {"tasks_file": str(write_lines(folder / "x.jsonl", rows))}


def other(setting, value):
    return lambda folder: {setting: str(write_json(folder / "x.json", value))}


def answers(site, **answer):
    row = {"id": 0, "type": "golden", "ans": "x", **answer}
    return other("references_file", {site: {"answers": [row]}})


JUDGE = {"kind": "chat", "base_url": "http://judge.test/v1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lines([VOYAGER[0], VOYAGER[0]]),
            r"tasks_file=\S+: rows that come twice: Stays--0; get it again",
        ),
        (lines([]), r"config\.tasks_file=\S+: not as webvoyager publishes it \(no rows\)"),
        (lines([{"id": "a", "ques": 3}]), r"x\.jsonl, line 1: not as webvoyager publishes it \(ques: "),
        (other("tasks_file", EXCLUDED), r"x\.json, line 1: not as webvoyager publishes it"),
        (lines([VOYAGER[0] | {"web": ""}]), r"config\.tasks_file, Stays--0: website '' is no address"),
        (lambda folder: {"tasks_file": str(folder / "none")}, r"none: No such file or directory; give the"),
        (
            other("excluded_file", [*EXCLUDED, "Tea--9"]),
            r"file=\S+: ids of no task: Tea--9; see the ids",
        ),
        (other("excluded_file", EXCLUDED * 2), r"excluded_file=\S+: ids that come twice: Stays--1"),
        (other("excluded_file", {"a": 1}), r"x\.json: not as an exclusion list publishes it"),
        (answers("Tea"), r"config\.references_file=\S+: answers to no task: Tea--0; "),
        (
            other("references_file", {"Stays": {"answers": REFERENCES["Stays"]["answers"] * 2}}),
            "answers that come twice: Stays--0, Stays--1",
        ),
        (answers("Stays", type="best"), r"Stays\.answers\.0\.type: "),
        (
            lambda _: {"own_rows": False},
            r"config\.tasks_file=\S+: these 4 rows are not the 643 that webvoyager publishes; get it again, "
            r"or set config\.own_rows=True",
        ),
        (lambda _: {"judge": JUDGE}, r"config\.references_file: the judge would not see these answers; set"),
        (
            lambda _: {"judge": JUDGE | {"reference": True}, "references_file": ""},
            r"config\.judge\.reference=True: there are no reference answers; set it to False",
        ),
        (
            lambda _: {"task_ids": ("webvoyager/Words--0", "webvoyager/Stays--1", "b")},
            r"config\.task_ids: no tasks of webvoyager: webvoyager/Stays--1, b; see the ids",
        ),
        (lambda _: {"benchmark": "webarena"}, r"config\.benchmark is 'webarena': use one of webvoyager, "),
    ],
)
def test_bad_input_is_named_in_one_line(tmp_path, change, message):
    settings = voyager_settings(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        load_benchmark(settings | change(tmp_path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("benchmark", "rows", "left", "notes"),
    [("webvoyager", 643, 588, 588), ("online_mind2web", 300, 300, 0), ("webtailbench", 609, 609, 609)],
)
def test_the_benchmarks_own_files_load_whole(benchmark, rows, left, notes):
    found = load_benchmark(real_settings(benchmark))
    assert (found.files[0].rows, len(found.questions)) == (rows, rows)
    assert (len(found.tasks), len(found.notes)) == (left, notes)
    assert len({task.task_id for task in found.tasks}) == left
    assert all(task.objective and task.website.startswith("http") for task in found.tasks)
    if benchmark == "webvoyager":
        assert len(found.excluded) == 55 and len({task.site for task in found.tasks}) == 15
        assert sum(task.site == "Cambridge Dictionary" for task in found.tasks) == 43
        assert [file.rows for file in found.files] == [643, 55, 643]
    elif benchmark == "online_mind2web":
        assert sorted(map(list(found.levels.values()).count, ("easy", "medium", "hard"))) == [74, 83, 143]
    else:
        assert len({task.category for task in found.tasks}) == 11
        assert sum(len(note.rubric) for note in found.notes.values()) == 2629
