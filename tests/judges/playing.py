"""Plays the table of judges' words: an endpoint that says them, the API's own client, the judge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal, get_args

from collection.judges.base import Verdict
from collection.judges.build import METHODS
from collection.llm.cached import CachedModel
from tests.judges.runs import rubric_notes, run
from tests.judges.server import USUAL, Pictures, kind_of, model_at
from tests.judges.verdicts import Said
from tests.llm.answers import candidate, completion
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
            model = model_at(server, api)
            for said in table:
                server.reply_to = lambda prompt, said=said, api=api: _reply(said, api, prompt)
                # A cache of its own, since all ask the same.
                with CachedModel(model, None) as cached:
                    judge = METHODS[said.judge](cached, rubric_notes())
                    played.append(JudgeRun(said, api, judge.judge(run(), Pictures())))
    return played


def _reply(said: Said, api: str, prompt: str) -> Answer:
    usual = USUAL.get(kind_of(prompt))
    if usual is None:
        return said.answer(api)
    return completion(usual) if api == "chat" else candidate([{"text": usual}])
