"""Each example of docs/examples, run as a command in an empty folder."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rmsweb_jax import ImageStore, Policy, RlPrompt, SftSample, UserError, read_dataset, write_dataset
from rmsweb_jax.records.tools import check_dataset
from tests.llm.answers import completion
from tests.llm.server import ModelServer
from tests.policies import REPLY, random_messages

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
RUN = {
    "add_an_ablation",
    "browse_with_any_model",
    "chat_with_a_policy",
    "foreign_adapter",
    "my_own_loss",
    "own_actor",
    "own_chats",
    "own_judge",
    "own_site",
    "read_a_dataset",
    "score_a_reply",
}


def run(name: str, folder: Path, *arguments: object) -> str:
    """Runs an example and returns what it prints."""
    return run_python(folder, EXAMPLES / f"{name}.py", *arguments)


def run_python(folder: Path, *arguments: object, path: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{path}"},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_each_example_is_tested_short_and_has_its_command():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == RUN
    for name in RUN:
        text = (EXAMPLES / f"{name}.py").read_text()
        assert len(text.splitlines()) <= 40 and text.startswith('"""')
        assert f"python docs/examples/{name}.py" in text or "PYTHONPATH=docs/examples python -m" in text


@pytest.mark.slow
def test_chat_with_a_policy(tmp_path):
    lines = run("chat_with_a_policy", tmp_path).splitlines()
    assert lines[0].startswith('{"evaluation_previous_goal"')
    assert lines[1] == "Click the button." and lines[4] == "Type your name." and len(lines) == 7


def test_score_a_reply(tmp_path):
    rows = run("score_a_reply", tmp_path).splitlines()
    assert [row.partition("reward ")[2] for row in rows] == ["1.0", "0.3", "0.0", "0.0"]


@pytest.mark.slow
def test_score_a_reply_by_a_policy(tmp_path, random_policy):
    rows = run("score_a_reply", tmp_path, random_policy).splitlines()
    assert all(float(re.findall(r"log-probability +(\S+)", row)[0]) < 0 for row in rows)


def test_read_a_dataset(tmp_path):
    printed = run("read_a_dataset", tmp_path)
    assert (
        "1 records of type SftSample" in printed
        and '"sample_id": "example-1"' in printed
        and "(64, 48)" in printed
    )
    folder = re.findall(r"^(\S+): 1 records", printed)[0]
    assert run("read_a_dataset", tmp_path, folder) == printed


def test_own_site_actor_and_judge(tmp_path):
    """A site and an actor of one's own, and a judge of the runs after the fact."""
    assert run("own_site", tmp_path, "runs") == "3 of 3 tasks solved in 9 steps\n"
    printed = run("own_judge", tmp_path, "runs", "judged").splitlines()
    assert printed[2] == "counter/2#teacher-1: True (The answer is on the page of step 4.)"
    assert [run.judge for run in read_dataset(tmp_path / "judged")] == ["grounded"] * 3


@pytest.mark.slow
def test_own_actor_and_judge_by_their_commands(tmp_path):
    places = {"WORKDIR": "runs", "RUNS": "runs", "data/judged": "sheet"}
    for example, script in (("own_actor", "evaluate"), ("own_judge", "judge")):
        text = (EXAMPLES / f"{example}.py").read_text().replace("\\\n", " ")
        (flags,) = re.findall(rf"-m experiments.{script} (.*)", text)
        for name, place in places.items():
            flags = flags.replace(f"={name}", f"={place}")
        small = ("--config.runs=1", "--config.fleet.workers=1") if script == "evaluate" else ()
        run_python(tmp_path, "-m", f"experiments.{script}", *shlex.split(flags), *small, path=EXAMPLES)
    report = json.loads((tmp_path / "runs/report.json").read_bytes())
    assert report["pass_at_1"]["mean"] == 1.0 and report["tasks"] == 3
    sheet = json.loads((tmp_path / "sheet/report.json").read_bytes())
    assert sheet["judges"]["own_judge:Grounded"]["passed"] == 3


def test_foreign_adapter(tmp_path, random_policy):
    """One on all linear layers, with the names of PEFT, whose merged model is loaded in place of its base."""
    base, rng, tensors = load_file(random_policy / "model.safetensors"), np.random.default_rng(0), {}
    for name, weight in base.items():
        if ".layers." in name and weight.ndim == 2:
            for letter, shape in (("A", (4, weight.shape[1])), ("B", (weight.shape[0], 4))):
                key = f"base_model.model.{name.removesuffix('.weight')}.lora_{letter}.weight"
                tensors[key] = rng.standard_normal(shape, np.float32)
    (tmp_path / "adapter").mkdir()
    save_file(tensors, tmp_path / "adapter/adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
    settings |= {"base_model_name_or_path": str(random_policy)}
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(settings))
    run("foreign_adapter", tmp_path, "adapter", "merged")
    merged = load_file(tmp_path / "merged/model.safetensors")
    changed = {name for name in base if not np.array_equal(merged[name], base[name])}
    assert len(changed) == len(tensors) / 2 and merged.keys() == base.keys()
    with pytest.raises(UserError, match=rf"this is an adapter of {random_policy}: merge it first"):
        Policy.load(tmp_path / "adapter")


