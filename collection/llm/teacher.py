"""A model as the agent's teacher."""

from __future__ import annotations

from typing import Any

from collection.llm.base import (
    ExtractionRequest,
    ReflectionRequest,
    TeacherReply,
    TeacherRequest,
    call_seed,
)
from collection.llm.messages import extraction_messages, reflection_messages
from collection.llm.model import ImageSource, Model, ModelRequest, Purpose
from rmsweb_jax.actions.json_schema import reply_schema
from rmsweb_jax.records.schema import Message


class ModelTeacher:
    """Asks a model for replies, guidance and extractions."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, request: TeacherRequest) -> TeacherReply:
        seed = call_seed("reply", request.task_id, request.attempt, request.step)
        schema = reply_schema(request.actions)
        return self._ask("reply", request.messages, seed, request.images, schema)

    def reflect(self, request: ReflectionRequest) -> TeacherReply:
        seed = call_seed("reflect", request.task_id, request.attempt)
        return self._ask("reflect", reflection_messages(request), seed)

    def extract(self, request: ExtractionRequest) -> TeacherReply:
        key = (request.task_id, request.attempt, request.step, request.number)
        return self._ask("extract", extraction_messages(request), call_seed("extract", *key))

    def _ask(
        self,
        purpose: Purpose,
        messages: tuple[Message, ...],
        seed: int,
        images: ImageSource | None = None,
        schema: dict[str, Any] | None = None,
    ) -> TeacherReply:
        answer = self._model.complete(ModelRequest(messages, purpose, seed, images, schema))
        return TeacherReply(answer.text, answer.usage, answer.problem, messages)
