"""One walk over a site, recorded as a trajectory."""

from __future__ import annotations

import random
from typing import Any

from rmsweb_jax.records.schema import Task
from tests.mining.planted import acts
from tests.mining.planted.acts import Act
from tests.mining.planted.browser import Browser, Result
from tests.mining.planted.messages import (
    LIMIT,
    MAX_STEPS,
    compact,
    extraction_json,
    messages_json,
    observation_json,
    past_step,
    reply_json,
    request,
    usage_json,
)
from tests.mining.planted.pages import escape, last_scroll
from tests.mining.planted.site import Site

Words = str | tuple[str, ...]
# What the loop says of the reply that came too late.
_LIMITS = {
    "max_steps": "Only done was allowed.",
    "timeout": "The time limit was reached before the actions were carried out.",
}
_MEMORY_NOTES = 7
_WENT_WELL = ("Success - {0}.", "Success: the last goal was reached ({0}).", "The last step worked: {0}.")
_DID_NOTHING = ("Uncertain - {0}, but the page looks the same.", "No visible change after: {0}.")
_WENT_WRONG = ("Failed - {0}.", "The last step failed: {0}.")


class Run:
    """A script's hands: every `do` is a recorded step.

    Attributes:
      critical: 1-based numbers of the steps at which the planted decision was taken.
      rate, spare: how often the run dawdles before a step (0..1), and how many such steps it may take.
      pauses: how often to dawdle before each of the next steps at any rate, the next one last.
      places: at how many steps the run could have dawdled.
      loose: replies are written over several lines.
    """

    def __init__(self, site: Site, task: Task, rng: random.Random, rate: float = 0.0, spare: int = 0) -> None:
        self.site, self.task, self.rng = site, task, rng
        self.browser = Browser(site)
        self.rate, self.spare = rate, spare
        self.critical: list[int] = []
        self.pauses: list[int] = []
        self.places = 0
        self._decided: set[str] = set()
        self.loose = False
        self.outcome, self.detail, self.answer = "max_steps", "", ""
        self.declared: bool | None = None
        self._steps: list[str] = []
        self._history: list[str] = []
        self._notes: list[str] = []
        self._last: list[Result] = []
        self._asked = request(task)
        self._thinks = rng.random() < 0.4

    def __len__(self) -> int:
        return len(self._steps)

    def say(self, words: Words) -> str:
        """A random one of several wordings."""
        return words if isinstance(words, str) else self.rng.choice(words)

    def note(self, words: Words) -> None:
        """Keeps something in memory from the next step on."""
        said = self.say(words)
        if said and said not in self._notes:
            self._notes.append(said)

    def do(
        self, goal: Words, *steps: Act, note: Words = "", critical: bool = False, calm: bool = False
    ) -> None:
        """A step; unless it is critical or `calm`, the run may dawdle on the page before it.

        Args:
          note: what the agent sees on the page, for its memory.
        """
        self.note(note)
        if not (critical or calm):
            self.idle(self.rate)
            for _ in range(self.pauses.pop() if self.pauses else 0):
                self._dawdle()
            self.places += 1
            if self.critical and self.browser.view.page.url not in self._decided:
                self.wander(self.rate / 3)
        if critical:
            self.critical.append(len(self) + 1)
            self._decided.add(self.browser.view.page.url)
        seen, results, actions = self.browser.view, [], []
        for act in steps:
            action, result = self.browser.act(act, seen)
            actions.append(action)
            results.append(result)
            if result.error or result.text.startswith("Not done"):
                break
        # What the list's end would have done stays in the reply.
        for act in steps[len(actions) :]:
            index = {"index": seen.find(act.target)[0]} if act.target else {}
            actions.append({act.name: {**index, **act.params}})
        reply = self._reply(self.say(goal), actions)
        extractions = [(act.params["query"], act.output) for act in steps if act.name.startswith("extract")]
        self._record(reply_json(reply, self.loose), reply, results, "", seen, extractions)

    def broken(self, response: str, error: str, critical: bool = False) -> None:
        """A step whose reply could not be used."""
        if critical:
            self.critical.append(len(self) + 1)
        self._record(response, None, [], error, self.browser.view, [])

    def idle(self, rate: float) -> None:
        """With this probability, again and again: steps that leave the page as it is."""
        while self.spare > 0 and self.rng.random() < rate:
            self.spare -= 1
            self._dawdle()

    def _dawdle(self) -> None:
        seen, kind = self.browser.view, self.rng.randrange(4)
        lists = seen.shown.lists
        if kind == 0 and last_scroll(seen.page, self.site.height) and seen.above == 0 and self.spare > 0:
            self.do(("Look further down the page", "See what is below"), acts.scroll(), calm=True)
            self.do(("Go back up", "Return to the top"), acts.scroll(down=False), calm=True)
            self.spare -= 1
        elif kind == 1:
            self.do(
                "Look for more on the page", acts.find(self.say(("Overview", "Contact", "Help"))), calm=True
            )
        elif kind == 2 and lists:
            self.do(("See what can be chosen", "List the options"), acts.options(lists[0]), calm=True)
        else:
            self.do("Let the page load", acts.wait(self.rng.choice((2, 3, 5))), calm=True)

    def wander(self, rate: float = 0.5) -> None:
        """With this probability, again and again: a look at a page that has nothing to do with the task."""
        words = self.rng.choice(self.site.navigation)
        while self.spare > 1 and words in self.browser.view.shown.places and self.rng.random() < rate:
            self.do((f"See what {words} says", f"Have a look at {words}"), acts.click(words), calm=True)
            self.do(("Go back", "Nothing of use here, return"), acts.back(), calm=True)
            self.spare -= 2
            words = self.rng.choice(self.site.navigation)

    def drift(self, most: int = 6) -> None:
        """Up to so many steps that get nowhere: what follows a mistake on the page where it was made."""
        for _ in range(self.rng.randint(0, most)):
            down = self.browser.view.below > 0 and self.rng.random() < 0.6
            act = self.rng.choice(
                (acts.scroll(1.0, down), acts.scroll(1.0, down), acts.wait(), acts.find("More"))
            )
            self.do(("See the rest of the page", "Look whether there is more"), act, calm=True)

    def finish(self, answer: str, success: bool = True) -> None:
        """The final `done`; the shortest run has four steps."""
        while len(self) < 3:
            self.do("Let the page load", acts.wait(), calm=True)
        self.do(("Report the result", "Finish", "Give the answer"), acts.done(answer, success), calm=True)
        self.outcome, self.declared, self.answer = "done", success, answer

    def end(self, outcome: str, detail: str = "") -> None:
        """The run stops; at a limit the last reply is not carried out any more."""
        self.outcome, self.detail = outcome, detail
        if outcome in _LIMITS:
            reply = self._reply("Wait for the page", [{"wait": {"seconds": 5}}])
            self._record(reply_json(reply), reply, [], _LIMITS[outcome], self.browser.view, [])

    def _reply(self, goal: str, actions: list[dict[str, Any]]) -> dict[str, object]:
        reply: dict[str, object] = {}
        if self._thinks:
            reply["thinking"] = f"The page is {self.browser.view.page.title!r}. {goal}."
        reply["evaluation_previous_goal"] = self._evaluation()
        reply["memory"] = " ".join(self._notes[-_MEMORY_NOTES:]) or "Nothing found yet."
        return reply | {"next_goal": goal, "action": actions}

    def _evaluation(self) -> str:
        if not self._last:
            return "No previous goal." if not self._steps else "The last reply could not be used."
        last = self._last[-1]
        ways = _WENT_WRONG if last.error else _WENT_WELL if last.changed or last.output else _DID_NOTHING
        return self.rng.choice(ways).format(last.text[:80])

    def _record(
        self,
        response: str,
        reply: dict[str, object] | None,
        results: list[Result],
        error: str,
        seen: Any,
        extractions: list[tuple[str, str]],
    ) -> None:
        number = len(self) + 1
        read = "\n".join(result.output for result in self._last if result.output)
        chat, size = messages_json(seen, self._history, self._asked, number, self.browser.shown_files, read)
        calls = ",".join(extraction_json(query, output) for query, output in extractions)
        self._steps.append(
            f'{{"number":{number},"observation":{observation_json(seen)},"messages":{chat},'
            f'"response":{escape(response)},"results":{compact([result._asdict() for result in results])},'
            f'"error":{escape(error)},"repaired":false,"extractions":[{calls}],'
            f'"usage":{usage_json(size, len(response))},"incidents":[],"discarded":[]}}'
        )
        lines = [f"Error: {result.text}" if result.error else result.text for result in results]
        self._history.append(escape(past_step(number, reply, error, lines))[1:-1])
        self.browser.shown_files = dict(self.browser.files)
        self._last = results

    def json(self, trajectory_id: str, attempt: int, success: bool, verdict: str) -> str:
        """The whole record as JSON; `verdict` is what the judge wrote."""
        head = {
            "trajectory_id": trajectory_id,
            "task": self.task.model_dump(mode="json"),
            "actor": "teacher",
            "model": "planted",
            "attempt": attempt,
        }
        tail = {
            "outcome": self.outcome,
            "detail": self.detail,
            "declared_success": self.declared,
            "final_text": self.answer,
            "reward": None,
            "success": success,
            "judge": "outcome" if verdict else "",
            "judge_text": verdict,
            "judge_usage": {"prompt_tokens": 0, "response_tokens": 0, "seconds": 0.0, "cost": 0.0},
            "judge_score": None,
            "judge_fingerprint": None,
            "retries": 0,
            "seconds": 4.0 * len(self),
            "incidents": [],
            "source": "",
            "missing": [],
        }
        steps = ",".join(self._steps).replace(
            LIMIT, str(len(self) if self.outcome == "max_steps" else MAX_STEPS)
        )
        return f'{compact(head)[:-1]},"steps":[{steps}],{compact(tail)[1:]}'
