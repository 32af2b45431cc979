"""Task files and screenshots, which all import formats share."""

import json

import pytest

from collection.importers import TaskInfo, load_tasks
from collection.importers.common import store_screenshot
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from tests.importers.foreign_runs import (
    png,
)


def test_task_files_of_the_benchmarks(tmp_path):
    voyager, mind2web = tmp_path / "a.jsonl", tmp_path / "b.json"
    voyager.write_text('{"web_name": "A", "id": "A--0", "ques": "Find x.", "web": "https://a.com/"}\n')
    rows = [{"task_id": "ff", "confirmed_task": "Find y.", "website": "https://b.com/", "success": False}]
    mind2web.write_text(json.dumps(rows))
    assert load_tasks(voyager) == {"A--0": TaskInfo("Find x.", "https://a.com/", None)}
    assert load_tasks(mind2web) == {"ff": TaskInfo("Find y.", "https://b.com/", False)}
    for content in ("{", '[{"ques": "x"}]', "[3]"):
        voyager.write_text(content)
        with pytest.raises(UserError, match=r"a\.jsonl: [^\n]*$"):
            load_tasks(voyager)
    with pytest.raises(UserError, match="cannot be read"):
        load_tasks(tmp_path / "none.json")


def test_only_whole_images_are_stored(tmp_path):
    images = ImageStore(tmp_path)
    assert store_screenshot(images, png()[:-15]) is None and store_screenshot(images, b"") is None
    assert images.get(store_screenshot(images, png()) or "") == png()
