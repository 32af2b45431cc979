"""An online run on live pages whose judge is silent for half of the episodes."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import MANIFEST
from rmsweb_jax.training.metrics import METRICS_FILE, read_rows
from tests.evaluation.rows import write_lines
from tests.judges.verdicts import outcome
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer

SITE = "http://buttons.test"
BUTTONS = ("Ok", "Cancel", "Submit", "Next", "Back", "Login", "Yes", "No")
SAMPLES = 4
# One call a verdict: the second one of a silent judge would be answered here.
_JUDGE = {"kind": "chat", "model": "judge", "calls": 1, "timeout_s": 2.0}


class Site(http.server.BaseHTTPRequestHandler):
    """A page with one button, by its path."""

    def do_GET(self) -> None:
        name = unquote(self.path.strip("/"))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        over = "document.body.innerHTML = '<p>Thank you</p>'"
        page = f'<title>Click Button Task</title><button id=subbtn onclick="{over}">{name}</button>'
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None: ...


def measure_judge(root: Path, model: Path, prompts: Path) -> dict[str, Any]:
    """Plays an iteration; returns how its episodes ended and which of them have a reward."""
    root.mkdir(parents=True, exist_ok=True)
    tasks = [{"website": f"{SITE}/{name}", "objective": f'Click on the "{name}" button.'} for name in BUTTONS]
    file, workdir = write_lines(root / "tasks.jsonl", tasks), root / "run"
    verdicts = [
        completion(outcome("success")),
        Answer(silent=True),
        completion("No.\nFAILURE"),
        Answer(silent=True),
    ]
    # The first call of a run tests the judge.
    answers = [verdicts[0], *(verdicts * len(BUTTONS) * SAMPLES)]
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server,
        ModelServer(answers) as judge,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "model": model,
            "prompts": prompts,
            "pages": "()",
            "tasks_file": file,
            "held_out": 0.0,
            "iterations": 1,
            "num_samples": SAMPLES,
            "gen_batch_groups": len(BUTTONS),
            "train_groups": len(BUTTONS),
            "replays": 0,
            "play.limits.max_steps": 6,
            "max_masked": 0.9,
            **{f"play.judge.{name}": value for name, value in _JUDGE.items()},
            "play.judge.base_url": f"{judge.url}/v1",
            "play.guard.hosts": f"('buttons.test=127.0.0.1:{server.server_port}',)",
            "play.guard.private": f"('{SITE}',)",
        }
        values = [f"--config.{name}={value}" for name, value in settings.items()]
        command = [
            sys.executable,
            "-m",
            "experiments.train_rl",
            "--config=configs/rl.py:smoke,online",
            *values,
        ]
        done = subprocess.run([*command, f"--workdir={workdir}"], capture_output=True, text=True)
        server.shutdown()
    if done.returncode:
        raise SystemExit(f"error: {done.stderr[-2000:]}")
    (row,) = read_rows(workdir / METRICS_FILE)
    (manifest,) = workdir.glob(f"episodes/*/{MANIFEST}")
    played = list(read_dataset(manifest.parent, Trajectory))
    ended = [one for one in played if one.outcome == "done"]
    return {
        "episodes": len(played),
        "ended": len(ended),
        "judged": sum(bool(one.judge) for one in ended),
        "masked": row.get("episodes/masked/no verdict", 0),
        "scored": row["episodes/scored"],
        "optimizer_steps": row["optimizer_steps"],
    }
