"""Actions by the names of elements; a run turns them into indices of the page it sees."""

from __future__ import annotations

from typing import Any, NamedTuple


class Act(NamedTuple):
    """An action of a script.

    Attributes:
      target: key of the element it needs.
      output: what an extraction answers.
    """

    name: str
    params: dict[str, Any]
    target: str = ""
    output: str = ""


def click(target: str) -> Act:
    return Act("click_element_by_index", {}, target)


def fill(target: str, words: str) -> Act:
    return Act("input_text", {"text": words}, target)


def choose(target: str, option: str) -> Act:
    return Act("select_dropdown_option", {"text": option}, target)


def options(target: str) -> Act:
    return Act("get_dropdown_options", {}, target)


def press(keys: str) -> Act:
    return Act("send_keys", {"keys": keys})


def scroll(pages: float = 1.0, down: bool = True) -> Act:
    return Act("scroll", {"down": down, "num_pages": pages})


def find(words: str) -> Act:
    return Act("scroll_to_text", {"text": words})


def wait(seconds: int = 3) -> Act:
    return Act("wait", {"seconds": seconds})


def visit(url: str) -> Act:
    return Act("go_to_url", {"url": url})


def search(query: str) -> Act:
    return Act("search_engine", {"query": query})


def back() -> Act:
    return Act("go_back", {})


def extract(query: str, output: str) -> Act:
    return Act("extract_structured_data", {"query": query}, "", output)


def save(file_name: str, content: str) -> Act:
    return Act("write_file", {"file_name": file_name, "content": content})


def done(words: str, success: bool = True) -> Act:
    return Act("done", {"text": words, "success": success})
