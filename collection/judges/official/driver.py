"""Runs a judge's own code, in a process of its own and with the packages of its own environment.

    python driver.py

The first line on standard input is a JSON object with `method`, `checkout`, `scratch` (a folder), `images`
(the limit on screenshots) and the model's `base_url`, `key` and `model`. It is answered by `{}` when all is
ready. Each further line is an episode (`collection.judges.official.evidence.episode`). It is answered by
`value` as the judge's code returns it, with `text` and `score` if it gives them; or by `error` if it failed.

This file imports nothing of this project, which need not be installed in that environment. It changes nothing
in the judge's code: its own client of the model gets another address.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def webvoyager(given: dict[str, Any]) -> Any:
    sys.path.insert(0, os.path.join(given["checkout"], "evaluation"))
    import auto_eval  # pyright: ignore[reportMissingImports]

    client = auto_eval.OpenAI(base_url=given["base_url"], api_key=given["key"], max_retries=0, timeout=None)

    def judge(episode: dict[str, Any]) -> dict[str, Any]:
        # Its patterns want the task on one line, and end the answer at the first bracket.
        task = " ".join(episode["task"].split())
        answer = " ".join(episode["answer"].replace("[", "(").replace("]", ")").split())
        said = [
            {"role": "system", "content": ""},
            {"role": "user", "content": f"Now given a task: {task}  Please interact with {episode['start']}"},
            {"role": "assistant", "content": f"Action: ANSWER; [{answer}]"},
        ]
        Path(episode["folder"], "interact_messages.json").write_text(json.dumps(said))
        value = auto_eval.auto_eval_by_gpt4v(episode["folder"], client, given["model"], given["images"])
        return {"value": value}

    return judge


def browser_use(given: dict[str, Any]) -> Any:
    sys.path.insert(0, given["checkout"])
    from evaluation.auto_eval_browser_use import (  # pyright: ignore[reportMissingImports]
        auto_eval_by_gpt4o,
    )
    from langchain_openai import ChatOpenAI  # pyright: ignore[reportMissingImports]

    client = ChatOpenAI(
        model=given["model"],
        base_url=given["base_url"],
        api_key=given["key"],
        max_retries=0,
        timeout=None,
        temperature=0,
    )

    def judge(episode: dict[str, Any]) -> dict[str, Any]:
        import base64

        shots = [base64.b64encode(Path(shot).read_bytes()).decode() for shot in _screenshots(episode)]
        history = SimpleNamespace(
            is_done=lambda: True, final_result=lambda: episode["answer"], screenshots=lambda: shots
        )
        value, text = asyncio.run(auto_eval_by_gpt4o(history, episode["task"], client))
        return {"value": value, "text": text}

    return judge


def webjudge(given: dict[str, Any]) -> Any:
    return _online_mind2web(given, "WebJudge_Online_Mind2Web_eval")


def agenttrek(given: dict[str, Any]) -> Any:
    return _online_mind2web(given, "AgentTrek_eval")


def _online_mind2web(given: dict[str, Any], method: str) -> Any:
    client = _fara_client(given)
    from webeval.benchmarks import OnlineM2WBenchmark  # pyright: ignore[reportMissingImports]

    benchmark = OnlineM2WBenchmark(Path(given["scratch"]), eval_method=method, model_client=client)

    def judge(episode: dict[str, Any]) -> dict[str, Any]:
        steps = [step for step in episode["steps"] if step["action"]]
        shots = _screenshots(episode)
        candidate = SimpleNamespace(
            actions=[step["action"] for step in steps],
            thoughts=[step["thought"] for step in steps],
            screenshots=shots,
            latest_screenshot=shots[-1],
        )
        value, text = benchmark.evaluator({"question": episode["task"]}, candidate)
        return {"value": value, "text": text}

    return judge


def universal_verifier(given: dict[str, Any]) -> Any:
    client = _fara_client(given)
    from webeval.benchmarks import WebTailBenchBenchmark  # pyright: ignore[reportMissingImports]

    benchmark = WebTailBenchBenchmark(given["scratch"], model_client=client)

    def judge(episode: dict[str, Any]) -> dict[str, Any]:
        events = []
        for step in episode["steps"]:
            # Its agent ends with an action of this name.
            name = "terminate" if step["done"] else step["name"]
            arguments = {**step["arguments"], "action": name, "thoughts": step["thought"]}
            events.append({"action": name, "url": step["url"], "arguments": arguments})
        # It wants one screenshot per action: a step without one gets that of the step before or after.
        shots, known = [], _screenshots(episode)[0]
        for number, step in enumerate(episode["steps"], start=1):
            known = step["screenshot"] or known
            path = Path(episode["folder"], f"screenshot_{number}.png")
            path.write_bytes(Path(known).read_bytes())
            shots.append(path)
        candidate = SimpleNamespace(
            path=Path(episode["folder"]),
            events=events,
            answer=SimpleNamespace(screenshots=shots, final_answer=episode["answer"]),
        )
        task = {"id": episode["id"], "question": episode["task"], "init_url": episode["start"]}
        if episode["rubric"] is not None:
            task["precomputed_rubric"] = episode["rubric"]
        # It stores its scores in this file and would take them for known ones.
        Path(episode["folder"], "task_data.json").unlink(missing_ok=True)
        value, text = benchmark.evaluator(task, candidate)
        found = json.loads(text)
        # Both mean that no reply could be read, which its code counts as a failure.
        if "rubric_error" in found or found.get("outcome_success", False) is None:
            return {"value": None, "text": found.get("rubric_error") or found["outcome_reasoning"]}
        most = found.get("rubric_total_max_points") or 0
        score = found["rubric_total_earned_points"] / most if most else None
        return {"value": value, "text": found.get("outcome_reasoning", ""), "score": score}

    return judge


def _fara_client(given: dict[str, Any]) -> Any:
    """Returns the client of Fara's judges and makes them importable."""
    folder = given["checkout"]
    sys.path[:0] = [os.path.join(folder, "webeval", "src"), os.path.join(folder, "src")]
    from webeval.oai_clients import OpenAIClientWrapper  # pyright: ignore[reportMissingImports]

    return OpenAIClientWrapper(
        model=given["model"], base_url=given["base_url"], api_key=given["key"], timeout=None
    )


def _screenshots(episode: dict[str, Any]) -> list[str]:
    return [step["screenshot"] for step in episode["steps"] if step["screenshot"]]


JUDGES = {one.__name__: one for one in (webvoyager, browser_use, webjudge, agenttrek, universal_verifier)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # The judges print; what they print belongs to the log.
    os.dup2(2, 1)

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    given = json.loads(sys.stdin.readline())
    try:
        judge = JUDGES[given["method"]](given)
    except ModuleNotFoundError as error:
        answer({"missing": error.name})
        return
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({})
    for line in sys.stdin:
        try:
            answer(judge(json.loads(line)))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
