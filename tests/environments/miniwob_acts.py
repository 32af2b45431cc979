"""Observation of, and actions on, any MiniWoB++ page, independent of its task."""

from __future__ import annotations

from collection.browser.actions import execute_list
from collection.browser.page import Snapshot
from collection.browser.pages import ActionContext
from collection.browser.snapshot import observe, take_snapshot
from collection.environments.miniwob import MiniWobEpisode, make_task
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore

CONTEXT = ActionContext()
# Their one moving or hovered part is no element to act on.
NOTHING_INDEXED = {"chase-circle", "drag-items-grid", "hover-shape"}


def _plan(snapshot: Snapshot) -> list[list[dict[str, dict[str, object]]]]:
    """Returns steps: click the first element, fill the first field and list, press keys, scroll."""
    targets = snapshot.targets
    fields = [i for i, one in targets.items() if one.tag in ("input", "textarea")]
    lists = [i for i, one in targets.items() if one.tag == "select"]
    clickable = [i for i in targets if i not in fields and i not in lists]
    keys: list[dict[str, dict[str, object]]] = [{"send_keys": {"keys": "Tab"}}]
    typed = [{"input_text": {"index": index, "text": "12"}} for index in fields[:1]]
    listed = [{"get_dropdown_options": {"index": index}} for index in lists[:1]]
    scrolls = [{"scroll": {"down": True, "num_pages": 1.0}}, {"scroll": {"down": False, "num_pages": 0.5}}]
    return [
        [*typed, *listed, *keys],
        scrolls,
        [{"click_element_by_index": {"index": index}} for index in (*fields[-1:], *clickable[:1])],
    ]


def act_on_page(episode: MiniWobEpisode, images: ImageStore, page: str) -> int:
    """Looks, types, lists, presses, scrolls and clicks; a refused action is fine, a broken script is not.

    Returns:
      How many actions were carried out or refused.

    Raises:
      AssertionError: naming the page.
    """
    task = episode.reset(make_task(page, 11))
    observation, _ = observe(episode.browser, images)
    snapshot = episode.browser.snapshot
    assert task.objective and snapshot is not None, page
    assert observation.screenshot is not None and observation.screenshot in images, page
    assert bool(snapshot.targets) != (page in NOTHING_INDEXED), page
    count = 0
    for actions in _plan(snapshot):
        results = execute_list(episode.browser, [normalize_action(one) for one in actions], CONTEXT)
        assert results or not actions, page
        assert not any("javascript error" in one.text for one in results), (page, results)
        take_snapshot(episode.browser)
        count += len(results)
        if episode.status()[0]:
            break
    return count
