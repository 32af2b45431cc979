"""Turns search queries into executable tasks with a model (RMSWeb, "Seed tasks")."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from collection.llm.model import Model, ModelReply, ModelRequest, call_seed
from collection.tasks.files import ParsedLines, read_lines, task_id
from collection.tasks.websites import public_address, site_of
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import CallUsage, Message, Record, Task, TextPart

# The eleven categories of seed tasks (RMSWeb, "Seed tasks"), each with a note for the model.
CATEGORIES: dict[str, str] = {
    "E-Commerce": "products: finding, comparing, filtering, carts, order policies",
    "Travel & Hospitality": "flights, hotels, trains, car hire, sights, itineraries",
    "Government": "public services, laws, permits, taxes, statistics, libraries and parks",
    "Entertainment & Gaming": "films, music, games, sport, events, tickets, recipes and hobbies",
    "Health": "conditions, medicines, providers, fitness, nutrition",
    "Corporate & Careers": "companies, their products and people, jobs, business software",
    "Finance": "banking, markets, insurance, currencies, calculators of money",
    "Education": "courses, schools, papers, reference works, documentation",
    "Real Estate": "homes and rooms to buy or rent, prices of homes, mortgages of a home",
    "Local & Home Services": "restaurants, shops, repairs and services near a place, vehicles",
    "Other": "whatever fits nowhere else",
}

MAX_QUERY_CHARS = 1000
# One retry if an answer does not follow the schema.
_ATTEMPTS = 2

# Reasons why a query gives no task: the model rejects it; there was no answer (blocked, cut off); the answer
# does not follow the schema; its website is not on the public web.
DropKind = Literal["not_executable", "no_answer", "invalid_answer", "bad_website"]
_Text = Annotated[str, StringConstraints(strip_whitespace=True)]


class Query(BaseModel):
    """A search query; `locale` is for example `de-AT`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS)]
    locale: _Text | None = None

    @property
    def key(self) -> str:
        """Key that equal queries share."""
        return hashlib.sha256(json.dumps([self.query, self.locale]).encode()).hexdigest()[:16]


class WrittenTask(Record):
    """The result for a query: a task, or the reason why there is none; a line of the journal.

    Attributes:
      key: key of the query.
      drop: None when there is a task.
    """

    key: str
    task: Task | None = None
    drop: DropKind | None = None
    reason: str = ""
    usage: CallUsage = CallUsage()


class _Proposal(BaseModel):
    """The model's answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    executable: bool
    drop_reason: _Text
    website: _Text
    objective: _Text
    constraints: list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]]
    category: str


def read_queries(path: Path) -> ParsedLines[Query]:
    """Reads queries, one per line; in a `.jsonl` file, objects with `query` and optionally `locale`.

    Raises:
      UserError: the file cannot be read, or has no good line.
    """
    if path.suffix == ".jsonl":
        return read_lines(
            path, Query.model_validate_json, "search queries (JSON objects with query, one a line)"
        )
    return read_lines(path, lambda line: Query(query=line), "search queries, one a line")


def write_task(query: Query, model: Model, today: datetime.date) -> WrittenTask:
    """Asks the model for the task of a query.

    Args:
      today: date from which relative dates count.

    Raises:
      UserError: the model cannot be reached, or the budget is spent.
    """
    usage, written = CallUsage(), None
    for attempt in range(_ATTEMPTS):
        reply = model.complete(_request(query, attempt, today))
        usage = _add(usage, reply.usage)
        written = _read(query, reply)
        if written.drop not in ("no_answer", "invalid_answer"):
            break
    assert written is not None
    return written.model_copy(update={"usage": usage})


def answer_schema() -> dict[str, Any]:
    """Returns the JSON schema of the model's answer."""
    schema = plain_schema(_Proposal.model_json_schema())
    schema["properties"]["category"]["enum"] = list(CATEGORIES)
    return schema


def _request(query: Query, attempt: int, today: datetime.date) -> ModelRequest:
    text = _template().render(
        query=query.query,
        locale=query.locale or "",
        today=f"{today:%A}, {today.isoformat()}",
        categories=CATEGORIES,
    )
    message = Message(role="user", content=(TextPart(text=text),))
    # The attempt is part of the seed, so that the second answer can differ.
    return ModelRequest((message,), "task", call_seed("task", query.key, attempt), schema=answer_schema())


def _read(query: Query, reply: ModelReply) -> WrittenTask:
    drop = functools.partial(WrittenTask, key=query.key)
    if reply.problem:
        return drop(drop="no_answer", reason=reply.problem)
    try:
        proposal = _Proposal.model_validate_json(_bare(reply.text))
    except ValidationError as error:
        first = error.errors()[0]
        return drop(drop="invalid_answer", reason=f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200])
    if not proposal.executable:
        return drop(drop="not_executable", reason=proposal.drop_reason or "no reason given")
    if proposal.category not in CATEGORIES or not proposal.objective:
        what = "objective is empty" if not proposal.objective else f"category {proposal.category[:40]!r}"
        return drop(drop="invalid_answer", reason=what)
    try:
        website = public_address(proposal.website)
    except ValueError as error:
        return drop(drop="bad_website", reason=str(error))
    objective, constraints = _naming(proposal.objective, website), tuple(proposal.constraints)
    task = Task(
        task_id=task_id(website, objective, constraints),
        website=website,
        objective=objective,
        constraints=constraints,
        category=proposal.category,
        site=site_of(website),
    )
    return WrittenTask(key=query.key, task=task)


def _naming(objective: str, website: str) -> str:
    """Returns the objective; prefixes the site if the text does not name it."""
    site = site_of(website)
    letters = "".join(filter(str.isalnum, objective.casefold()))
    # "home-depot.com" counts as named by "Home Depot".
    name = "".join(filter(str.isalnum, site.split(".")[0].casefold()))
    return objective if name in letters else f"On {site}: {objective}"


def _bare(text: str) -> str:
    """Removes the Markdown fence that some models put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text.removeprefix("```").removeprefix("json").removesuffix("```").strip()
    return text


def _add(one: CallUsage, other: CallUsage) -> CallUsage:
    return CallUsage(**{name: getattr(one, name) + getattr(other, name) for name in CallUsage.model_fields})


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.tasks", "prompts")
    # Chat text, not HTML: escaping would change what is quoted.
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template("task.j2")
