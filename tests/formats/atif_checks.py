"""Our own checks of an ATIF document: what RFC 0001 asks of ids, references, metrics and files."""

from pathlib import Path
from typing import Any


def content_parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def check_atif(document: dict[str, Any], folder: Path) -> None:
    """Asserts that a document holds together, and that its images are there."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["trajectory_id"] and document["agent"]["name"] and document["agent"]["version"]
    steps, totals = document["steps"], document["final_metrics"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert totals["total_steps"] == len(steps)
    seen: set[str] = set()
    for step in steps:
        assert step["source"] in ("system", "user", "agent")
        calls = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        assert len(set(calls)) == len(calls) and not seen & set(calls)
        seen |= set(calls)
        if step["source"] != "agent":
            assert not {"tool_calls", "metrics", "reasoning_content", "observation"} & step.keys()
        results = step.get("observation", {}).get("results", [])
        answered = [result["source_call_id"] for result in results if "source_call_id" in result]
        # In the order of the calls, each at most once.
        assert answered == [call for call in calls if call in answered]
        for result in results:
            check_parts(result["content"], folder)
        check_parts(step["message"], folder)
    agent = [step for step in steps if step["source"] == "agent"]
    if all("metrics" in step for step in agent):
        for total, part in (("prompt_tokens", "prompt_tokens"), ("completion_tokens", "completion_tokens")):
            assert totals[f"total_{total}"] == sum(step["metrics"][part] for step in agent)
        costs = [step["metrics"].get("cost_usd", 0.0) for step in agent]
        assert totals.get("total_cost_usd", 0.0) == sum(costs)
    else:
        assert "total_prompt_tokens" not in totals


def check_parts(content: Any, folder: Path) -> None:
    for part in content_parts(content):
        if part["type"] == "text":
            assert part.keys() == {"type", "text"}
        else:
            assert part.keys() == {"type", "source"} and part["source"]["media_type"] == "image/png"
            path = part["source"]["path"]
            assert not Path(path).is_absolute() and (folder / path).read_bytes().startswith(b"\x89PNG")
