"""Episodes to export, with their screenshots."""

from pathlib import Path
from typing import Any

from collection.formats import atif_document
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    ExtractionCall,
    Incident,
    Trajectory,
)
from tests.formats.foreign_runs import png
from tests.trajectories import CLICK, DONE, TYPE, step, trajectory

READ: dict[str, Any] = {"extract_structured_data": {"query": "the price"}}
SECRET = "<secret>shop_password</secret>"


def episode(store: ImageStore, task_id: str = "shop/1", **changes: Any) -> Trajectory:
    """Two actions at once, a reply that could not be used, a page reading, and the end."""
    shots = [store.put(png(number)) for number in range(3)]
    first = step(1, {"input_text": {"index": 2, "text": SECRET}}, CLICK, memory="m", screenshot=shots[0])
    broken = step(2, response="I do not know.", error="the reply is not a JSON object", screenshot=shots[1])
    reading = step(3, READ, screenshot=None)
    read = ActionResult(action="extract_structured_data", text="Read the page.", output="12 EUR")
    call = ExtractionCall(
        messages=(), response="12 EUR", usage=CallUsage(prompt_tokens=70, response_tokens=5)
    )
    used = [
        CallUsage(prompt_tokens=100 * n, response_tokens=10 * n, seconds=0.5, cost=0.25) for n in (1, 2, 3)
    ]
    steps = (
        first.model_copy(update={"usage": used[0], "discarded": ("", "??")}),
        broken.model_copy(
            update={"usage": used[1], "incidents": (Incident(kind="dialog", detail="dismissed"),)}
        ),
        reading.model_copy(update={"usage": used[2], "extractions": (call,), "results": (read,)}),
        step(4, DONE, screenshot=shots[2], results=()),
    )
    return trajectory(
        *steps, task_id=task_id, objective="Find a lamp.", constraints=("Only green ones.",), **changes
    )


def imported_episode(store: ImageStore) -> Trajectory:
    """A run of another system, without messages and tokens."""
    run = trajectory(
        step(1, TYPE, screenshot=store.put(png(7))).model_copy(update={"messages": ()}),
        task_id="fara/Shop--1",
    )
    return run.model_copy(update={"source": "fara", "missing": ("steps.messages", "steps.usage")})


def without_steps() -> Trajectory:
    """A start page that did not open."""
    return trajectory(task_id="shop/gone", outcome="unreachable", success=False, detail="no such host")


def write_runs(folder: Path, count: int = 1) -> list[Trajectory]:
    """Writes a data set: `count` episodes of ours, an imported one, and one without steps."""
    store = ImageStore(folder)
    runs = [episode(store, f"shop/{number}") for number in range(count)]
    runs += [imported_episode(store), without_steps()]
    write_dataset(folder, runs, "trajectories", {"made": "for a test"}, shard_size=2)
    return runs


def atif_run(folder: Path, **changes: Any) -> Path:
    """Writes an episode of ours as a document, with its images."""
    store = ImageStore(folder)
    run = episode(store, **changes)
    path = folder / "a.json"
    path.write_bytes(
        atif_document(run, lambda name: store.path(name).relative_to(folder).as_posix(), "0.1.0")
    )
    return path


def foreign_atif() -> dict[str, Any]:
    """A document of another agent: no `extra`, and no page but in words."""
    call = {"tool_call_id": "1", "function_name": "click", "arguments": {"index": 3}}
    result = {"source_call_id": "1", "content": "Clicked."}
    acted = {"source": "agent", "message": "I click.", "reasoning_content": "hm", "tool_calls": [call]}
    steps = [
        {"step_id": 1, "source": "user", "message": "Find a lamp."},
        {"step_id": 2, **acted, "observation": {"results": [result, {"content": "A page."}]}},
        {
            "step_id": 3,
            "source": "agent",
            "message": "It is 12 EUR.",
            "tool_calls": [{"tool_call_id": "2", "function_name": "bash", "arguments": {"command": "ls"}}],
        },
        {"step_id": 4, "source": "agent", "message": "It is 12 EUR.", "metrics": {"prompt_tokens": 7}},
    ]
    return {
        "schema_version": "ATIF-v1.5",
        "session_id": "s",
        "agent": {"name": "other", "version": "1"},
        "steps": steps,
    }
