"""Small runs as agents that act on points of screenshots write them; see the docstrings of their importers.

Fara-7B: `FaraAgent.execute_action` through webeval's `LogHandler`, and `FinalAnswer.save`. Fara-1.5:
`DataPoint`. MolmoWeb: `log_episode`. WebGym: `_dump_trajectory`. OpenWebRL: `_save_sample`, `run_evaluate`.
"""

import base64
import json
from pathlib import Path
from typing import Any

from tests.formats.foreign_runs import png, write_json

SITE = "https://www.shop.example.co.uk/"
SIZE = (1440, 900)
CENTRE = {"click_coordinates": {"x": 720, "y": 450}}
LAMP = {"input_text": {"index": 0, "text": "lamp", "clear_existing": False}}
ENTER = {"send_keys": {"keys": "Enter"}}
HALF = {"scroll": {"down": True, "num_pages": 0.5}}
OPENED = {"go_to_url": {"url": SITE}}
ANSWERED = {"done": {"text": "12 EUR"}}
# A call in the agent's own form; our actions, or the end of the error of its step.
Mapped = tuple[Any, list[dict[str, Any]] | str]


def shot(number: int = 0) -> bytes:
    return png(number, size=SIZE)


def write_shots(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_bytes(shot(number))


# Fara-7B

# Each call, and what it becomes: actions of ours, or the reason why there is none.
FARA: tuple[Mapped, ...] = (
    (
        {"action": "visit_url", "url": "shop.example.co.uk"},
        [{"go_to_url": {"url": "https://shop.example.co.uk"}}],
    ),
    # The model sees 1428 x 896 pixels of the window's 1440 x 900.
    (
        {"action": "type", "coordinate": [714, 448], "text": "lamp", "press_enter": True},
        [CENTRE, LAMP, ENTER],
    ),
    ({"action": "pause_and_memorize_fact", "fact": "red"}, "our action space has no such action"),
    ({"action": "scroll", "pixels": -300}, [{"scroll": {"down": True, "num_pages": 0.444}}]),
    ({"action": "terminate", "status": "success"}, [{"done": {"text": "thought 5", "success": True}}]),
)
FARA_CALLS = tuple(call for call, _ in FARA)


def fara_event(number: int, call: dict[str, Any]) -> dict[str, Any]:
    url = SITE if number > 1 else "https://www.bing.com/"
    arguments = call | {"thoughts": f"thought {number}"}
    return {"message": "computer_use( ... )", "url": url, "action": "computer_use", "arguments": arguments}


def fara_text(number: int, call: dict[str, Any]) -> dict[str, Any]:
    executed = f"executing tool '{call['action']}' with arguments {json.dumps(call)}"
    return {"message": f"\nThought #{number}: thought {number}\nAction #{number}: {executed}"}


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
        lines.append({"message": f"Observation#{number}: I did {call['action']}."})
    write_shots(folder, *(f"screenshot{number}.png" for number in range(len(calls) + 1)))
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "web_surfer.log").write_text(text + ('{"message": "tor' if torn else ""))
    final = {"final_answer": "It costs 12 EUR.", "is_aborted": False}
    write_json(folder / f"{folder.name}_final_answer.json", final | answer)
    write_json(folder / "times.json", {"duration": 32.5})
    return folder


def fara_score(folder: Path, judge: str, score: Any) -> None:
    write_json(folder / f"scores/{judge}.json", {"score": score, "gpt_response_text": "Status: success"})


# Fara-1.5

FARA_1_5: tuple[Mapped, ...] = (
    ({"action": "left_click", "coordinate": [500, 500]}, [CENTRE]),
    ({"action": "type", "text": "lamp"}, [LAMP]),
    ({"action": "scroll", "pixels": -500}, [HALF]),
    (
        {"action": "read_page_answer_question", "question": "the price"},
        [{"extract_structured_data": {"query": "the price"}}],
    ),
    ({"action": "ask_user_question", "question": "Which lamp?"}, "our action space has no such action"),
    ({"action": "terminate", "answer": "12 EUR"}, [ANSWERED]),
)
POINT_CALLS = tuple(call for call, _ in FARA_1_5)


def fara_point(
    folder: Path,
    calls: tuple[dict[str, Any], ...] = POINT_CALLS,
    status: str = "complete",
    verification: dict[str, Any] | None = None,
) -> Path:
    events: list[dict[str, Any]] = [{"type": "observation", "observation_type": "user_message"}]
    for number, call in enumerate(calls, start=1):
        page = {"type": "observation", "observation_type": "environment", "url": SITE}
        said = {"action": call["action"], "arguments": call | {"thoughts": f"thought {number}"}}
        conversation = {"messages": [{"raw_response": "...", "usage": {"prompt_tokens": 0}}]}
        output = {"type": "observation", "observation_type": "tool_output", "error": ""}
        events += [
            page | {"screenshot_path": f"screenshot_{number}_pre.png", "action_id": None},
            {"type": "action", "id": f"a{number}", "content": said, "llm_conversation": conversation},
            output | {"output": f"I did {call['action']}.", "action_id": f"a{number}"},
            page | {"screenshot_path": f"screenshot_{number}_post.png", "action_id": f"a{number}"},
        ]
    write_shots(folder, *(f"screenshot_{number}_pre.png" for number in range(1, len(calls) + 1)))
    outcome = {"answer": "12 EUR"} if status == "complete" else None
    log = {"events": events, "status": status, "outcome": outcome}
    task = {"task_id": "ab12", "instruction": "Find a lamp."}
    point = {"task": task, "solver_log": log, "verification": verification or {}}
    write_json(folder / "data_point.json", point)
    return folder


