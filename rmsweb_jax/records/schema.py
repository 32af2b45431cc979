"""What is written to disk: the contract between the browser fleet and the accelerators.

Every record is an immutable pydantic model; its JSON (`model_dump_json`) is one ArrayRecord entry.
Screenshots are not in the records: an `ImagePart` names a PNG by the SHA-256 of its bytes, and the
PNG is stored once in the data set's `images/` folder (see `rmsweb_jax.records.images`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# Raised with every change of a record's fields. No reader exists for other versions.
SCHEMA_VERSION = 4


class Record(BaseModel):
    """Base of everything stored: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(Record):
    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    type: Literal["image"] = "image"
    sha256: str


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Record):
    """One chat message. Images stand in `content` where the model sees them."""

    role: Literal["system", "user", "assistant"]
    content: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Task(Record):
    """Something to do on the web.

    Attributes:
      task_id: unique in the project, for example `miniwob/login-user/17`.
      site: what results are grouped by: a MiniWoB++ page name, or a registrable domain.
      seed: the page's random seed where the environment has one.
    """

    task_id: str
    website: str
    objective: str
    constraints: tuple[str, ...] = ()
    category: str = "Other"
    environment: Literal["web", "miniwob"] = "web"
    site: str = ""
    seed: int | None = None


class Element(Record):
    """A visible element as the agent saw it; `index` is None when it cannot be acted on."""

    index: int | None
    tag: str
    text: str
    attributes: dict[str, str] = {}


class Tab(Record):
    tab_id: str
    url: str
    title: str


class Observation(Record):
    """The page before a step.

    Attributes:
      page_text: the element lines exactly as shown to the agent.
      elements: visible elements in page order, with text of their own.
      fingerprint: hash of the URL and the page text without indices; equal pages compare equal.
      screenshot: SHA-256 of the PNG with boxes, None when it could not be taken.
      pages_above, pages_below: scroll distance in viewport heights.
    """

    url: str
    title: str
    tabs: tuple[Tab, ...]
    current_tab: str
    page_text: str
    elements: tuple[Element, ...]
    fingerprint: str
    screenshot: str | None = None
    pages_above: float = 0.0
    pages_below: float = 0.0


class ActionResult(Record):
    """What one executed action did.

    Attributes:
      text: the `Result:` line that the agent sees; an error's text when `error`.
      changed: whether the page, a file or the tab set changed.
      output: one-step content for `<read_state>` (extractions, file reads).
    """

    action: str
    text: str
    error: bool = False
    changed: bool = False
    output: str = ""


class CallUsage(Record):
    """One LLM call: tokens, seconds and cost in US dollars (0 when the price is unknown)."""

    prompt_tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0


class ExtractionCall(Record):
    """The page-reading LLM call made by `extract_structured_data`."""

    messages: tuple[Message, ...]
    response: str
    usage: CallUsage = CallUsage()


IncidentKind = Literal["injection", "refused", "popup", "download", "dialog", "page_cut"]


class Incident(Record):
    """An event that a reader of the run should know.

    Attributes:
      kind: `injection` (text of the page that gives the agent orders), `refused` (a request or an address
        the guard did not let through), `popup` (a window that was closed), `download`, `dialog` (dismissed),
        `page_cut` (a page too large to be shown whole).
      detail: one line, without secrets.
    """

    kind: IncidentKind
    detail: str


class Step(Record):
    """One decision.

    Attributes:
      messages: what the actor was sent, WITHOUT any reflection guidance: training reads these.
      response: the actor's raw reply.
      error: why the reply could not be used (empty when it could); then `results` is empty.
      repaired: the reply's JSON had to be repaired before it parsed.
      discarded: raw replies that had no action and were asked for again; `usage` counts them.
      incidents: what happened from the look before this decision until its actions were done.
    """

    number: int
    observation: Observation
    messages: tuple[Message, ...]
    response: str
    results: tuple[ActionResult, ...] = ()
    error: str = ""
    repaired: bool = False
    extractions: tuple[ExtractionCall, ...] = ()
    usage: CallUsage = CallUsage()
    incidents: tuple[Incident, ...] = ()
    discarded: tuple[str, ...] = ()


