"""How models are held to the JSON schema of what they are asked for."""

from __future__ import annotations

from typing import Literal

# By its decoder; to some JSON only; or by the prompt alone.
Structured = Literal["schema", "json", "off"]
