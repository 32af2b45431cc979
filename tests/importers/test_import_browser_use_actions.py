"""The actions of all versions of browser-use as ours."""

import pytest

from collection.importers.browser_use_actions import map_action
from collection.importers.common import UnmappedError
from tests.importers.foreign_runs import (
    SHOP,
)


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ({"search": {"query": "q", "engine": "bing"}}, {"search_engine": {"query": "q", "engine": "bing"}}),
        (
            {"search": {"query": "q", "search_engine": "bing"}},
            {"search_engine": {"query": "q", "engine": "bing"}},
        ),
        ({"search_google": {"query": "q"}}, {"search_engine": {"query": "q", "engine": "google"}}),
        ({"navigate": {"url": SHOP, "new_tab": False}}, {"go_to_url": {"url": SHOP}}),
        ({"input": {"index": 0, "text": "x", "clear": False}}, None),
        (
            {"scroll": {"down": True, "pages": 2.0, "index": 4}},
            {"scroll": {"down": True, "num_pages": 2.0, "frame_element_index": 4}},
        ),
        (
            {"scroll": {"down": False, "pages": 1.0, "index": 0}},
            {"scroll": {"down": False, "num_pages": 1.0}},
        ),
        ({"scroll_down": {"amount": 500}}, {"scroll": {"down": True, "num_pages": 0.5}}),
        (
            {"extract_content": {"goal": "prices", "should_strip_link_urls": False}},
            {"extract_structured_data": {"query": "prices", "extract_links": True}},
        ),
        ({"switch": {"tab_id": "ABCD"}}, {"switch_tab": {"tab_id": "ABCD"}}),
        ({"switch_tab": {"page_id": 2}}, {"switch_tab": {"tab_id": "0002"}}),
        ({"go_back": {"description": "back"}}, {"go_back": {}}),
        ({"wait": {"seconds": 3}}, {"wait": {}}),
        (
            {"done": {"success": True, "data": {"price": 12}}},
            {"done": {"text": '{"price": 12}', "success": True}},
        ),
        (
            {"click": {"index": 3}, "interacted_element": {"tag_name": "a"}},
            {"click_element_by_index": {"index": 3}},
        ),
    ],
)
def test_actions_of_all_versions(raw, ours):
    if ours is None:
        ours = {"input_text": {"index": 0, "text": "x", "clear_existing": False}}
    assert map_action(raw).to_json() == ours


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"click": {"coordinate_x": 3, "coordinate_y": 4}}, "click at coordinates"),
        ({"click": {"index": 0}}, "click"),
        ({"my_tool": {"x": 1}}, "my_tool"),
        ({"click": [3]}, "click"),
        ({}, "?"),
        ("click", "?"),
    ],
)
def test_actions_without_a_counterpart(raw, name):
    with pytest.raises(UnmappedError) as raised:
        map_action(raw)
    assert raised.value.name == name and "\n" not in raised.value.reason
