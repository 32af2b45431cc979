"""Calls an official judge's code by itself, with its own client and its own files; needs its packages.

    python official_direct.py METHOD CHECKOUT FOLDER URL

FOLDER has a folder for each episode (`tests.judges.official.write_native`), whose name is part of the model's
address, which separates their requests. Prints the values that the code returns, as JSON, in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MODEL = "judge-1"


def browser_use(checkout: Path, folder: Path, url: str) -> Any:
    sys.path.insert(0, str(checkout))
    from browser_use.agent.views import (  # pyright: ignore[reportMissingImports]
        ActionResult,
        AgentHistory,
        AgentHistoryList,
    )
    from browser_use.browser.views import BrowserStateHistory  # pyright: ignore[reportMissingImports]
    from evaluation.auto_eval_browser_use import (  # pyright: ignore[reportMissingImports]
        auto_eval_by_gpt4o,
    )
    from langchain_openai import ChatOpenAI  # pyright: ignore[reportMissingImports]

    episode = json.loads((folder / "episode.json").read_text())
    shots = sorted(folder.glob("*.png"))
    steps = []
    for number, shot in enumerate(shots, start=1):
        last = number == len(shots)
        result = ActionResult(is_done=last, success=True if last else None, extracted_content="")
        if last:
            result.extracted_content = episode["answer"]
        state = BrowserStateHistory(
            url="", title="", tabs=[], interacted_element=[None], screenshot_path=str(shot)
        )
        steps.append(AgentHistory(model_output=None, result=[result], state=state))
    client = ChatOpenAI(model=MODEL, base_url=url, api_key="key", temperature=0)
    return asyncio.run(auto_eval_by_gpt4o(AgentHistoryList(history=steps), episode["task"], client))[0]


def webjudge(checkout: Path, folder: Path, url: str) -> Any:
    return _online_mind2web(checkout, folder, url, "WebJudge_Online_Mind2Web_eval")


def agenttrek(checkout: Path, folder: Path, url: str) -> Any:
    return _online_mind2web(checkout, folder, url, "AgentTrek_eval")


def _online_mind2web(checkout: Path, folder: Path, url: str, method: str) -> Any:
    client = _fara_client(checkout, folder, url)
    from webeval.benchmarks import OnlineM2WBenchmark  # pyright: ignore[reportMissingImports]

    result = json.loads((folder / "result.json").read_text())
    shots = sorted((folder / "trajectory").iterdir(), key=lambda path: int(path.name.partition("_")[0]))
    candidate = SimpleNamespace(
        actions=result["action_history"],
        thoughts=result["thoughts"],
        screenshots=shots,
        latest_screenshot=shots[-1],
    )
    benchmark = OnlineM2WBenchmark(data_dir=folder / "data", eval_method=method, model_client=client)
    return benchmark.evaluator({"question": result["task"]}, candidate)[0]


def universal_verifier(checkout: Path, folder: Path, url: str) -> Any:
    client = _fara_client(checkout, folder, url)
    from webeval.benchmarks import WebTailBenchBenchmark  # pyright: ignore[reportMissingImports]
    from webeval.trajectory import Trajectory  # pyright: ignore[reportMissingImports]

    task = json.loads((folder / "task.json").read_text())
    benchmark = WebTailBenchBenchmark(str(folder / "data"), model_client=client)
    return benchmark.evaluator(task, Trajectory.from_folder(folder))[0]


def _fara_client(checkout: Path, folder: Path, url: str) -> Any:
    sys.path[:0] = [str(checkout / "webeval/src"), str(checkout / "src")]
    # Its retrying client counts tokens with a table that it downloads.
    from webeval.oai_clients import create_client_from_file  # pyright: ignore[reportMissingImports]

    settings = {"model": MODEL, "base_url": url, "api_key": "key"}
    path = folder / "endpoint.json"
    path.write_text(
        json.dumps({"CHAT_COMPLETION_PROVIDER": "openai", "CHAT_COMPLETION_KWARGS_JSON": settings})
    )
    return create_client_from_file(path)


def main() -> None:
    method, checkout, folder, url = sys.argv[1:]
    values = os.fdopen(os.dup(1), "w")
    # The judges print.
    os.dup2(2, 1)
    call = {one.__name__: one for one in (browser_use, webjudge, agenttrek, universal_verifier)}[method]
    found = [
        call(Path(checkout), episode, f"{url}/{episode.name}/v1")
        for episode in sorted(Path(folder).iterdir())
    ]
    values.write(json.dumps(found))
    values.flush()


if __name__ == "__main__":
    main()
