"""Maps actions of browser-use, versions 0.1 to 0.9, to the form that `normalize_action` accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from collection.importers.common import UnmappedError, to_action
from rmsweb_jax.actions import Action

Params = dict[str, Any]
# Some versions record these next to the parameters; the model did not write them.
_EXTRA = ("xpath", "description", "interacted_element")


def map_action(raw: Any) -> Action:
    """Maps one entry of `model_output.action`.

    Raises:
      UnmappedError: no counterpart (a custom action, a click at coordinates, ...).
    """
    named = [key for key in raw if key != "interacted_element"] if isinstance(raw, dict) else []
    if len(named) != 1:
        raise UnmappedError("?", "not an object with one action")
    name = str(named[0])
    params = raw[named[0]]
    if params is not None and not isinstance(params, dict):
        raise UnmappedError(name, f"the parameters of {name!r} are no object")
    kept = {key: value for key, value in (params or {}).items() if value is not None and key not in _EXTRA}
    return to_action({name: _CHANGES.get(name, _same)(kept)})


def _same(params: Params) -> Params:
    return params


def _search(params: Params) -> Params:
    return _renamed(params, "search_engine", "engine")


def _search_google(params: Params) -> Params:
    return params | {"engine": "google"}


def _scroll(params: Params) -> Params:
    params = _renamed(params, "index", "frame_element_index")
    if params.get("frame_element_index") == 0:  # The page itself.
        params.pop("frame_element_index")
    return params if {"pages", "num_pages"} & params.keys() else params | {"num_pages": 1.0}


def _done(params: Params) -> Params:
    """Maps `done`; a structured answer becomes the text that was shown for it."""
    if "data" not in params:
        return params
    rest = {key: value for key, value in params.items() if key != "data"}
    return rest | {"text": json.dumps(params["data"], ensure_ascii=False)}


def _click(params: Params) -> Params:
    if "index" not in params and {"coordinate_x", "coordinate_y"} & params.keys():
        raise UnmappedError("click at coordinates", "a click at coordinates names no element")
    return {key: value for key, value in params.items() if not key.startswith("coordinate_")}


def _extract(params: Params) -> Params:
    params = dict(params)
    strip = params.pop("should_strip_link_urls", None)
    return params if strip is None else params | {"extract_links": not strip}


def _nothing(params: Params) -> Params:
    return {}


def _renamed(params: Params, old: str, new: str) -> Params:
    return {new if key == old else key: value for key, value in params.items()}


_CHANGES: dict[str, Callable[[Params], Params]] = {
    "search": _search,
    "search_engine": _search,
    "search_google": _search_google,
    "scroll": _scroll,
    "done": _done,
    "click": _click,
    "click_element": _click,
    "click_element_by_index": _click,
    "extract_content": _extract,
    "go_back": _nothing,
}
