"""Carries out actions on a site: the only module that changes states."""

from __future__ import annotations

import urllib.parse
from typing import Any, NamedTuple

from tests.mining.planted.acts import Act
from tests.mining.planted.pages import Effect, View, last_scroll
from tests.mining.planted.site import Site, State, go


class Result(NamedTuple):
    action: str
    text: str
    error: bool = False
    changed: bool = False
    output: str = ""


class Browser:
    """One tab at a site, with a history and the agent's files."""

    def __init__(self, site: Site) -> None:
        self.site, self.state = site, dict(site.start)
        self.history: list[State] = []
        self._seen: tuple[State, View] | None = None
        self.files: dict[str, str] = {}
        self.shown_files: dict[str, str] = {}  # As they were when the agent last looked.

    @property
    def view(self) -> View:
        """The page; states are replaced, never changed, once it has been looked at."""
        if self._seen is None or self._seen[0] is not self.state:
            self._seen = self.state, self.site.look(self.state)
        return self._seen[1]

    def act(self, act: Act, seen: View) -> tuple[dict[str, Any], Result]:
        """Carries an action out.

        Args:
          seen: the page that the agent saw: indices are of it.

        Returns:
          The action with its index, as it is in the reply, and its result.
        """
        params = dict(act.params)
        if act.target:
            params = {"index": seen.find(act.target)[0], **params}
        action = {act.name: params}
        if seen.page.url != self.view.page.url:
            return action, Result(act.name, "Not done: the page has changed")
        before = self.view.fingerprint
        result: Result = getattr(self, f"_{act.name}")(act, params, seen)
        return action, result._replace(changed=result.changed or self.view.fingerprint != before)

    def _apply(self, effect: Effect) -> None:
        url = self.view.page.url
        earlier = self.state
        values = {
            name: earlier.get(value[1:], "") if value[:1] == "@" else value for name, value in effect.values
        }
        self.state = {**earlier, **values}
        if self.view.page.url != url:
            self.history.append(earlier)

    def _done(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        return Result(act.name, "Done")

    def _click_element_by_index(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        line = seen.find(act.target)[1]
        if line.effect.error:
            return Result(act.name, line.effect.error, error=True)
        if line.tag == "select":
            return self._get_dropdown_options(act, params, seen)
        self._apply(line.effect)
        return Result(act.name, f"Clicked [{params['index']}]")

    def _input_text(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        line = seen.find(act.target)[1]
        if line.tag != "input":
            return Result(act.name, f"Element [{params['index']}] takes no text", error=True)
        self._apply(Effect(((line.effect.variable, params["text"]),)))
        return Result(act.name, f"Typed {params['text']!r} into [{params['index']}]")

    def _get_dropdown_options(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        listed, index = seen.find(act.target)[1].effect.options, params["index"]
        if not listed:
            return Result(act.name, f"Element [{index}] has no options", error=True)
        return Result(act.name, f"Options of [{index}]: {' | '.join(listed)}")

    def _select_dropdown_option(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        effect, index = seen.find(act.target)[1].effect, params["index"]
        chosen = next(
            (name for name in effect.options if name.lower() == params["text"].strip().lower()), None
        )
        if chosen is None:
            shown = " | ".join(effect.options)
            return Result(
                act.name, f"[{index}] has no option {params['text']!r}. Options of [{index}]: {shown}", True
            )
        self._apply(Effect(((effect.variable, chosen),)))
        return Result(act.name, f"Selected {chosen!r} in [{index}]")

    def _send_keys(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        if params["keys"] == "Enter" and seen.page.enter is not None:
            self._apply(seen.page.enter)
        return Result(act.name, f"Pressed {params['keys']}")

    def _scroll(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        at, way = int(self.state["scroll"]), 1 if params["down"] else -1
        now = at + way * max(1, round(params["num_pages"]))
        now = min(max(now, 0), last_scroll(seen.page, self.site.height))
        self.state = {**self.state, "scroll": str(now)}
        direction = "down" if params["down"] else "up"
        return Result(
            act.name, f"Scrolled {direction}" if now != at else f"Cannot scroll further {direction}"
        )

    def _scroll_to_text(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        """Text that is in view already moves nothing; other text is not looked for."""
        if params["text"] in seen.shown.text:
            return Result(act.name, f"Scrolled to {params['text']!r}")
        return Result(act.name, f"Text {params['text']!r} not found")

    def _wait(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        return Result(act.name, f"Waited {params['seconds']} s")

    def _go_to_url(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        url = params["url"].strip()
        parts = urllib.parse.urlsplit(url)
        known = self.site.routes.get(url) or self.site.routes.get(f"https://{parts.netloc}{parts.path}")
        self._apply(known or go(f"error:{parts.netloc}{parts.path}"))
        return Result(act.name, f"Opened {params['url']}")

    def _search_engine(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        self._apply(go(f"engine:{params['query']}"))
        return Result(act.name, f"Searched for {params['query']!r}")

    def _go_back(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        if not self.history:
            return Result(act.name, "There is no page to go back to", error=True)
        self.state = self.history.pop()
        return Result(act.name, "Went back")

    def _extract_structured_data(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        return Result(act.name, f"Extracted {params['query']!r}", output=act.output)

    def _write_file(self, act: Act, params: dict[str, Any], seen: View) -> Result:
        before = self.files.get(params["file_name"])
        self.files[params["file_name"]] = params["content"] + "\n"
        return Result(act.name, f"Wrote {params['file_name']}", changed=before != params["content"] + "\n")
