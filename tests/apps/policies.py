"""Policies written by hand, one for each template of tasks at the applications."""

from __future__ import annotations

import importlib

from tests.apps.actor import Policy


def policies_of(application: str) -> dict[str, Policy]:
    """Returns an application's policies by template."""
    return importlib.import_module(f"tests.apps.{application}_policies").POLICIES


def ways_of(application: str) -> list[tuple[str, Policy, bool]]:
    """Returns other ways to do tasks: the template, a policy, and whether it should be paid."""
    return importlib.import_module(f"tests.apps.{application}_policies").OTHER_WAYS
