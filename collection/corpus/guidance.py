"""Finds reflection guidance that a teacher has quoted in its own replies.

The recorded prompts hold no guidance, but a teacher that reads guidance may repeat it: in its thinking, in
the text of an action, or in its memory, which later prompts show as history. The policy would learn to speak
of text that it never gets.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
import urllib.parse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from collection.corpus.lean import LeanTask
from collection.llm.actor import FENCE
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import REFLECTIONS
from rmsweb_jax.records.schema import Observation, Reflection, SftSample, Task
from rmsweb_jax.records.shards import AGAIN, home, read_manifest
from rmsweb_jax.storage import AnyPath

# Words in a row that are a quotation. Runs of five also occur by chance: if guidance lists the goals of the
# round before, 23 of 131 samples of a demo run have one, as "type truman into search text"; none has six.
QUOTE_WORDS = 6
# A guidance with fewer words than a quotation counts as quoted when it occurs whole. Still fewer say nothing.
_FEWEST_WORDS = 3

Ngram = tuple[str, ...]
# Of one task: for each data set, the guidance by the attempt that was reflected on.
TaskGuidance = Sequence[Mapping[int, str]]
# By task id.
Guidance = Mapping[str, TaskGuidance]


def read_guidance(folders: Iterable[AnyPath]) -> Guidance:
    """Reads the guidance of data sets.

    Raises:
      UserError: the file is missing in a data set that was made with reflections, or is damaged.
    """
    guidance: defaultdict[str, list[dict[int, str]]] = defaultdict(list)
    for folder in folders:
        tasks: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for one in _read_reflections(folder):
            tasks[one.task_id][one.attempt] = one.guidance
        for task_id, attempts in tasks.items():
            guidance[task_id].append(attempts)
    return dict(guidance)


def guidance_for(task: TaskGuidance, attempt: int) -> str:
    """Returns the guidance that an attempt was given; joined where several data sets have the task.

    It is that of the last attempt before it that was reflected on: refused ones are not.
    """
    before = [[number for number in one if number < attempt] for one in task]
    return "\n".join(one[max(numbers)] for one, numbers in zip(task, before, strict=True) if numbers)


def _read_reflections(folder: AnyPath) -> Iterator[Reflection]:
    path = home(folder) / REFLECTIONS
    if not read_manifest(folder).provenance.get("reflections"):
        return
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: missing, so samples that quote guidance cannot be found; copy it with the data set"
        ) from error
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield Reflection.model_validate_json(line)
        except ValidationError as error:
            raise UserError(f"{path}: line {number} is no reflection: {AGAIN}") from error


class QuoteFinder:
    """Finds quotations of guidance in the samples of one trajectory, which come in order.

    A run of words that the task, the system prompt or a page has is no quotation, unless the teacher was the
    first to say it: pages show what it typed.

    Args:
      size: number of words in a row that are a quotation.
    """

    def __init__(self, guidance: str, task: Task | LeanTask, size: int = QUOTE_WORDS):
        words = _words(guidance)
        self._size = min(size, max(len(words), _FEWEST_WORDS))
        # Words that the agent can only have from the guidance.
        self._unknown = _ngrams(words, self._size)
        self._quoted: set[Ngram] = set()
        self.show(task.objective, *task.constraints)

    def show_page(self, page: Observation) -> None:
        """Makes the words of a page that the agent sees known."""
        tabs = (text for tab in page.tabs for text in (tab.url, tab.title))
        self.show(page.page_text, page.title, *(element.text for element in page.elements), *tabs)

    def find(self, sample: SftSample) -> str:
        """Returns a quotation in a sample's prompt or reply; empty if there is none."""
        if not self._unknown:
            return ""
        texts = list(_strings(sample.response))
        for message in sample.messages:
            if message.role == "system":
                self.show(message.text)
            elif sample.kind == "text":
                # The query comes first, then the page.
                query, _, page = message.text.partition(f"<{FENCE}>")
                self.show(page)
                texts.append(query)
            else:
                texts.append(message.text)
        found = set[Ngram]().union(*(self._unknown & self._ngrams(text) for text in texts))
        self._quoted |= found
        return " ".join(min(found)) if found else ""

    def show(self, *texts: str) -> None:
        """Makes the words of texts known that the agent has from elsewhere."""
        if self._unknown:
            self._unknown -= set[Ngram]().union(*map(self._ngrams, texts)) - self._quoted

    def _ngrams(self, text: str) -> set[Ngram]:
        return _ngrams(_words(text), self._size)


_HYPHENATED = re.compile(r"(?<=\w)-\s*\n\s*(?=\w)")
_APOSTROPHE = re.compile(r"(?<=\w)['\u2018\u2019\u02bc](?=\w)")
# A letter of a script without spaces is a word.
_WORD = re.compile(
    r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+"
)


def _words(text: str) -> list[str]:
    """Returns the words of a text without case, accents, punctuation, markup and escapes."""
    text = urllib.parse.unquote(html.unescape(text)).replace("\\n", " ").replace("\\t", " ")
    text = unicodedata.normalize("NFKD", text)
    # Accents, and characters without width, such as soft hyphens.
    text = "".join(letter for letter in text if unicodedata.category(letter) not in ("Mn", "Cf"))
    return _WORD.findall(_APOSTROPHE.sub("", _HYPHENATED.sub("", text)).casefold())


def _ngrams(words: list[str], size: int) -> set[Ngram]:
    return set(zip(*(words[start:] for start in range(size)), strict=False))


def _strings(response: str) -> Iterator[str]:
    """Yields the texts in a JSON reply, without its keys; a reply that is not JSON is one text."""
    try:
        values = [json.loads(response)]
    except ValueError:
        yield response
        return
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, str):
            yield value
