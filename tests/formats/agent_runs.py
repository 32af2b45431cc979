"""Small runs as agents that act on points of screenshots write them; see the docstrings of their importers.

Fara-7B: `FaraAgent.execute_action` through webeval's `LogHandler`, and `FinalAnswer.save`. Fara-1.5:
`DataPoint`. MolmoWeb: `log_episode`. WebGym: `_dump_trajectory`. OpenWebRL: `_save_sample`, `run_evaluate`.
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from tests.formats.foreign_runs import write_json

SITE = "https://www.shop.example.co.uk/"
SIZE = (1440, 900)


def shot(number: int = 0, size: tuple[int, int] = SIZE) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (number, 9, 9)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def write_shots(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_bytes(shot(number))


# Fara-7B

FARA_CALLS: tuple[dict[str, Any], ...] = (
    {"action": "visit_url", "url": "shop.example.co.uk"},
    {"action": "type", "coordinate": [714, 448], "text": "lamp", "press_enter": True},
    {"action": "mouse_move", "coordinate": [10, 10]},
    {"action": "scroll", "pixels": -300},
    {"action": "terminate", "status": "success"},
)


def fara_event(number: int, call: dict[str, Any]) -> dict[str, Any]:
    arguments = call | {"thoughts": f"thought {number}"}
    return {
        "source": "FaraAgent",
        "message": f"computer_use( {json.dumps(arguments)} )",
        "url": SITE if number > 1 else "https://www.bing.com/",
        "action": "computer_use",
        "arguments": arguments,
        "timestamp": f"2025-12-01T10:00:0{number}",
        "type": "OtherEvent",
    }


def fara_text(number: int, call: dict[str, Any]) -> dict[str, Any]:
    return {
        "message": f"\nThought #{number}: thought {number}\nAction #{number}: executing tool "
        f"'{call['action']}' with arguments {json.dumps(call)}",
        "type": "OtherEvent",
    }


def fara_run(
    folder: Path,
    calls: tuple[dict[str, Any], ...] = FARA_CALLS,
    structured: bool = True,
    torn: bool = False,
    **answer: Any,
) -> Path:
    """A run folder of `webeval`; `structured` False writes the events in words alone."""
    lines = []
    for number, call in enumerate(calls, start=1):
        lines.append(fara_text(number, call))
        if structured:
            lines.append(fara_event(number, call))
        lines.append({"message": f"Observation#{number}: I did {call['action']}.", "type": "OtherEvent"})
    write_shots(folder, *(f"screenshot{number}.png" for number in range(len(calls) + 1)))
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "web_surfer.log").write_text(text + ('{"message": "tor' if torn else ""))
    final = {"final_answer": "It costs 12 EUR.", "screenshots": [], "is_aborted": False, "token_usage": {}}
    write_json(folder / f"{folder.name}_final_answer.json", final | answer)
    write_json(folder / "times.json", {"start_time": 1.0, "end_time": 33.5, "duration": 32.5})
    return folder


def fara_score(folder: Path, judge: str, score: Any) -> None:
    write_json(folder / f"scores/{judge}.json", {"score": score, "gpt_response_text": "Status: success"})


# Fara-1.5

POINT_CALLS: tuple[dict[str, Any], ...] = (
    {"action": "left_click", "coordinate": [500, 500]},
    {"action": "type", "text": "lamp"},
    {"action": "scroll", "pixels": -500},
    {"action": "read_page_answer_question", "question": "the price"},
    {"action": "ask_user_question", "question": "Which lamp?"},
    {"action": "terminate", "answer": "12 EUR"},
)


def fara_point(
    folder: Path,
    calls: tuple[dict[str, Any], ...] = POINT_CALLS,
    status: str = "complete",
    verification: dict[str, Any] | None = None,
) -> Path:
    asked = {"observation_type": "user_message", "content": "Find a lamp.", "message_type": "task"}
    events: list[dict[str, Any]] = [{"type": "observation", "id": "u", "action_id": None, **asked}]
    for number, call in enumerate(calls, start=1):
        page = {"observation_type": "environment", "url": SITE, "page_info": "Title: Shop"}
        events += [
            page
            | {
                "type": "observation",
                "id": f"o{number}",
                "screenshot_path": f"screenshot_{number}_pre.png",
                "action_id": None,
            },
            {
                "type": "action",
                "id": f"a{number}",
                "action_name": call["action"],
                "content": {"action": call["action"], "arguments": call | {"thoughts": f"thought {number}"}},
                "llm_conversation": {"messages": [{"raw_response": "...", "usage": {"prompt_tokens": 0}}]},
            },
            {
                "type": "observation",
                "observation_type": "tool_output",
                "id": f"t{number}",
                "output": f"I did {call['action']}.",
                "error": "",
                "action_id": f"a{number}",
            },
            page
            | {
                "type": "observation",
                "id": f"p{number}",
                "screenshot_path": f"screenshot_{number}_post.png",
                "action_id": f"a{number}",
            },
        ]
    write_shots(folder, *(f"screenshot_{number}_pre.png" for number in range(1, len(calls) + 1)))
    outcome = {"answer": "12 EUR"} if status == "complete" else None
    log = {"events": events, "status": status, "outcome": outcome}
    task = {"task_id": "ab12", "instruction": "Find a lamp."}
    point = {"task": task, "solver_log": log, "verification": verification or {}, "metadata": {}}
    write_json(folder / "data_point.json", point)
    return folder


# MolmoWeb

MOLMO_ACTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("goto", {"url": SITE}),
    ("mouse_click", {"x": 720.0, "y": 450.4, "button": "left", "click_type": "single"}),
    ("keyboard_type", {"text": "lamp"}),
    ("keyboard_press", {"key": "ControlOrMeta+a"}),
    ("scroll", {"delta_x": 0.0, "delta_y": 450.0}),
    ("hover_at", {"x": 1.0, "y": 1.0, "duration": 1.0}),
    ("send_msg_to_user", {"msg": "[ANSWER] 12 EUR"}),
    ("send_msg_to_user", {"msg": "[EXIT]"}),
)


def molmo_run(
    folder: Path,
    actions: tuple[tuple[str, dict[str, Any]], ...] = MOLMO_ACTIONS,
    error: dict[str, str] | None = None,
) -> Path:
    """A result folder; `error` is of the last step."""
    steps = {}
    for number, (name, params) in enumerate(actions, start=1):
        output = {"thought": f"thought {number}", "action": params, "action_name": name}
        steps[str(number)] = {
            "screenshot": f"screenshot_{number:03d}.png",
            "user_message": f"user_message_{number:03d}.txt",
            "other_obs": {"prompt": "...", "page_index": 0, "url": SITE, "open_pages_titles": ["Shop"]},
            "action": {
                "action_str": f"{name}()",
                "action_description": f"do {name}",
                "action_output": output,
            },
            "error": error if number == len(actions) else None,
            "action_timestamp": 1000.0 + number,
            "raw_output": json.dumps({"thought": f"thought {number}", "action": {"name": name, **params}}),
        }
    write_json(folder / "trajectory.json", steps)
    write_json(folder / "metadata.json", {"goal": "Find a lamp.", "eps_name": folder.name})
    write_shots(folder / "images", *(f"screenshot_{number:03d}.png" for number in range(1, len(actions) + 1)))
    return folder


# WebGym

GYM_ACTIONS: tuple[dict[str, Any], ...] = (
    {"key": "click", "arguments": {"coordinates": [500, 500]}},
    {"key": "type", "arguments": {"coordinates": [100, 200], "text": "lamp"}},
    {"key": "scroll", "arguments": {"direction": "down"}},
    {"key": "hover", "arguments": {"coordinates": [1, 1]}},
    {"key": "navigate", "arguments": {"url": SITE}},
    {"key": "answer", "arguments": {"content": "12 EUR"}},
)


def gym_episode(
    folder: Path,
    actions: tuple[dict[str, Any], ...] = GYM_ACTIONS,
    name: str = "17",
    number: int = 0,
    **changes: Any,
) -> Path:
    steps, names = [], []
    for place, action in enumerate(actions):
        names.append(f"task_{name}_host_8023_step_{place:03d}.png")
        tokens = {"thought": f"thought {place}", "action": f"do {action['key']}", "memory": f"memory {place}"}
        steps.append(
            {
                "step_idx": place,
                "seqlen": 900,
                "prompt_len": 800,
                "prompt": "...",
                "completion": "...",
                "observation": {
                    "image_path": f"/mnt/logs/rollout/3/{names[-1]}",
                    "page_metadata": {"title": "Shop", "url": SITE, "width": SIZE[0], "height": SIZE[1]},
                    "ac_tree": "",
                },
                "action": {"action": action, "action_string": f"do {action['key']}"},
                "response": {
                    "raw_response": f"Thought: thought {place}\nAction: do {action['key']}",
                    "raw_prompt": "[]",
                    "answering_tokens": tokens | {"observation": "The page changed.", "thinking": ""},
                },
                "reward": {"reward": 0, "evaluation": "", "is_blocked": False, "submit": False},
            }
        )
    episode = {
        "task_id": name,
        "episode_idx": number,
        "n_steps": len(steps),
        "reward": 1.0,
        "screenshot_paths": [],
        "evaluation": ["criterion 1: met"],
        "is_blocked": False,
        "episode_timed_out": False,
        "task_info": {"task_name": "Find a lamp.", "website": SITE, "difficulty": 3},
        "steps": steps,
    }
    write_shots(folder, *names)
    return write_json(folder / f"{name}_ep{number}.json", episode | changes)


# OpenWebRL

RL_CALLS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"name": "click", "arguments": {"point_2d": [500, 500]}},),
    (
        {"name": "write", "arguments": {"message": "lamp"}},
        {"name": "press_keys", "arguments": {"keys": ["Enter"]}},
    ),
    ({"name": "drag", "arguments": {"start_point_2d": [1, 1], "end_point_2d": [2, 2]}},),
    ({"name": "scroll", "arguments": {"direction": "down", "amount": 0.5}},),
    ({"name": "done", "arguments": {"response": "12 EUR"}},),
)
_IMAGE = "screenshot:\n<|vision_start|><|image_pad|><|vision_end|>"


def rl_observation(image: bool = True) -> str:
    lines = [
        "<observation>",
        f"screen size: {SIZE[0]} x {SIZE[1]}",
        "Current tab: 1",
        "Available tabs:",
        "- Tab 0: about:blank",
        f"- Tab 1 (active): {SITE} - Shop",
        *([_IMAGE] if image else []),
        "</observation>",
    ]
    return "\n".join(lines)


def rl_reply(number: int, calls: tuple[dict[str, Any], ...]) -> str:
    text = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return f"<thinking>thought {number}</thinking>\n<action>do step {number}</action>\n{text}"


def rl_sample(
    folder: Path,
    calls: tuple[tuple[dict[str, Any], ...], ...] = RL_CALLS,
    turn: bool = False,
    task: str = "webvoyager_83",
    **changes: Any,
) -> Path:
    """A saved sample: the whole chat, or with `turn` its last turn with the history in the prompt."""
    blocks = []
    for number, made in enumerate(calls, start=1):
        page = rl_observation(image=not turn or number == len(calls))
        if number == 1:
            shown = f"<user_request>\nFind a lamp.\n</user_request>\n\n{page}"
        else:
            feedback = "\n".join(f"Succeed: `{call['name']}` executed." for call in calls[number - 2])
            shown = f"<tool_response>\n{feedback}\n\n{page}\n</tool_response>"
        blocks += [
            f"<|im_start|>user\n{shown}<|im_end|>\n",
            f"<|im_start|>assistant\n{rl_reply(number, made)}",
        ]
    chat = "".join(block + ("<|im_end|>\n" if "assistant\n" in block else "") for block in blocks)
    system = "<|im_start|>system\nYou browse.<|im_end|>\n"
    prompt, response = system, chat
    if turn:
        # The prompt opens the thought.
        prompt, _, last = (system + chat).rpartition("<|im_start|>assistant\n")
        prompt, response = prompt + "<|im_start|>assistant\n<thinking>", last.removeprefix("<thinking>")
    images = [
        [f"data:image/png;base64,{base64.b64encode(shot(number)).decode()}"] for number in range(len(calls))
    ]
    sample = {
        "sample_id": task,
        "total_steps": len(calls),
        "llm_input_texts": prompt,
        "llm_response": response,
        "images": images,
        "status": "completed",
        "terminate_reason": "task_completed",
    }
    kind = "turn" if turn else "trajectory"
    status = changes.get("status", "completed")
    name = f"{task}_20260701_101500_{status}_{len(calls)}steps.json"
    return write_json(folder / "eval_samples" / kind / "20260701_101400" / name, sample | changes)


def rl_result(folder: Path, task: str = "webvoyager_83", **reward: Any) -> None:
    judged = {"format": 1.0, "judge": 1.0, "judge_text": "It is so. SUCCESS", "judge_timeout": False}
    row = {
        "task_id": task.replace("_", "/"),
        "start_url": SITE,
        "intent": "Find a lamp.",
        "status": "Status.COMPLETED",
        "reward": 1.0,
        "metadata": {"reward": judged | {"judge_prompt_variant": "default"} | reward},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"results_task_{task}.jsonl").write_text(json.dumps(row) + "\n")
