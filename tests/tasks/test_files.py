"""Files of queries and tasks: bad lines are listed by number, the others are used."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.evaluation.benchmarks import ROWS, read_questions
from collection.tasks.files import read_tasks, task_id
from collection.tasks.seeds import read_queries
from collection.tasks.websites import public_address, site_of, start_address
from rmsweb_jax.errors import UserError

TASK = {"website": "HTTPS://Shop.Example.com", "objective": "Find tea.", "constraints": ["Under 9 EUR."]}


def lines(*rows: object) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def test_tasks_are_read_and_bad_lines_reported(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + lines(
            TASK,
            b"",
            b"{half",
            TASK | {"website": "ftp://a.example.com"},
            TASK | {"website": "https://user:word@example.com"},
            TASK | {"website": "example.com"},
            TASK | {"price": 3},
            {"website": "https://example.com"},
            TASK | {"objective": " "},
            b'{"website": "\xff"}',
            [TASK],
            TASK,
            TASK | {"task_id": "mine", "site": "shop", "category": "E-Commerce"},
        )
    )
    found = read_tasks(path)
    assert [number for number, _ in found.good] == [1, 13]
    (_, first), (_, second) = found.good
    assert first.website == "https://shop.example.com/" and first.site == "example.com"
    assert first.task_id == task_id("https://shop.example.com/", "Find tea.", ("Under 9 EUR.",))
    assert (second.task_id, second.site, second.category) == ("mine", "shop", "E-Commerce")
    reasons = {one.number: one.reason for one in found.bad}
    assert reasons.keys() == {3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
    for number, reason in {
        4: "not http or https",
        5: "a name or a password",
        6: "is no address",
        7: "price: Extra inputs",
        8: "objective: Field required",
        9: "objective is empty",
        10: "not UTF-8 at byte 14",
        11: "not a JSON object",
        12: "that of line 1",
    }.items():
        assert reason in reasons[number]
    assert "10 malformed lines are left out: line 3: " in found.warning(path)
    assert "and 5 more" in found.warning(path)


@pytest.mark.parametrize("data", [b"", b"\n \n", b"{}\nnonsense\n", b"\x00\xff\n"])
def test_a_file_without_any_task_is_refused_in_one_line(tmp_path, data):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tasks\.jsonl: .*give a file of tasks") as error:
        read_tasks(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"none\.txt: No such file or directory: give a file of search"):
        read_queries(tmp_path / "none.txt")


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=6),
    st.sampled_from(sorted(ROWS)),
)
def test_no_bytes_break_a_reader(tmp_path_factory, rows, benchmark):
    path = tmp_path_factory.mktemp("rows") / "tasks.jsonl"
    data = b"".join(row + b"\n" for row in rows)
    path.write_bytes(data)
    with pytest.raises(UserError, match="get it again") as error:
        read_questions({benchmark: str(path)})
    assert "\n" not in str(error.value)
    path.write_bytes(lines(TASK) + data)
    found = read_tasks(path)
    assert len(found.good) == 1 and len(found.bad) == sum(bool(row.strip()) for row in rows)


def test_queries_are_lines_or_objects(tmp_path):
    plain, objects = tmp_path / "queries.txt", tmp_path / "queries.jsonl"
    plain.write_bytes(b" cheap flights \r\n\n" + b"x" * 2000 + b"\nbeste Pizza\xc3\xa4\n")
    found = read_queries(plain)
    assert [query.query for _, query in found.good] == ["cheap flights", "beste Pizzaä"]
    assert [one.number for one in found.bad] == [3]
    objects.write_bytes(
        lines({"query": "pizza", "locale": "de-AT"}, {"query": 3}, {"locale": "en"}, "pizza", {"query": ""})
    )
    found = read_queries(objects)
    assert [(query.query, query.locale) for _, query in found.good] == [("pizza", "de-AT")]
    assert [one.number for one in found.bad] == [2, 3, 4, 5]


def test_a_task_may_start_on_a_local_server_and_a_made_up_one_on_the_public_web_alone():
    assert start_address("http://127.0.0.1:80/x") == "http://127.0.0.1/x"
    assert public_address("https://www.bbc.co.uk") == "https://www.bbc.co.uk/"
    for host in ("127.0.0.1", "localhost", "[::1]", "0x7f.1", "wiki"):
        with pytest.raises(ValueError, match="not on the public web"):
            public_address(f"http://{host}/")


@pytest.mark.parametrize(
    "url,site",
    [
        ("https://a.b.co.uk/x", "b.co.uk"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://wiki.lan/", "wiki.lan"),
    ],
)
def test_sites_are_registrable_domains(url, site):
    assert site_of(url) == site and site_of("") == ""


WEBVOYAGER = {"web_name": "Tea", "id": "Tea--0", "ques": "Find tea.", "web": "https://tea.example.com/"}
MIND2WEB = {
    "task_id": "a1",
    "confirmed_task": "Find the cheapest green tea.",
    "website": "https://tea.example.com/",
    "reference_length": 3,
    "level": "easy",
}
TAILBENCH = {"id": "tea_1", "category": "shopping", "ques": "Buy tea\r", "web": "", "precomputed_rubric": {}}


def test_questions_of_all_benchmarks_are_read(tmp_path):
    paths = {name: str(tmp_path / name) for name in ("webvoyager", "online_mind2web", "webtailbench")}
    Path(paths["webvoyager"]).write_bytes(lines(WEBVOYAGER))
    Path(paths["online_mind2web"]).write_text(json.dumps([MIND2WEB]))
    Path(paths["webtailbench"]).write_bytes(lines(TAILBENCH, b""))
    questions = read_questions(paths)
    assert [(one.benchmark, one.task_id) for one in questions] == [
        ("webvoyager", "Tea--0"),
        ("online_mind2web", "a1"),
        ("webtailbench", "tea_1"),
    ]
    assert read_questions(dict.fromkeys(paths, "")) == []


@pytest.mark.parametrize(
    "name,data,message",
    [
        ("webvoyager", lines(WEBVOYAGER, {"id": "x"}), r"webvoyager, line 2: .*ques: Field required"),
        ("webtailbench", b"{half", r"webtailbench, line 1: not as webtailbench publishes it"),
        ("online_mind2web", b"[{}]", r"0\.task_id: Field required"),
        ("online_mind2web", b"\xff", "not as online_mind2web publishes it"),
        ("webvoyager", None, "No such file"),
        ("webvoyager", lines(WEBVOYAGER, WEBVOYAGER), "rows that come twice: Tea--0; get it again"),
        ("online_mind2web", b"[]", r"\(no rows\)"),
        ("online_mind2web", b'{"a": 1}', "not as online_mind2web publishes it"),
        ("webtailbench", b"[" * 9000, "not as webtailbench publishes it"),
        ("webvoyager", b'{"id": "\\ud800", "ques": "x"}', "not as webvoyager publishes it"),
    ],
)
def test_a_bad_row_of_a_benchmark_is_refused(tmp_path, name, data, message):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        read_questions({name: str(path)})
    assert "\n" not in str(error.value) and f"config.benchmarks.{name}=" in str(error.value)
