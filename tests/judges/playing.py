"""Plays the table of judges' words: an endpoint that says them, the API's own client, the judge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal, get_args

from collection.judges.base import Verdict
from collection.judges.build import METHODS
from tests.judges.runs import rubric_notes, run
from tests.judges.server import Pictures, model_at
from tests.judges.verdicts import Said
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer

Api = Literal["chat", "gemini"]
APIS: tuple[Api, ...] = get_args(Api)


@dataclasses.dataclass(frozen=True)
class JudgeRun:
    """A judge's reading of the words of an endpoint."""

    said: Said
    api: Api
    verdict: Verdict

    @property
    def fits(self) -> bool:
        score, wanted = self.verdict.score, self.said.score
        same = score == wanted if score is None or wanted is None else math.isclose(score, wanted)
        return self.verdict.success is self.said.success and same


def play_all(table: Iterable[Said]) -> list[JudgeRun]:
    """Every row, through both APIs."""
    table, played = list(table), []
    for api in APIS:
        with PromptServer(lambda _: Answer()) as server:
            for said in table:
                server.reply_to = lambda prompt, said=said, api=api: said.answer(api)
                # A model with calls of its own, since all ask the same.
                judge = METHODS[said.judge](model_at(server, api), rubric_notes())
                played.append(JudgeRun(said, api, judge.judge(run(), Pictures())))
    return played