Outcome = Literal["done", "max_steps", "failures", "timeout", "blocked", "captcha", "unreachable", "crashed"]


class Trajectory(Record):
    """One attempt at a task, successful or not.

    Attributes:
      trajectory_id: `{task_id}#{actor}-{attempt}`; unique, so a repeated write can be recognised.
      actor: `teacher` in collection, otherwise the policy's label (`base`, `sft`, `rl`).
      model: which model or program answered, for example `scripted` or `gemini-3-pro`.
      attempt: reflection round (1-based) or evaluation run (1-based).
      outcome: how the episode ended; `done`: the agent declared completion; `blocked`, `captcha`: the site
        kept it out; `unreachable`: its start page did not open; `crashed`: browser or process were lost.
      declared_success: the `success` flag of its `done`.
      reward: the environment's own reward, where it has one.
      success: the agent declared completion AND the judge (or the reward) passes.
      judge: source of the verdict: `reward`, or a judge's name; empty without a verdict.
      judge_text, judge_usage: what the judge wrote, even where it is no verdict, and its cost.
      judge_score: how much of the task was done, in [0, 1], where a judge says so apart from its verdict.
      retries: how often it was begun again because its browser, its guard or its worker was lost; nothing is
        kept of what was lost, and nothing is known where the whole run was killed.
      incidents: on the way to a start page that did not open; all others are their steps'.
      source: the system it was imported from, for example `browser-use`; empty: recorded by this project.
      missing: what that system's files did not hold, as field names (`steps.observation.elements`).
    """

    trajectory_id: str
    task: Task
    actor: str
    model: str
    attempt: int
    steps: tuple[Step, ...]
    outcome: Outcome
    detail: str = ""
    declared_success: bool | None = None
    final_text: str = ""
    reward: float | None = None
    success: bool = False
    judge: str = ""
    judge_text: str = ""
    judge_usage: CallUsage = CallUsage()
    judge_score: float | None = None
    retries: int = 0
    seconds: float = 0.0
    incidents: tuple[Incident, ...] = ()
    source: str = ""
    missing: tuple[str, ...] = ()


class Reflection(Record):
    """Guidance written after attempt `attempt`, for the next one. Kept apart from every corpus."""

    task_id: str
    attempt: int
    guidance: str


class SftSample(Record):
    """One supervised target: reply `response` to `messages`."""

    sample_id: str
    task_id: str
    site: str
    kind: Literal["action", "extraction"]
    messages: tuple[Message, ...]
    response: str


class RlPrompt(Record):
    """A mined decision: the successful side's state and its verified reply, nothing else."""

    prompt_id: str
    task_id: str
    site: str
    category: str
    messages: tuple[Message, ...]
    target: str


class AuditPair(Record):
    """Why a task was mined or dropped. Never read by training.

    Attributes:
      decision: `kept`, or the name of the gate that stopped it.
      scores: every component of the best candidate (`state`, `action`, `category`, `total`, ...).
      success_step, localization_step: 1-based step numbers of the chosen divergence.
    """

    task_id: str
    site: str
    success_id: str
    localization_id: str
    category: str
    label_confidence: float
    label_source: Literal["rule", "judge", "review"]
    decision: str
    scores: dict[str, float] = {}
    success_step: int | None = None
    localization_step: int | None = None
    success_response: str = ""
    localization_response: str = ""
    success_screenshot: str | None = None
    localization_screenshot: str | None = None
    notes: tuple[str, ...] = ()


# What a data set may hold, by the name in its manifest.
KINDS: dict[str, type[Record]] = {
    "trajectories": Trajectory,
    "sft_samples": SftSample,
    "rl_prompts": RlPrompt,
    "audit_pairs": AuditPair,
}
