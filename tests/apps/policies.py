"""Policies written by hand, one for each template of tasks at the applications."""

from __future__ import annotations

import importlib

from tests.apps.actor import Policy


def policies_of(application: str) -> dict[str, Policy]:
    """Returns an application's policies by template."""
    return importlib.import_module(f"tests.apps.{application}_policies").POLICIES
