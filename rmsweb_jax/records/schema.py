"""Records on disk: the contract between the browser fleet and the accelerators.

Every record is an immutable pydantic model; its JSON (`model_dump_json`) is one ArrayRecord entry.
Screenshots are not in the records: an `ImagePart` names a PNG by the SHA-256 of its bytes, and the
PNG is stored once in each of the data set's shards that name it (see `rmsweb_jax.records.shards`).
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# Incremented when records of the version before can no longer be read: there is no reader for other versions.
# A new field with a default leaves them readable.
SCHEMA_VERSION = 5


class Record(BaseModel):
    """Base of all records: unknown keys are refused, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(Record):
    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    type: Literal["image"] = "image"
    sha256: str


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Record):
    """One chat message; images are at their positions in `content`."""

    role: Literal["system", "user", "assistant"]
    content: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Task(Record):
    """A task for a web agent.

    Attributes:
      task_id: unique in the project, for example `miniwob/login-user/17`.
      environment: `web` (live pages), `miniwob`, `app` (applications), or `module:name` of the user's own.
      site: group of the task in results: a MiniWoB++ page name, or a registrable domain.
      seed: random seed of the page, if the environment has one.
    """

    task_id: str
    website: str
    objective: str
    constraints: tuple[str, ...] = ()
    category: str = "Other"
    environment: str = Field(default="web", pattern=r"^(web|miniwob|app|[\w.]+:\w+)$")
    site: str = ""
    seed: int | None = None


class Element(Record):
    """A visible element as the agent saw it.

    Attributes:
      index: None when it cannot be acted on.
      box: left, top, right and bottom of its visible part in pixels of the screenshot, if it has an index.
    """

    index: int | None
    tag: str
    text: str
    attributes: dict[str, str] = {}
    box: tuple[int, int, int, int] | None = None


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
    tabs: tuple[Tab, ...] = ()
    current_tab: str = ""
    page_text: str
    elements: tuple[Element, ...] = ()
    fingerprint: str
    screenshot: str | None = None
    pages_above: float = 0.0
    pages_below: float = 0.0


class ActionResult(Record):
    """Result of one executed action.

    Attributes:
      text: the `Result:` line that the agent sees; the error message if `error`.
      changed: the page, a file or the set of tabs changed.
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

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens


class SampledTokens(Record):
    """The tokens of a policy's reply, as they were drawn: what reinforcement learning needs of it.

    Attributes:
      tokens: the end token included; a reply that was cut off has none.
      log_probs: their log-probabilities under the policy that drew them, in nats.
      policy: the server's name of that policy.
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    policy: str


class ExtractionCall(Record):
    """The page-reading LLM call made by `extract_structured_data`.

    Attributes:
      sampled: tokens of the response, if the actor returns them.
    """

    messages: tuple[Message, ...]
    response: str
    usage: CallUsage = CallUsage()
    sampled: SampledTokens | None = None


class JudgeFingerprint(Record):
    """Identity of a judge: its prompts, its model and the evidence that it gets.

    Figures are comparable only if their judges are the same.

    Attributes:
      method: name of the judge, for example `own_outcome` or `online_mind2web`; `reward` is the
        environment's own.
      source: where its prompts and its reading of replies come from: a repository and commit, or a package
        and version.
      model: name by which its model is called; empty without a model.
      model_version: name of the model in its answers; empty if they give none, or nothing was asked.
      prompt_sha256: hash of its prompts and of the code that reads the replies.
      temperature: of its model's replies; None without a model.
      evidence: settings of what it is shown, such as the number of screenshots.
    """

    method: str
    source: str = ""
    model: str = ""
    model_version: str = ""
    prompt_sha256: str = ""
    temperature: float | None = None
    evidence: dict[str, str] = {}

    @property
    def id(self) -> str:
        """A short name: 12 hexadecimal digits of a hash of all fields."""
        text = self.model_copy(update={"evidence": dict(sorted(self.evidence.items()))}).model_dump_json()
        return hashlib.sha256(text.encode()).hexdigest()[:12]


IncidentKind = Literal[
    "injection",
    "refused",
    "robots_refused",
    "robots_opened",
    "redirect",
    "proxy",
    "popup",
    "download",
    "dialog",
    "page_cut",
]


class Incident(Record):
    """A notable event of a run.

    Attributes:
      kind: `refused` (a request or an address that the guard blocked), `robots_refused` and `robots_opened`
        (a document that robots.txt disallows, as `config.guard.robots` says), `redirect` (the start page led
        to another site, which was admitted), `proxy` (the upstream proxy failed), `popup` (a window that was
        closed), `download`, `dialog` (dismissed or accepted), `page_cut` (a page too large to be shown
        whole). Only older records have `injection` (page text that gives the agent instructions).
      detail: one line, without secrets.
    """

    kind: IncidentKind
    detail: str


