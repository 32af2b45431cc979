"""All cases."""

from __future__ import annotations

import dataclasses

from tests.llm.answers import Case
from tests.llm.chat_cases import chat_cases
from tests.llm.gemini_cases import gemini_cases


def all_cases() -> list[Case]:
    return [*gemini_cases(), *(dataclasses.replace(case, api="chat") for case in chat_cases())]
