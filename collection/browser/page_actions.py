"""Actions on pages, tabs and files."""

from __future__ import annotations

import time
import urllib.parse
from typing import Any

from markdownify import markdownify
from selenium.common.exceptions import JavascriptException

from collection.browser import page_scripts
from collection.browser.action_types import ActionContext, ActionError, Located, Outcome, file_folder
from collection.browser.session import Browser, first_line
from rmsweb_jax.actions.schema import MAX_WAIT_S

MAX_EXTRACT_CHARS = 30_000


def scroll(browser: Browser, params: Any, _: ActionContext) -> Outcome:
    amount = params.num_pages if params.down else -params.num_pages
    direction = "down" if params.down else "up"
    if params.frame_element_index:
        with Located(browser, params.frame_element_index) as (element, _target):
            moved = browser.script(page_scripts.SCROLL_ELEMENT, element, amount)
        where = f" in [{params.frame_element_index}]"
    else:
        moved, where = browser.script(page_scripts.SCROLL_PAGE, amount), ""
    text = f"Scrolled {direction}{where}" if moved else f"Cannot scroll further {direction}{where}"
    return Outcome(text, changed=bool(moved))


def scroll_to_text(browser: Browser, params: Any, _: ActionContext) -> Outcome:
    found = browser.script(page_scripts.SCROLL_TO_TEXT, params.text)
    return Outcome(
        f"Scrolled to {params.text!r}" if found else f"Text {params.text!r} not found", changed=bool(found)
    )


def go_to_url(browser: Browser, params: Any, _: ActionContext) -> Outcome:
    url = params.url if "://" in params.url or params.url.startswith("about:") else f"https://{params.url}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "about"):
        raise ActionError(f"Cannot open {params.url}: only http and https pages")
    if params.new_tab:
        browser.call(browser.driver.switch_to.new_window, "tab")
        browser.switch_handle(browser.call(lambda: browser.driver.current_window_handle))
    browser.goto(url)
    return Outcome(f"Opened {params.url}" + (" in a new tab" if params.new_tab else ""), changed=True)


def search(browser: Browser, params: Any, context: ActionContext) -> Outcome:
    template = context.search_urls.get(params.engine)
    if template is None:
        raise ActionError(
            f"No search engine {params.engine!r}; there is: {', '.join(context.search_urls) or 'none'}"
        )
    browser.goto(template.format(query=urllib.parse.quote_plus(params.query)))
    return Outcome(f"Searched for {params.query!r}", changed=True)


def go_back(browser: Browser, _params: Any, _: ActionContext) -> Outcome:
    browser.call(browser.driver.back)
    return Outcome("Went back", changed=True)


def wait(_browser: Browser, params: Any, _: ActionContext) -> Outcome:
    seconds = min(params.seconds, MAX_WAIT_S)
    time.sleep(seconds)
    return Outcome(f"Waited {seconds} s", changed=True)


def switch_tab(browser: Browser, params: Any, _: ActionContext) -> Outcome:
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    return Outcome(f"Switched to tab {params.tab_id}", changed=True, page=False)


def close_tab(browser: Browser, params: Any, _: ActionContext) -> Outcome:
    current = browser.current_tab
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    browser.close_tab()
    if current != params.tab_id:
        browser.switch_tab(current)
    return Outcome(f"Closed tab {params.tab_id}", changed=True, page=False)


def extract(browser: Browser, params: Any, context: ActionContext) -> Outcome:
    if context.extract is None:
        raise ActionError("Extraction is not available")
    text = page_markdown(browser, params.extract_links)
    part = text[params.start_from_char : params.start_from_char + MAX_EXTRACT_CHARS]
    if not part.strip():
        raise ActionError(f"The page has no text from character {params.start_from_char} on")
    answer = context.extract(params.query, part)
    end = params.start_from_char + len(part)
    rest = f" ({len(text) - end} characters left, continue from {end})" if end < len(text) else ""
    return Outcome(f"Extracted {params.query!r}{rest}", output=answer)


def page_markdown(browser: Browser, links: bool) -> str:
    """The whole page as Markdown, without scripts, styles and hidden parts."""
    html = browser.script(page_scripts.VISIBLE_HTML)
    text = markdownify(html, heading_style="ATX", strip=["img"] if links else ["img", "a"])
    return "\n".join(line for line in (line.rstrip() for line in text.splitlines()) if line)


def execute_js(browser: Browser, params: Any, context: ActionContext) -> Outcome:
    if not context.allow_js:
        raise ActionError("execute_js is switched off")
    try:
        value = browser.script(page_scripts.RUN, params.code)
    except JavascriptException as problem:
        raise ActionError(f"Script failed: {first_line(problem)}") from problem
    return Outcome(
        "Ran script", changed=True, output=str(value)[:MAX_EXTRACT_CHARS] if value is not None else ""
    )


def write_file(_browser: Browser, params: Any, context: ActionContext) -> Outcome:
    content = (
        ("\n" if params.leading_newline else "") + params.content + ("\n" if params.trailing_newline else "")
    )
    changed = file_folder(context).write(params.file_name, content, append=params.append)
    return Outcome(f"Wrote {params.file_name}", changed=changed, page=False)


def replace_in_file(_browser: Browser, params: Any, context: ActionContext) -> Outcome:
    count = file_folder(context).replace(params.file_name, params.old_str, params.new_str)
    return Outcome(f"Replaced {count} in {params.file_name}", changed=count > 0, page=False)


def read_file(_browser: Browser, params: Any, context: ActionContext) -> Outcome:
    return Outcome(f"Read {params.file_name}", output=file_folder(context).read(params.file_name))


def done(_browser: Browser, _params: Any, _: ActionContext) -> Outcome:
    return Outcome("Done")