class Step(Record):
    """One decision.

    Attributes:
      messages: the prompt, WITHOUT any reflection guidance and the turns that asked again: training reads it.
      response: the actor's raw reply.
      error: reason why the reply could not be used, with empty `results`; "" for a usable reply.
      repaired: the reply was not in the exact form: its JSON had to be repaired, or it was read leniently.
      discarded: raw replies that could not be used and were requested again; `usage` counts them.
      incidents: incidents from the observation before this decision until its actions were done.
      sampled: tokens of the response, if the actor returns them.
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
    sampled: SampledTokens | None = None


Outcome = Literal["done", "max_steps", "failures", "timeout", "blocked", "captcha", "unreachable", "crashed"]


class Trajectory(Record):
    """One attempt at a task, successful or not.

    Attributes:
      trajectory_id: `{task_id}#{actor}-{attempt}`; unique, so that a repeated write can be recognized.
      actor: `teacher` in collection, otherwise the policy's label (`base`, `sft`, `rl`).
      model: the model or program that answered, for example `scripted` or `gemini-3-pro`.
      attempt: reflection round or evaluation run, from 1.
      outcome: end of the episode; `done`: the agent declared completion; `blocked`, `captcha`: the site
        refused it; `unreachable`: its start page did not open; `crashed`: browser or process were lost.
      declared_success: the `success` flag of its `done`.
      reward: the environment's own reward, if it has one.
      success: the agent declared completion AND the judge (or the reward) passes; or the judge passes an
        answer that says no. Training leaves the latter out.
      judge: source of the verdict: `reward`, or a judge's name; empty without a verdict.
      judge_text, judge_usage: the judge's answer, even if it is not a verdict, and its cost.
      judge_score: completed share of the task in [0, 1], if a judge gives one in addition to its verdict.
      judge_fingerprint: identity of the judge, also if it gave no verdict; None: no judge, or it was not
        recorded.
      retries: number of restarts because browser, guard or worker were lost. Lost attempts leave no record,
        and restarts of the whole run are not counted.
      incidents: incidents before a start page that did not open; all others are in the steps.
      source: system from which it was imported, for example `browser-use`; empty: recorded by this project.
      missing: fields that the system's files lack, by name (`steps.observation.elements`).
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
    judge_fingerprint: JudgeFingerprint | None = None
    retries: int = 0
    seconds: float = 0.0
    incidents: tuple[Incident, ...] = ()
    source: str = ""
    missing: tuple[str, ...] = ()


class Window(Record):
    """A screenshot on which a reply names points.

    Attributes:
      width, height: in pixels.
      boxes: left, top, right and bottom of elements, in pixels; each has a point of the reply in it.
    """

    width: int
    height: int
    boxes: tuple[tuple[int, int, int, int], ...] = ()


class Reflection(Record):
    """Guidance written after attempt `attempt` for the next one; never part of a corpus."""

    task_id: str
    attempt: int
    guidance: str


def _kind(given: object) -> object:
    # The name of texts in older data sets, where page readings were the only ones.
    return "text" if given == "extraction" else given


class SftSample(Record):
    """One supervised target: reply `response` to `messages`.

    Attributes:
      kind: `action`: a reply of the agent, with an action list, which the reward can compare; `text`: any
        other reply, such as a page reading or one of a conversation.
      window: what the reward knows of the points that the reply names; None if it names none.
    """

    sample_id: str
    task_id: str
    site: str
    kind: Annotated[Literal["action", "text"], BeforeValidator(_kind)]
    messages: tuple[Message, ...]
    response: str
    window: Window | None = None


class RlPrompt(Record):
    """A mined decision: the state of the successful run and its verified reply, nothing else.

    Attributes:
      window: as of an `SftSample`; None for mined prompts, which have none yet.
    """

    prompt_id: str
    task_id: str
    site: str
    category: str
    messages: tuple[Message, ...]
    target: str
    window: Window | None = None


class ReplayRate(Record):
    """How often a replay ended in success, with Wilson's 95 % interval."""

    successes: int
    trials: int
    low: float
    high: float


class ReplayVerdict(Record):
    """What replay shows about a mined decision.

    Attributes:
      verdict: `critical`: the task succeeds with the success's action and not with the failed run's;
        `not_critical`; or why it is unknown: the environment cannot be set back (`no_reset`), a page was not
        the recorded one (`differs`), the failed run's page lacks the element (`no_element`), no browser could
        play (`lost`).
      success_step, localization_step: 1-based.
      with_success, with_failure: after the action of the success, and after that of the failed run.
      last_critical: step of the failed run after which a competent actor cannot succeed any more, and before
        which it can; None if that was not looked for or there is none.
      seconds: of all trials.
    """

    task_id: str
    success_id: str
    localization_id: str
    success_step: int
    localization_step: int
    verdict: Literal["critical", "not_critical", "no_reset", "differs", "no_element", "lost"]
    with_success: ReplayRate | None = None
    with_failure: ReplayRate | None = None
    last_critical: int | None = None
    seconds: float = 0.0


class AuditPair(Record):
    """Record of a mining decision on a task, kept or dropped; training never reads it.

    Attributes:
      decision: `kept`, or the name of the gate that dropped it.
      scores: every component of the best candidate (`state`, `action`, `category`, `total`, ...).
      success_step, localization_step: 1-based step numbers of the chosen divergence.
      replay: of `experiments.verify_mined`, where mining was given its verdicts.
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
    replay: ReplayVerdict | None = None


# Record types by the name in a data set's manifest.
KINDS: dict[str, type[Record]] = {
    "trajectories": Trajectory,
    "sft_samples": SftSample,
    "rl_prompts": RlPrompt,
    "audit_pairs": AuditPair,
    "replay_verdicts": ReplayVerdict,
}
