"""vLLM's and SGLang's servers as the actor's, by a package of their name that records how it was started."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from collection.fleet import policy_server
from collection.fleet.config import CollectSettings, resolved
from collection.fleet.policy_server import serve_actor
from collection.fleet.worker import credentials
from collection.llm.calls import own_address
from collection.llm.config import ActorConfig
from configs.collect import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config

SERVER = """
import http.server, json, pathlib, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(sys.argv[1:]).encode())

    def log_message(self, *_):
        pass

port = next(int(flag.partition("=")[2]) for flag in sys.argv if flag.startswith("--port="))
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def install(folder: Path, module: str, code: str) -> None:
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(code)


def actor(**changes) -> ActorConfig:
    return ActorConfig(**({"kind": "policy", "model": "."} | changes)).resolve()


@pytest.mark.parametrize(
    ("server", "module", "folder_flag"),
    [
        ("vllm", "vllm.entrypoints.openai.api_server", "--model"),
        ("sglang", "sglang.launch_server", "--model-path"),
    ],
)
def test_another_server_is_started_with_its_flags(server, module, folder_flag, tmp_path, monkeypatch):
    install(tmp_path / "packages", module, SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    model = tmp_path / "model"
    model.mkdir()
    settings = {"max-model-len": 4096, "enforce-eager": True, "limit": {"image": 1}}
    config = actor(model=str(model), server=server, server_flags=settings)
    with serve_actor(config, tmp_path / "work") as ready:
        given = httpx.get(ready.base_url.removesuffix("/v1") + "/health", timeout=3000).json()
    assert f"{folder_flag}={model}" in given and f"--served-model-name={model}" in given
    assert "--host=127.0.0.1" in given and "--enforce-eager" in given and "--max-model-len=4096" in given
    assert json.loads(next(flag for flag in given if "limit" in flag).partition("=")[2]) == {"image": 1}


def test_a_server_that_other_machines_reach_has_a_key_and_an_address_of_this_one(tmp_path, monkeypatch):
    install(tmp_path / "packages", "vllm.entrypoints.openai.api_server", SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setattr(policy_server, "_KEY", "RMSWEB_TEST_KEY")
    monkeypatch.setenv("RMSWEB_TEST_KEY", "k" * 64)
    config = actor(model=str(tmp_path), server="vllm")
    with serve_actor(config, tmp_path / "work", reachable=True) as ready:
        port = ready.base_url.rpartition(":")[2].removesuffix("/v1")
        given = httpx.get(f"http://127.0.0.1:{port}/health", timeout=3000).json()
    assert ready.base_url == f"http://{own_address()}:{port}/v1" and ready.api_key_env == "RMSWEB_TEST_KEY"
    assert "--host=0.0.0.0" in given and f"--api-key={'k' * 64}" in given


def test_actors_on_other_machines_get_the_keys_of_this_one():
    config = get_config("smoke")
    config.actor.kind = "scripted"
    settings = resolved(from_config(CollectSettings, config))
    actor = settings.actor.model_copy(update={"api_key_env": "ACTOR_KEY"})
    settings = settings.model_copy(update={"actor": actor, "secrets": ("SHOP", "BANK=*.example.com")})
    wanted = {"ACTOR_KEY": "a", "SHOP": "c", "BANK": "d", "OPENAI_ORG_ID": "e"}
    # The judge runs on this machine.
    assert credentials(settings, wanted | {"JUDGE_KEY": "b", "HOME": "/root", "PATH": "/bin"}) == wanted


@pytest.mark.parametrize(
    ("changes", "code", "line"),
    [
        ({}, None, r"^config\.actor\.server=sglang: .* has no package sglang.*$"),
        ({"server_python": sys.executable}, None, "has no package sglang"),
        ({"server_python": "/nowhere/python"}, None, "has no package sglang"),
        ({"model": "tiny_base"}, SERVER, "no folder, which sglang needs"),
        ({}, "raise SystemExit('no memory')", "no memory"),
        ({"kind": "scripted"}, SERVER, r"only config\.actor\.kind=policy starts a server"),
    ],
    ids=["not installed", "not in that Python", "no such Python", "packaged model", "it ends", "no policy"],
)
def test_a_server_that_cannot_be_started(changes, code, line, tmp_path, monkeypatch):
    if code:
        install(tmp_path / "packages", "sglang.launch_server", code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    with pytest.raises(UserError, match=line):
        serve_actor(
            actor(**{"model": str(tmp_path), "server": "sglang"} | changes), tmp_path / "work"
        ).__enter__()
