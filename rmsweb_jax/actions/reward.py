"""The polarized reward: how right a response's actions are, in four levels (RMSWeb, section 3.4).

    1.0 exact    0.7 core-correct    0.3 right type, wrong key parameter    0.0 wrong or invalid

Only actions are judged; the text before them is free. A text counts as nearly right only if the
values in it are the same (`similarity`), so that "100" never passes for "1000".
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

import rmsweb_jax.actions.schema as schema
from rmsweb_jax.actions.parse import ReplyError, parse_reply
from rmsweb_jax.actions.schema import Action
from rmsweb_jax.actions.similarity import same_but_formatting, same_page, similar

EXACT, CORE, TYPE, WRONG = 1.0, 0.7, 0.3, 0.0
ACTIVE_WEIGHT, PASSIVE_WEIGHT = 1.0, 0.5

# A level, and the field that decided it.
Verdict = tuple[float, str]


@dataclasses.dataclass(frozen=True)
class Pair:
    """One aligned pair: positions in the response's and the target's action list."""

    predicted: int
    target: int
    level: float
    field: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a response got its score; `error` is why it could not be parsed, if so."""

    score: float
    pairs: tuple[Pair, ...] = ()
    error: str = ""


def score_response(response: str, target: str) -> float:
    """The reward in [0, 1] of a response against the verified reply `target`.

    Raises:
      ReplyError: `target` itself is no valid reply. An invalid response scores 0.0 instead.
    """
    return explain_response(response, target).score


def explain_response(response: str, target: str) -> Explanation:
    """As `score_response`, with the level of every aligned pair and the field that decided it."""
    wanted = parse_reply(target).actions
    try:
        predicted = parse_reply(response).actions
    except ReplyError as error:
        return Explanation(WRONG, error=str(error))
    return explain_actions(predicted, wanted)


def explain_actions(predicted: Sequence[Action], wanted: Sequence[Action]) -> Explanation:
    """As `explain_response`, for lists that are parsed already; neither may be empty."""
    pairs = _align(predicted, wanted)
    matched = sum(_weight(wanted[pair.target]) * pair.level for pair in pairs)
    # With precision M/P and recall M/T the soft F1, their harmonic mean, is 2M / (P + T).
    total = sum(map(_weight, predicted)) + sum(map(_weight, wanted))
    return Explanation(2 * matched / total, pairs)


def compare_actions(predicted: Action, target: Action) -> Verdict:
    """The level of one action against another, and the field that decided it."""
    if predicted.name != target.name:
        return WRONG, "action"
    if predicted.params == target.params:
        return EXACT, ""
    return _RULES[target.name](predicted.params, target.params)


def _weight(action: Action) -> float:
    return PASSIVE_WEIGHT if action.params.passive else ACTIVE_WEIGHT


