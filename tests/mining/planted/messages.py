"""The chat of a step in the form that the collection records: system text, history, request, page."""

from __future__ import annotations

import json

from rmsweb_jax.records.schema import Task
from tests.mining.planted.pages import View, escape

MAX_STEPS = 30
# Placeholder for the step limit: a run that reached it has exactly as many steps.
LIMIT = "@LIMIT@"
DATE = "2026-03-02"
_ACTIONS = (
    ("done", "text: string, success: true|false, files_to_display: list of strings, optional", "Finish."),
    ("search_engine", "query: string, engine: string = duckduckgo", "Open a search engine's result page."),
    ("go_to_url", "url: string, new_tab: true|false = false", "Open an address."),
    ("go_back", "", "Go back one page."),
    ("wait", "seconds: integer = 3", "Wait for the page."),
    ("click_element_by_index", "index: integer, while_holding_ctrl: true|false = false", "Click an element."),
    ("input_text", "index: integer, text: string, clear_existing: true|false = true", "Type into a field."),
    ("scroll", "down: true|false, num_pages: number, frame_element_index: integer, optional", "Scroll."),
    ("send_keys", "keys: string", "Press keys, for example Enter."),
    ("scroll_to_text", "text: string", "Scroll to a piece of visible text."),
    ("extract_structured_data", "query: string, extract_links: true|false = false", "Read the whole page."),
    ("get_dropdown_options", "index: integer", "List the options of a dropdown."),
    ("select_dropdown_option", "index: integer, text: string", "Choose a dropdown option."),
    ("write_file", "file_name: string, content: string, append: true|false = false", "Write a file."),
    ("read_file", "file_name: string", "Read a file."),
)
SYSTEM = (
    "You operate a web browser to carry out a user's request. At every step you receive the history of your "
    "own steps, the request, and the current page as text and as a screenshot; you answer with the next "
    "actions.\n\n# What you may do\nAt most 10 actions a step, executed in order; the list stops early when "
    "the page changes under it.\n"
    + "\n".join(f"- {name}({parameters}): {summary}" for name, parameters, summary in _ACTIONS)
    + "\n\n# How to work\n- Check after each step whether the last goal was reached before the next one.\n"
    "- Keep in memory what later steps need.\n- Use only indices of the current page.\n"
    "- If the same action has failed twice, choose another way.\n"
    "- Call done alone, as the last step.\n\n# How to answer\nOne JSON object and nothing else:\n"
    '{"evaluation_previous_goal": "...", "memory": "...", "next_goal": "...", '
    '"action": [{"action_name": {"parameter": "value"}}]}'
)
_SYSTEM_JSON = '{"role":"system","content":[{"type":"text","text":' + escape(SYSTEM) + "}]}"


def request(task: Task) -> str:
    """The `<user_request>`."""
    lines = "".join(f"- {constraint}\n" for constraint in task.constraints)
    return f"<user_request>\n{task.objective}\n{lines}</user_request>\n"


def past_step(number: int, reply: dict[str, object] | None, error: str, results: list[str]) -> str:
    """A step in `<agent_history>`."""
    lines = [f"<step_{number}>"]
    if error:
        lines.append(error)
    elif reply is not None:
        lines += [
            f"Evaluation: {reply['evaluation_previous_goal']}",
            f"Memory: {reply['memory']}",
            f"Next goal: {reply['next_goal']}",
        ]
    return "\n".join([*lines, *(f"Result: {line}" for line in results), f"</step_{number}>\n"])


def messages_json(
    seen: View, history: list[str], asked: str, number: int, files: dict[str, str], read: str
) -> tuple[str, int]:
    """`Step.messages` as JSON.

    Args:
      history: past steps, already escaped, without quotes.
      files: the agent's files, by name.
      read: output of the last step's actions, shown once.

    Returns:
      The JSON array, and its length in characters.
    """
    head = "<agent_history>\n" if history else ""
    listed = "".join(f"{name} ({len(content)} bytes)\n" for name, content in files.items())
    middle = "</agent_history>\n" if history else ""
    middle += f"<agent_state>\n{asked}" + (f"<file_system>\n{listed}</file_system>\n" if listed else "")
    middle += f"<step_info>Step {number} of {LIMIT}. Date: {DATE}</step_info>\n</agent_state>\n"
    page, above, below = seen.page, seen.above, seen.below
    middle += (
        f"<browser_state>\n<page_stats>{seen.stats}</page_stats>\nCurrent tab: 0001\n<untrusted_content>\n"
        f"Tab 0001: {page.url} - {page.title}\n<page_info>{above:.1f} pages above, {below:.1f} pages below, "
        f"{above + below + 1:.1f} total</page_info>\n"
    )
    middle += f"... {above:.1f} pages above ...\n" if above >= 0.05 else "[Start of page]\n"
    end = f"\n... {below:.1f} pages below ...\n" if below >= 0.05 else "\n[End of page]\n"
    end += "</untrusted_content>\n</browser_state>\n"
    if read:
        end += f"<read_state>\n<untrusted_content>\n{read}\n</untrusted_content>\n</read_state>\n"
    parts = (
        '"', escape(head)[1:-1], *history, escape(middle)[1:-1], seen.text_json[1:-1],
        escape(end)[1:-1], '"',
    )  # fmt: skip
    user = (
        '{"role":"user","content":[{"type":"text","text":'
        + "".join(parts)
        + f'}},{{"type":"image","sha256":"{seen.screenshot}"}}]}}'
    )
    return f"[{_SYSTEM_JSON},{user}]", len(SYSTEM) + len(user)


def observation_json(seen: View) -> str:
    page = seen.page
    url, title = escape(page.url), escape(page.title)
    return (
        f'{{"url":{url},"title":{title},"tabs":[{{"tab_id":"0001","url":{url},"title":{title}}}],'
        f'"current_tab":"0001","page_text":{seen.text_json},"elements":[{seen.shown.elements}],'
        f'"fingerprint":"{seen.fingerprint}","screenshot":"{seen.screenshot}",'
        f'"pages_above":{seen.above},"pages_below":{seen.below}}}'
    )


def reply_json(reply: dict[str, object], loose: bool = False) -> str:
    """A reply; `loose` writes the same over several lines."""
    return json.dumps(reply, indent=1 if loose else None)


def compact(value: object) -> str:
    """JSON as pydantic writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def usage_json(prompt: int, response: int) -> str:
    """`CallUsage` of a call whose prompt and response have so many characters."""
    return f'{{"prompt_tokens":{prompt // 4},"response_tokens":{response // 4},"seconds":2.5,"cost":0.0}}'


def extraction_json(query: str, output: str) -> str:
    """An `ExtractionCall`."""
    content = f"You read a web page for an agent.\n<query>\n{query}\n</query>"
    messages = compact([{"role": "user", "content": [{"type": "text", "text": content}]}])
    usage = usage_json(len(content), len(output))
    return f'{{"messages":{messages},"response":{escape(output)},"usage":{usage}}}'
