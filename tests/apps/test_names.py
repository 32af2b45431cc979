"""What tasks and checks name is one thing alone."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from collection.environments.apps.ihatemoney.site import IHateMoney
from collection.environments.apps.oscar.site import OscarShop
from collection.environments.apps.sqlite import rows
from collection.environments.apps.tasks import Ending, shortfalls
from collection.environments.apps.wiki.site import MediaWiki


def test_a_participant_of_the_same_name_in_another_project_is_seen(tmp_path: Path) -> None:
    application = IHateMoney(tmp_path)
    goal, world = application.goal("arrival", 1000), application.world(1000)
    (name,) = {row["name"] for row in goal.after["members"].values()} - {
        row["name"] for row in world["members"].values()
    }
    members = [(row["name"], row["project"], row["weight"]) for row in goal.after["members"].values()]
    wrong = next(one for one in world["projects"] if (name, one, 1.0) not in members)
    path = tmp_path / "money.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE person (name, project_id, weight, activated DEFAULT 1)")
        insert = "INSERT INTO person (name, project_id, weight) VALUES (?, ?, ?)"
        database.executemany(insert, [(name, wrong, 1.0), *members])
    held = rows(path, {"members": IHateMoney.tables["members"]})
    assert shortfalls(goal, {**goal.after, **held}, Ending(goal.start, ""))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM person WHERE name = ? AND project_id = ?", (name, wrong))
    held = rows(path, {"members": IHateMoney.tables["members"]})
    assert not shortfalls(goal, {**goal.after, **held}, Ending(goal.start, ""))


def test_reviews_of_a_product_have_different_titles(tmp_path: Path) -> None:
    application = OscarShop(tmp_path)
    for seed in range(20):
        reviews = application.world(seed)["reviews"].values()
        assert len({(row["product"], row["title"]) for row in reviews}) == len(reviews), seed


def test_a_restored_version_has_another_text(tmp_path: Path) -> None:
    application = MediaWiki(tmp_path)
    for seed in (18, 255, 269):
        before, after = application.world(seed)["pages"], application.goal("restore", seed).after["pages"]
        assert any(after[title]["lines"] != page["lines"] for title, page in before.items()), seed
