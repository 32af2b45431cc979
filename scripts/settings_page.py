"""The documentation's page of all settings: what `--help` of each script prints (a hook of mkdocs.yml)."""

import subprocess
import sys
from typing import Any

from mkdocs.structure.files import File, Files

SCRIPTS = (
    *("collect", "build_sft", "train_sft", "mine", "train_rl", "train_rl:8b,online", "evaluate"),
    *("evaluate:webvoyager", "judge", "verify_mined", "make_tasks", "failure_prior", "import_runs"),
    *("export_traces", "export", "serve", "report"),
)
FILES = {"train_sft": "sft", "train_rl": "rl"}


def on_files(files: Files, config: Any) -> Files:
    text = "# All settings\n\nWhat `--help` of each script prints.\n"
    for name in SCRIPTS:
        script, colon, variant = name.partition(":")
        command = [sys.executable, "-m", f"experiments.{script}", "--help"]
        command += [f"--config=configs/{FILES.get(script, script)}.py:{variant}"] if colon else []
        help_ = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        text += f"\n## {script}{f' ({variant})' if variant else ''}\n\n```text\n{help_}```\n"
    files.append(File.generated(config, "settings.md", content=text))
    return files
