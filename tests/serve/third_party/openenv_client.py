"""OpenEnv's probe of a server for training: `python openenv_client.py URL MODEL`."""

from __future__ import annotations

import sys

import checks
from openenv.core.harness.capture.validate_llm import validate_llm

URL, MODEL = sys.argv[1:3]
report = validate_llm(URL, MODEL)


def probe() -> str:
    fatal = [finding for finding in report.findings if "FATAL" in finding]
    assert report.ok and not fatal, report
    return report.summary()


def level() -> str:
    assert report.capture_level == "tokens", report
    return f"{report.capture_level}; {report.n_prompt_ids} prompt ids, {report.n_completion_ids} of the reply"


def no_changes() -> str:
    assert not report.param_fixes, report.param_fixes
    return "no parameter was refused"


def tools() -> str:
    assert report.tool_support in ("ok", "no-tool-call", "unknown"), report
    return f"tool_support={report.tool_support}"


def mode() -> str:
    assert report.logprobs_mode != "raw", report
    return f"logprobs_mode={report.logprobs_mode}; other findings: {report.findings}"


checks.run(
    "openenv",
    {
        "validate_llm: no FATAL": probe,
        "capture level tokens": level,
        "parameters": no_changes,
        "tools accepted": tools,
        "log-probabilities of the sampling distribution": mode,
    },
)
