"""Databases are set back while connections of their server stay open."""

import contextlib
import pathlib
import random
import sqlite3

import pytest

from collection.environments.apps.helpdesk.site import DESK
from collection.environments.apps.helpdesk.tasks import TEMPLATES as HELPDESK
from collection.environments.apps.ihatemoney.site import PROJECTS
from collection.environments.apps.ihatemoney.tasks import TEMPLATES
from collection.environments.apps.machina.site import DISCUSSIONS
from collection.environments.apps.machina.tasks import TEMPLATES as MACHINA
from collection.environments.apps.roundup.site import WORK as TRACKER
from collection.environments.apps.roundup.tasks import TEMPLATES as ROUNDUP
from collection.environments.apps.sqlite import content, restore, snapshot
from collection.environments.apps.trac.site import WORK
from collection.environments.apps.trac.tasks import TEMPLATES as TRAC


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_an_open_connection_sees_the_restored_rows_every_time(tmp_path: pathlib.Path, journal: str) -> None:
    live, kept = tmp_path / "live.sqlite3", tmp_path / "kept.sqlite3"
    draw = random.Random(7)
    with contextlib.closing(sqlite3.connect(live)) as server:
        server.execute(f"PRAGMA journal_mode={journal}")
        server.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
        server.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
        server.executemany(
            "INSERT INTO notes (text) VALUES (?)", [(f"note {number}",) for number in range(50)]
        )
        server.commit()
        snapshot(live, kept)
        before = content(live)
        assert content(kept) == before and len(before["notes"]) == 50
        for round_ in range(40):
            change = draw.choice(
                ("DELETE FROM notes WHERE id % 2", "UPDATE notes SET text = 'other'", "DROP TABLE notes")
            )
            server.execute(change)
            server.execute("INSERT INTO sessions VALUES (?)", (round_,))
            server.commit()
            assert content(live) != before
            restore(kept, live)
            assert content(live) == before
            assert server.execute("SELECT count(*), min(text) FROM notes").fetchone() == (50, "note 0")
        server.execute("INSERT INTO sessions VALUES (99)")
        server.commit()
        assert content(live, without={"sessions"}) == content(kept, without={"sessions"})


def test_what_a_template_of_money_asks_for_is_not_there_already() -> None:
    for identity, project in PROJECTS.items():
        for name, template in TEMPLATES.items():
            for seed in range(12):
                goal = template(project, seed)
                changes = goal.after != project or goal.made
                assert bool(changes) != bool(goal.answer), (identity, name, seed)


def test_what_a_template_of_trac_asks_for_is_not_there_already() -> None:
    for name, template in TRAC.items():
        for seed in range(60):
            goal = template(seed)
            assert (goal.after != WORK) != bool(goal.answer), (name, seed)


def test_what_a_template_of_roundup_asks_for_is_not_there_already() -> None:
    for name, template in ROUNDUP.items():
        for seed in range(60):
            goal = template(seed)
            assert (goal.after != TRACKER) != bool(goal.answer), (name, seed)


def test_what_a_template_of_the_forum_asks_for_is_not_there_already() -> None:
    for name, template in MACHINA.items():
        for seed in range(60):
            goal = template(seed)
            assert (goal.after != DISCUSSIONS) != bool(goal.answer), (name, seed)
            assert not goal.answer or f'"{goal.answer}"' not in goal.words, (name, seed)


def test_what_a_template_of_the_helpdesk_asks_for_is_not_there_already() -> None:
    for name, template in HELPDESK.items():
        for seed in range(60):
            goal = template(seed)
            assert (goal.after != DESK) != bool(goal.answer), (name, seed)
            words = goal.words.casefold().replace("with none if", "")
            assert not goal.answer or goal.answer.casefold() not in words.split(), (name, seed)
