"""Format of browser-use histories: the keys that a trajectory needs (`browser_use/agent/views.py`)."""

from __future__ import annotations

from typing import Any

from collection.importers.common import Foreign
from rmsweb_jax.records.schema import Tab


class BrowserUseJudgement(Foreign):
    verdict: bool


class Result(Foreign):
    is_done: bool | None = False
    success: bool | None = None
    error: str | None = None
    extracted_content: str | None = None
    long_term_memory: str | None = None
    include_extracted_content_only_once: bool = False
    judgement: BrowserUseJudgement | None = None


class State(Foreign):
    url: str | None = None
    title: str | None = None
    tabs: tuple[dict[str, Any], ...] = ()
    screenshot: str | None = None
    screenshot_path: str | None = None


class Metadata(Foreign):
    step_number: int | None = None
    step_start_time: float | None = None
    step_end_time: float | None = None
    input_tokens: int | None = None


class Item(Foreign):
    model_output: dict[str, Any] | None = None
    result: tuple[Result, ...] = ()
    state: State
    metadata: Metadata | None = None
    state_message: str | None = None


class History(Foreign):
    history: tuple[Item, ...]


def brain_of(output: dict[str, Any]) -> dict[str, Any]:
    """Returns the texts of a reply; the first versions nested them in `current_state`."""
    inner = output.get("current_state")
    return inner if isinstance(inner, dict) else output


def tab_of(raw: dict[str, Any]) -> Tab:
    """Reads a tab of any version; its id is a text or a number."""
    known = raw.get("tab_id") or raw.get("target_id")
    page = raw.get("page_id")
    tab_id = str(known)[-4:] if known else f"{page:04d}" if isinstance(page, int) else ""
    return Tab(tab_id=tab_id, url=str(raw.get("url") or ""), title=str(raw.get("title") or ""))
