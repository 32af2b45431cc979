"""Small result folders as other systems write them, file by file.

browser-use: `AgentHistoryList.save_to_file` and `AgentMessagePrompt` of 0.9.7, and `views.py` of 0.7.10 and
of the versions with `current_state`. WebVoyager: `print_message` and `main` in its `utils.py` and `run.py`.
Online-Mind2Web: what `src/run.py` of its judge reads (v1 and `online-mind2web-v2`) and writes.
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image


def png(number: int = 0, kind: str = "PNG", size: tuple[int, int] = (4, 3)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (number, 7, 7)).save(buffer, kind, compress_level=1)
    return buffer.getvalue()


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


# browser-use

SHOP = "https://www.shop.example.co.uk/"
PAGES = (
    "Search\n[12]<input id=q aria-label=Find lamps />\n*[15]<button />\n\tGo\n|SCROLL[18]<div role=list />",
    "Results\n[22]<a href=/lamp/1 />\n\tCheapest lamp 12 EUR",
    "Lamp 1\n[31]<button />\n\tBuy\n12 EUR",
    "Lamp 1\n[31]<button />\n\tBuy\n12 EUR",
)
ACTIONS = (
    [{"input": {"index": 12, "text": "lamp", "clear": True}}, {"click": {"index": 15}}],
    [{"click": {"index": 22}}],
    [{"extract": {"query": "price", "extract_links": False, "start_from_char": 0}}],
    [{"done": {"text": "12 EUR", "success": True, "files_to_display": []}}],
)
RESULTS = (
    [{"long_term_memory": "Input 'lamp' into element 12."}, {"long_term_memory": 'Clicked button "Go"'}],
    [{"long_term_memory": 'Clicked a "Cheapest lamp"'}],
    [
        {
            "extracted_content": "<result>12 EUR</result>",
            "include_extracted_content_only_once": True,
            "long_term_memory": "Query: price",
        }
    ],
    [
        {
            "is_done": True,
            "success": True,
            "extracted_content": "12 EUR",
            "long_term_memory": "Task completed",
            "judgement": {"verdict": True},
        }
    ],
)


def state_message(number: int, page: str, below: float = 0.0, read: str = "", extra: str = "") -> str:
    edge = f"... {below:.1f} pages below ..." if below else "[End of page]"
    read_state = f"<read_state>\n<read_state_0>\n{read}\n</read_state_0>\n</read_state>\n" if read else ""
    return (
        "<agent_history>\n\n</agent_history>\n\n"
        "<agent_state>\n<user_request>\nFind the price of the cheapest lamp.\n</user_request>\n"
        "<file_system>\nNo file system available\n</file_system>\n"
        f"<todo_contents>\n[empty todo.md, fill it when applicable]\n</todo_contents>\n{extra}"
        f"<step_info>Step{number} maximum:50\nToday:2025-11-21</step_info>\n</agent_state>\n"
        "<browser_state>\n<page_stats>3 links, 2 interactive, 0 iframes, 9 total elements</page_stats>\n"
        f"Current tab: ABCD\nAvailable tabs:\nTab ABCD: {SHOP} - Shop\n\n"
        f"<page_info>0.0 pages above, {below:.1f} pages below, {below + 1:.1f} total pages</page_info>\n\n"
        f"Interactive elements:\n[Start of page]\n{page}\n{edge}\n</browser_state>\n{read_state}"
    )


def history_item(number: int, **changes: Any) -> dict[str, Any]:
    """Step `number` (1-based) of a 0.9.7 history."""
    place = number - 1
    item = {
        "model_output": {
            "evaluation_previous_goal": "Success",
            "memory": f"memory {number}",
            "next_goal": f"goal {number}",
            "action": ACTIONS[place],
            "thinking": f"thinking {number}",
        },
        "result": RESULTS[place],
        "state": {
            "tabs": [{"url": SHOP, "title": "Shop", "target_id": "ABCD"}],
            "screenshot_path": f"/tmp/browser_use_agent_1/screenshots/step_{number}.png",
            "url": SHOP,
            "title": "Shop",
        },
        "metadata": {
            "step_start_time": 10.0 * number,
            "step_end_time": 10.0 * number + 2.5,
            "step_number": number,
        },
        "state_message": state_message(
            number, PAGES[place], 2.5 if number == 1 else 0.0, "12 EUR" if number == 4 else ""
        ),
    }
    return item | changes


def browser_use_run(folder: Path, items: list[dict[str, Any]] | None = None) -> Path:
    """Writes `FOLDER/history.json` and its screenshots."""
    items = [history_item(number) for number in (1, 2, 3, 4)] if items is None else items
    (folder / "screenshots").mkdir(parents=True)
    for number in range(1, len(items) + 1):
        (folder / f"screenshots/step_{number}.png").write_bytes(png(number))
    return write_json(folder / "history.json", {"history": items})


def without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in keys}


def first_version_item(actions: list[dict[str, Any]], done: bool = False) -> dict[str, Any]:
    """Writes it as the versions with `current_state` did: the screenshot inside, pages by number."""
    result = {"is_done": done, "extracted_content": "did it", "include_in_memory": True}
    return {
        "model_output": {
            "current_state": {"evaluation_previous_goal": "Unknown", "memory": "m", "next_goal": "g"},
            "action": actions,
        },
        "result": [result | ({"success": True} if done else {})] * len(actions),
        "state": {
            "tabs": [{"page_id": 0, "url": SHOP, "title": "Shop"}],
            "screenshot": base64.b64encode(png(9)).decode(),
            "url": SHOP,
            "title": "Shop",
        },
        "metadata": {"step_start_time": 1.0, "step_end_time": 2.0, "input_tokens": 1200, "step_number": 1},
    }


# WebVoyager

_ASK = "please analyze the attached screenshot ... and then refer to the textual information.\n"
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,{b64_img}"}}
ELEMENTS = '[0]: "Home", "Start page";\t[2]: <input> "Search Amazon";\t[5]: "EN";'
CLIPPED = "Observation: A screenshot and some texts. (Omitted in context.)"
NOT_DONE = (
    "The action you have chosen cannot be exected. Please double-check if you have selected the wrong label."
)
_START = (
    "Now given a task: Find a green lamp.  Please interact with https://www.amazon.com/ and get the answer. "
)


def voyager_user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, _IMAGE]}


def voyager_reply(action: str, thought: str = "I think.") -> dict[str, Any]:
    return {"role": "assistant", "content": f"Thought: {thought}\n\nAction: {action}"}


def webvoyager_run(
    folder: Path, *messages: dict[str, Any], calls: int = 0, shots: tuple[int, ...] = ()
) -> Path:
    """`task<ID>/` with its chat, its screenshots and, for `calls` > 0, its log."""
    system = {"role": "system", "content": "Imagine you are a robot browsing the web, just like humans."}
    write_json(folder / "interact_messages.json", [system, *messages])
    for number in shots:
        (folder / f"screenshot{number}.png").write_bytes(png(number))
    if calls:
        lines = ["INFO - ########## TASKAmazon--0 ##########"]
        for call in range(calls):
            tokens = f"Prompt Tokens: {1000 + call}; Completion Tokens: {50 + call}"
            lines += [f"INFO - {tokens}", f"INFO - Accumulate {tokens}"]
        (folder / "agent.log").write_text("\n".join(lines))
    return folder


def webvoyager_messages(*replies: str) -> list[dict[str, Any]]:
    """A chat in which only the last page is still there."""
    chat: list[dict[str, Any]] = []
    for place, action in enumerate(replies):
        start = _START if place == 0 else ""
        if place == len(replies) - 1:
            chat.append(voyager_user(f"{start}Observation: {_ASK}{ELEMENTS}"))
        else:
            chat.append({"role": "user", "content": f"{start.strip()}{CLIPPED}"})
        chat.append(voyager_reply(action))
    return chat


# Online-Mind2Web

TASK_ID = "fb7b4f784cfde003e2548fdf4e8d6b4f"
OTHER_ID = "b7258ee05d75e6c50673a59914db412e"


def mind2web_v1(folder: Path, **changes: Any) -> Path:
    result = {
        "task_id": folder.name,
        "task": "Open the page with an overview of the submission of releases on Discogs.",
        "final_result_response": "The page is open.",
        "action_history": ['<div role="button"> -> CLICK', "<input> -> TYPE: guide", '{"go_back": {}}'],
        "thoughts": ["Accept cookies.", "Type.", "Back."],
    }
    write_json(
        folder / "result.json", {key: value for key, value in (result | changes).items() if value is not None}
    )
    (folder / "trajectory").mkdir()
    # 10 comes behind 9, not behind 1.
    for number in (0, 9, 10):
        (folder / f"trajectory/{number}_full_screenshot.png").write_bytes(png(number))
    return folder


def mind2web_v2(folder: Path, **changes: Any) -> Path:
    site = "https://www.gamestop.com/"
    actions = (
        (f"page -> NAVIGATE -> {site} | SUCCESS", site, None),
        ("CLICK coords(320, 180) -> click primary result | FAILED", f"{site}stores", None),
        ("WAIT page -> load", f"{site}stores", "SUCCESS"),
        ("TASK_COMPLETE -> ANSWER: It opens at 10.", f"{site}stores", None),
    )
    steps = [
        {
            "screenshot": f"{number:04d}.jpg",
            "url": url,
            "action": action,
            "action_status": status,
            "thought": f"thought {number}",
        }
        for number, (action, url, status) in enumerate(actions)
    ]
    result = {
        "schema_version": "online-mind2web-v2",
        "task": "Find the store's hours.",
        "task_id": folder.name,
        "agent_final_answer": "It opens at 10.",
        "action_history": steps,
    }
    write_json(folder / "result.json", result | changes)
    (folder / "trajectory").mkdir()
    for number in range(4):
        (folder / f"trajectory/{number:04d}.jpg").write_bytes(png(number, "JPEG"))
    return folder


def evaluation(folder: Path, mode: str, labels: dict[str, Any], torn: bool = False) -> Path:
    lines = [json.dumps({"task_id": name, "predicted_label": label}) for name, label in labels.items()]
    path = folder / f"{mode}_o4-mini_score_threshold_3_auto_eval_results.json"
    path.write_text("\n".join(lines) + ('\n{"task_id": "' if torn else "\n"))
    return path
