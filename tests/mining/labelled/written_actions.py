"""The actions of a written step: as the reply's JSON, and what came of each."""

from __future__ import annotations

import dataclasses
from typing import Any

from rmsweb_jax.records.schema import ActionResult
from tests.mining.labelled.writing import Line, NotationError, Page


@dataclasses.dataclass(frozen=True)
class Acts:
    """A step's actions.

    Attributes:
      actions: the reply's action list.
      results: one each.
      raw: the whole reply where it is none (`invalid TEXT`); then there are no actions.
      looked_for: (query, answer) of each extraction.
    """

    actions: tuple[dict[str, Any], ...] = ()
    results: tuple[ActionResult, ...] = ()
    raw: str = ""
    looked_for: tuple[tuple[str, str], ...] = ()


def read_actions(text: str, page: Page, moved_on: bool | None) -> Acts:
    """The actions written in a step's last part.

    Args:
      page: where they are carried out; elements are named by their index or the start of their label.
      moved_on: whether the next step shows another page; None where there is no next step.

    Raises:
      NotationError: an unknown action or element.
    """
    if text.startswith("invalid "):
        return Acts(raw=text.removeprefix("invalid "))
    actions, results, looked_for = [], [], []
    # What is told may hold semicolons.
    whole = text.startswith("done ") or (text.startswith("extract ") and " => " in text)
    parts = [text] if whole else text.split("; ")
    for part in parts:
        written, problem, still = part.strip(), "", False
        if " !" in written and " => " not in written and not written.startswith(("done ", "write ")):
            written, _, problem = written.partition(" !")
        elif written.endswith(" ~"):
            written, still = written.removesuffix(" ~"), True
        body, _, output = written.partition(" => ")
        word, _, rest = body.partition(" ")
        action, told, changed = _action(word, rest.strip(), page, output)
        ((name, params),) = action.items()
        actions.append(action)
        if word == "wait":
            changed = bool(moved_on)
        elif word in ("click", "go", "key") and moved_on is False and part is parts[-1]:
            changed = False
        changed = changed and not problem and not still
        if still and word in ("down", "up"):
            told = f"Cannot scroll further {word}"
        elif still and word == "find":
            told = f"Text {rest.strip()!r} not found"
        shown = output if word in ("extract", "read") else ""
        if problem:
            results.append(ActionResult(action=name, text=problem, error=True))
            break
        results.append(ActionResult(action=name, text=told, changed=changed, output=shown))
        if word == "extract":
            looked_for.append((params["query"], output))
    return Acts(tuple(actions), tuple(results), looked_for=tuple(looked_for))


def _action(word: str, rest: str, page: Page, output: str) -> tuple[dict[str, Any], str, bool]:
    """The action, what the agent is told, and whether it changes something."""
    if word in ("click", "ctrlclick"):
        index = _index(page, rest)
        held = {"while_holding_ctrl": True} if word == "ctrlclick" else {}
        return {"click_element_by_index": {"index": index, **held}}, f"Clicked [{index}]", True
    if word in ("type", "select", "upload"):
        label, _, value = rest.partition(" := ")
        index = _index(page, label)
        if word == "type":
            return {"input_text": {"index": index, "text": value}}, f"Typed {value!r} into [{index}]", True
        if word == "select":
            told = f"Selected {value!r} in [{index}]"
            return {"select_dropdown_option": {"index": index, "text": value}}, told, True
        return {"upload_file_to_element": {"index": index, "path": value}}, f"Uploaded {value}", True
    if word == "options":
        index = _index(page, rest)
        return {"get_dropdown_options": {"index": index}}, f"Options of [{index}]: {output}", False
    if word in ("down", "up"):
        scroll = {"down": word == "down", "num_pages": float(rest or 1)}
        return {"scroll": scroll}, f"Scrolled {word}", True
    if word == "write":
        name, _, content = rest.partition(" := ")
        return {"write_file": {"file_name": name, "content": content}}, f"Wrote {name}", True
    if word == "done":
        flag, _, answer = rest.partition(" ")
        if flag not in ("yes", "no"):
            raise NotationError(f"done needs yes or no: {rest!r}")
        return {"done": {"text": answer, "success": flag == "yes"}}, "Done", False
    simple = {
        "key": ("send_keys", {"keys": rest}, f"Pressed {rest}", True),
        "go": ("go_to_url", {"url": rest}, f"Opened {rest}", True),
        "gonew": ("go_to_url", {"url": rest, "new_tab": True}, f"Opened {rest} in a new tab", True),
        "search": ("search_engine", {"query": rest}, f"Searched for {rest!r}", True),
        "back": ("go_back", {}, "Went back", True),
        "wait": (
            "wait",
            {"seconds": int(rest or 3)} if word == "wait" else {},
            f"Waited {rest or 3} s",
            True,
        ),
        "find": ("scroll_to_text", {"text": rest}, f"Scrolled to {rest!r}", True),
        "extract": ("extract_structured_data", {"query": rest}, f"Extracted {rest!r}", False),
        "tab": ("switch_tab", {"tab_id": rest}, f"Switched to tab {rest}", True),
        "closetab": ("close_tab", {"tab_id": rest}, f"Closed tab {rest}", True),
        "read": ("read_file", {"file_name": rest}, f"Read {rest}", False),
    }
    if word not in simple:
        raise NotationError(f"page {page.name}: no such action: {word!r} {rest!r}")
    name, params, told, changed = simple[word]
    return {name: params}, told, changed


def _index(page: Page, label: str) -> int:
    """The index of the element with this label, this index, or whose label starts so."""
    targets: list[Line] = [line for line in page.lines if line.acted_on]
    exact = [at for at, line in enumerate(targets, start=1) if line.label == label]
    if label.isdigit() and not exact and 1 <= int(label) <= len(targets):
        return int(label)
    found = exact or [at for at, line in enumerate(targets, start=1) if line.label.startswith(label)]
    if not found:
        raise NotationError(f"page {page.name}: no element {label!r}")
    return found[0]