def _align(predicted: Sequence[Action], wanted: Sequence[Action]) -> tuple[Pair, ...]:
    """The order-preserving alignment with the largest summed level (then the largest summed weight)."""
    verdicts = [[compare_actions(one, other) for other in wanted] for one in predicted]
    rows, columns = len(predicted), len(wanted)
    # best[i][j]: (summed level in tenths, summed weighted level) of predicted[i:] against wanted[j:].
    best = [[(0, 0.0)] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            best[i][j] = max(_taken(verdicts, wanted, best, i, j), best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        level, field = verdicts[i][j]
        if level > 0 and best[i][j] == _taken(verdicts, wanted, best, i, j):
            pairs.append(Pair(i, j, level, field))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return tuple(pairs)


def _taken(verdicts: Any, wanted: Sequence[Action], best: Any, i: int, j: int) -> tuple[int, float]:
    level = verdicts[i][j][0]
    tenths, weighted = best[i + 1][j + 1]
    return tenths + round(10 * level), weighted + _weight(wanted[j]) * level


# One rule per action type, called only when some parameter differs. `p` is predicted, `t` the target.


def _done(p: schema.Done, t: schema.Done) -> Verdict:
    if p.success is None or t.success is None:
        return (CORE, "text") if p.success == t.success else (TYPE, "success")
    return (CORE, "text") if p.success == t.success else (WRONG, "success")


def _search_engine(p: schema.SearchEngine, t: schema.SearchEngine) -> Verdict:
    if p.query == t.query:
        return EXACT, "query"
    return (CORE if similar(p.query, t.query) else TYPE), "query"


def _go_to_url(p: schema.GoToUrl, t: schema.GoToUrl) -> Verdict:
    return (CORE if same_page(p.url, t.url) else TYPE), "new_tab" if p.url == t.url else "url"


def _wait(p: schema.Wait, t: schema.Wait) -> Verdict:
    same = min(p.seconds, schema.MAX_WAIT_S) == min(t.seconds, schema.MAX_WAIT_S)
    return (EXACT if same else CORE), "seconds"


def _click(p: schema.ClickElementByIndex, t: schema.ClickElementByIndex) -> Verdict:
    return (CORE, "while_holding_ctrl") if p.index == t.index else (TYPE, "index")


def _input_text(p: schema.InputText, t: schema.InputText) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    if p.text == t.text:
        return CORE, "clear_existing"
    return (CORE if similar(p.text, t.text) else TYPE), "text"


def _scroll(p: schema.Scroll, t: schema.Scroll) -> Verdict:
    if p.down != t.down:
        return TYPE, "down"
    if p.frame_element_index != t.frame_element_index:
        return TYPE, "frame_element_index"
    return CORE, "num_pages"


def _send_keys(p: schema.SendKeys, t: schema.SendKeys) -> Verdict:
    # A single letter is typed as it stands; names of keys are the same in any case.
    named = len(t.keys.strip()) > 1
    return (CORE if named and same_but_formatting(p.keys, t.keys) else TYPE), "keys"


def _scroll_to_text(p: schema.ScrollToText, t: schema.ScrollToText) -> Verdict:
    return (CORE if similar(p.text, t.text) else TYPE), "text"


def _extract(p: schema.ExtractStructuredData, t: schema.ExtractStructuredData) -> Verdict:
    if p.query == t.query:
        return CORE, "start_from_char" if p.extract_links == t.extract_links else "extract_links"
    return (CORE if similar(p.query, t.query) else TYPE), "query"


def _tab(p: Any, t: Any) -> Verdict:
    return TYPE, "tab_id"


def _dropdown_options(p: Any, t: Any) -> Verdict:
    return TYPE, "index"


def _select_option(p: schema.SelectDropdownOption, t: schema.SelectDropdownOption) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    # Options are told apart by small differences: similar wording is another option.
    return (CORE if same_but_formatting(p.text, t.text) else TYPE), "text"


def _upload(p: schema.UploadFileToElement, t: schema.UploadFileToElement) -> Verdict:
    if p.index != t.index:
        return TYPE, "index"
    return (CORE if _same_file(p.path, t.path) else TYPE), "path"


def _write_file(p: schema.WriteFile, t: schema.WriteFile) -> Verdict:
    if not _same_file(p.file_name, t.file_name):
        return TYPE, "file_name"
    if p.append != t.append:  # Appending keeps what the other way destroys.
        return TYPE, "append"
    if p.content == t.content:
        return CORE, "file_name" if p.file_name != t.file_name else "newline"
    return (CORE if similar(p.content, t.content) else TYPE), "content"


def _replace_str(p: schema.ReplaceFileStr, t: schema.ReplaceFileStr) -> Verdict:
    if not _same_file(p.file_name, t.file_name):
        return TYPE, "file_name"
    if p.old_str != t.old_str:  # Searched for literally.
        return TYPE, "old_str"
    return (CORE if similar(p.new_str, t.new_str) else TYPE), "new_str"


def _read_file(p: schema.ReadFile, t: schema.ReadFile) -> Verdict:
    return (CORE if _same_file(p.file_name, t.file_name) else TYPE), "file_name"


def _execute_js(p: schema.ExecuteJs, t: schema.ExecuteJs) -> Verdict:
    return (CORE if p.code.split() == t.code.split() else TYPE), "code"


def _same_file(first: str, second: str) -> bool:
    return posixpath.normpath(first.strip()) == posixpath.normpath(second.strip())


def _no_parameters(p: Any, t: Any) -> Verdict:
    return EXACT, ""


_RULES: dict[str, Callable[[Any, Any], Verdict]] = {
    "done": _done,
    "search_engine": _search_engine,
    "go_to_url": _go_to_url,
    "go_back": _no_parameters,
    "wait": _wait,
    "click_element_by_index": _click,
    "input_text": _input_text,
    "scroll": _scroll,
    "send_keys": _send_keys,
    "scroll_to_text": _scroll_to_text,
    "extract_structured_data": _extract,
    "switch_tab": _tab,
    "close_tab": _tab,
    "get_dropdown_options": _dropdown_options,
    "select_dropdown_option": _select_option,
    "upload_file_to_element": _upload,
    "write_file": _write_file,
    "replace_file_str": _replace_str,
    "read_file": _read_file,
    "execute_js": _execute_js,
}