# MolmoWeb

MOLMO: tuple[Mapped, ...] = (
    (("goto", {"url": SITE}), [OPENED]),
    (("mouse_click", {"x": 720.0, "y": 450.4, "button": "left", "click_type": "single"}), [CENTRE]),
    (("keyboard_type", {"text": "lamp"}), [LAMP]),
    (("keyboard_press", {"key": "ControlOrMeta+a"}), [{"send_keys": {"keys": "Control+a"}}]),
    (("scroll", {"delta_x": 0.0, "delta_y": 450.0}), [HALF]),
    (("upload", {"file": "a.png"}), "our action space has no such action"),
    (("send_msg_to_user", {"msg": "[ANSWER] 12 EUR"}), "a message that does not end the episode"),
    (("send_msg_to_user", {"msg": "[EXIT]"}), [ANSWERED]),
)
MOLMO_ACTIONS = tuple(action for action, _ in MOLMO)


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
            "other_obs": {"page_index": 0, "url": SITE, "open_pages_titles": ["Shop"]},
            "action": {"action_description": f"do {name}", "action_output": output},
            "error": error if number == len(actions) else None,
            "action_timestamp": 1000.0 + number,
            "raw_output": json.dumps({"thought": f"thought {number}", "action": {"name": name, **params}}),
        }
    write_json(folder / "trajectory.json", steps)
    write_json(folder / "metadata.json", {"goal": "Find a lamp."})
    write_shots(folder / "images", *(f"screenshot_{number:03d}.png" for number in range(1, len(actions) + 1)))
    return folder


# WebGym

GYM: tuple[Mapped, ...] = (
    ({"key": "click", "arguments": {"coordinates": [500, 500]}}, [CENTRE]),
    (
        {"key": "type", "arguments": {"coordinates": [100, 200], "text": "lamp"}},
        [
            {"click_coordinates": {"x": 144, "y": 180}},
            {"input_text": {"index": 0, "text": "lamp"}},
            ENTER,
        ],
    ),
    (
        {"key": "scroll", "arguments": {"direction": "down"}},
        [{"scroll": {"down": True, "num_pages": 0.944}}],
    ),
    ({"key": "zoom", "arguments": {"coordinates": [1, 1]}}, "our action space has no such action"),
    ({"key": "navigate", "arguments": {"url": SITE}}, [OPENED]),
    ({"key": "answer", "arguments": {"content": "12 EUR"}}, [ANSWERED]),
)
GYM_ACTIONS = tuple(action for action, _ in GYM)


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
        page = {"title": "Shop", "url": SITE, "width": SIZE[0], "height": SIZE[1]}
        raw = f"Thought: thought {place}\nAction: do {action['key']}"
        tokens |= {"observation": "The page changed.", "thinking": ""}
        steps.append(
            {
                "observation": {
                    "image_path": f"/mnt/logs/rollout/3/{names[-1]}",
                    "page_metadata": page,
                    "ac_tree": "",
                },
                "action": {"action": action},
                "response": {"raw_response": raw, "answering_tokens": tokens},
            }
        )
    episode = {
        "reward": 1.0,
        "evaluation": ["criterion 1: met"],
        "is_blocked": False,
        "episode_timed_out": False,
        "task_info": {"task_name": "Find a lamp.", "website": SITE},
        "steps": steps,
    }
    write_shots(folder, *names)
    return write_json(folder / f"{name}_ep{number}.json", episode | changes)


# OpenWebRL

RL: tuple[Mapped, ...] = (
    (({"name": "click", "arguments": {"point_2d": [500, 500]}},), [CENTRE]),
    (
        (
            {"name": "write", "arguments": {"message": "lamp"}},
            {"name": "press_keys", "arguments": {"keys": ["Enter"]}},
        ),
        [{"input_text": {"index": 0, "text": "lamp"}}, ENTER],
    ),
    (
        ({"name": "call_user", "arguments": {"question": "Which lamp?"}},),
        "our action space has no such action",
    ),
    (({"name": "scroll", "arguments": {"direction": "down", "amount": 0.5}},), [HALF]),
    (({"name": "done", "arguments": {"response": "12 EUR"}},), [ANSWERED]),
)
RL_CALLS = tuple(calls for calls, _ in RL)
_IMAGE = "screenshot:\n<|vision_start|><|image_pad|><|vision_end|>"


def rl_observation(image: bool = True) -> str:
    tabs = f"Current tab: 1\nAvailable tabs:\n- Tab 0: about:blank\n- Tab 1 (active): {SITE} - Shop\n"
    shown = f"{_IMAGE}\n" if image else ""
    return f"<observation>\nscreen size: {SIZE[0]} x {SIZE[1]}\n{tabs}{shown}</observation>"


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
    reward = judged | {"judge_prompt_variant": "default"} | reward
    row = {"start_url": SITE, "intent": "Find a lamp.", "metadata": {"reward": reward}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"results_task_{task}.jsonl").write_text(json.dumps(row) + "\n")