def write_prompts(folder: Path, count: int) -> None:
    images = ImageStore(folder)
    prompts = [
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"t{number}",
            site="s",
            category="ui_navigation",
            messages=random_messages(number, images, repeats=1),
            target=REPLY % 1,
        )
        for number in range(count)
    ]
    write_dataset(folder, prompts, "rl_prompts")


def test_add_an_ablation(tmp_path, random_policy):
    write_prompts(tmp_path / "prompts", 12)
    printed = run("add_an_ablation", tmp_path, "prompts", "run", random_policy)
    assert re.search(r"first: held-out reward 0\.\d+\nfinal: held-out reward 0\.\d+", printed)
    assert (tmp_path / "run/export/config.json").exists()


LETTERS = """
def small(reply, target):
    return 1.0 if reply == target else sum(map(str.islower, reply)) / max(len(reply), 1)
"""


def test_my_own_loss(tmp_path, random_policy):
    """Its command, for two steps and with another reward, since random weights give no reply of an agent."""
    write_prompts(tmp_path / "prompts", 12)
    (tmp_path / "letters.py").write_text(LETTERS)
    (flags,) = re.findall(r"(--config=.*?)\n\n", (EXAMPLES / "my_own_loss.py").read_text(), re.DOTALL)
    places = {"PROMPTS": tmp_path / "prompts", "MODEL": random_policy, "WORKDIR": tmp_path / "run"}
    given = [flag for flag in flags.replace("demo", "smoke").split() if flag != "\\"]
    for name, place in places.items():
        given = [flag.replace(f"={name}", f"={place}") for flag in given]
    small = {"iterations": 2, "eval_every": 2, "max_response_tokens": 4, "max_prompt_tokens": 512}
    given += [f"--config.{key}={value}" for key, value in small.items()]
    command = ("-m", "experiments.train_rl", *given, "--config.reward=letters:small")
    assert "trained 2 iterations" in run_python(tmp_path, *command, path=EXAMPLES)
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["loss"] == "my_own_loss:dr_grpo" and report["gate"] == "my_own_loss:without_std"
    assert report["own_files"].keys() == {"objective", "gate", "reward"} and report["optimizer_steps"] >= 2
    assert report["first"]["norm/update"] > 0 and report["final"]["norm/update"] > 0


def test_own_chats(tmp_path, random_policy):
    printed = run("own_chats", tmp_path, "work", random_policy).splitlines()
    assert re.fullmatch(r"16 replies, loss [0-9.]+", printed[0]) and len(printed) > 1
    (corpus,) = (tmp_path / "work/run/chats").iterdir()
    assert {sample.kind for sample in read_dataset(corpus, SftSample)} == {"text"}
    # Images and all: what `records verify` looks at.
    check = check_dataset(corpus)
    assert (check.records, check.images, check.problems) == (16, 16, [])


def test_the_readme(tmp_path, random_policy):
    """The Python of the README, with a folder of a model as its comment says, where the demo has run."""
    folder = tmp_path / "runs/demo/mine/prompts"
    write_prompts(folder, 2)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code.count('"tiny_base"') == 1  # test_chat_with_a_policy loads it, and it is much slower.
    lines = run_python(tmp_path, "-c", code.replace("tiny_base", str(random_policy))).splitlines()
    # What random weights say may have several lines.
    assert len(lines) > 2 and all(re.fullmatch(r"ui_navigation \[[0-9., ]+\]", line) for line in lines[-2:])


class Page(http.server.BaseHTTPRequestHandler):
    """A page with a link, and the page behind it."""

    def do_GET(self) -> None:
        body = b"<h1>Opened</h1>" if self.path == "/next" else b"<a href='/next'>Next page</a>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_browse_with_any_model(tmp_path, site, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    thought = {"evaluation_previous_goal": "Start", "memory": "", "next_goal": "Go on"}
    actions = (
        {"click_element_by_index": {"index": 1}},
        {"done": {"text": "It was opened.", "success": True}},
    )
    answers = [completion(json.dumps({**thought, "action": [action]})) for action in actions]
    with ModelServer(answers) as server:
        printed = run(
            "browse_with_any_model", tmp_path, site, "Open the page.", f"{server.url}/v1", "a-model", site
        )
        first, second = server.calls
    assert printed.splitlines()[-1] == "done: It was opened."
    assert f"2 {site}/next" in printed
    headers = {name.lower(): value for name, value in first.headers.items()}
    assert first.path == "/v1/chat/completions" and headers["authorization"] == "Bearer a-key"
    assert first.body["model"] == "a-model" and first.body["response_format"]["type"] == "json_schema"
    assert "Open the page." in str(first.body["messages"]) and "data:image/png" in str(first.body)
    assert "Opened" in str(second.body["messages"])
