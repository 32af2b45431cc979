"""The tiny base's tokenizer: byte-level BPE with Qwen's control tokens and one token a structural phrase.

It suits a model of a few million parameters and prompts of a few hundred tokens: a word has the same tokens
everywhere (spaces and quotes are tokens of their own), each integer 0..99 is one token (an element's index is
copied as one), and the fixed phrases of the state message and of the canonical reply are one token each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip

_TAGS = (
    "button", "input", "a", "span", "div", "select", "option", "textarea", "label", "h3", "li", "p", "td",
    "img",
)  # fmt: skip
_ATTRIBUTES = (
    "id", "type", "name", "value", "placeholder", "aria-label", "aria-expanded", "aria-selected",
    "aria-checked",
    "href", "role", "checked", "selected", "title", "class", "alt", "for",
)  # fmt: skip
_REPLY = (
    '{"evaluation_previous_goal":"', '","memory":"', '","next_goal":"', "\",\"action\":[{\"",
    "'\",\"action\":[{\"",
    'click_element_by_index":{"index":', 'input_text":{"index":', 'select_dropdown_option":{"index":',
    'get_dropdown_options":{"index":', 'scroll":{"down":true,"num_pages":',
    'scroll":{"down":false,"num_pages":',
    'send_keys":{"keys":"', 'done":{"text":"', ',"text":"', '","success":true}}]}',
    '","success":false}}]}', '"}}]}',
    "}}]}", '"}},{"', "}},{\"", "Click '", "Type '", "Select '", "' into '", "' in '", "Scroll down",
    "Scroll up",
    "Finish", "Success", "Failed", "Start", "clicked ", "typed ", "selected ",
)  # fmt: skip
_STATE = (
    "system\n", "user\n", "assistant\n",
    "You operate a web page. Answer with one JSON object: "
    "evaluation_previous_goal, memory, next_goal, action.",
    "<agent_history>\n", "</agent_history>\n", "<step_", "</step_", ">\n", ">\nEvaluation: ", "\nMemory: ",
    "\nNext goal: ", "\nResult: ", "Result: ", "<agent_state>\n<user_request>\n", "\n</user_request>\n",
    "<step_info>Step ", " of ", "</step_info>\n",
    "</step_info>\n</agent_state>\n<browser_state>\n<page_stats>",
    "</agent_state>\n<browser_state>\n<page_stats>", "</page_stats>\nCurrent tab: ", "\nTab ",
    "http://miniwob.test/",
    ".html", " - ", ": ", "\n<page_info>", " pages above, ", " pages below, ", " total</page_info>\n",
    "0.0 pages above, 0.0 pages below, 1.0 total</page_info>\n", "[Start of page]\n", "\n[End of page]\n",
    " pages above ...\n", " pages below ...\n", "\n... ", "... ", "</browser_state>\n", "<read_state>\n",
    "\n</read_state>\n", "<reflection_guidance>\n", "\n</reflection_guidance>\n",
    " links", " interactive", " iframes", " scroll containers", " images", " total elements", ", ",
    "*[", "[", "]", "|SCROLL", "|IFRAME|", "|SHADOW(open)|", "START",
)  # fmt: skip
_INDEX_LIMIT = 100
_MAX_DEPTH = 10


def structure_tokens() -> list[str]:
    """Phrases that are one token each everywhere; none of them controls the chat."""
    tabs = ["\t" * depth for depth in range(1, _MAX_DEPTH + 1)]
    lines = ["\n", *("\n" + tab for tab in tabs), *tabs]
    closings = [" />", " />\n", *(" />\n" + tab for tab in tabs)]
    tags = [f"]<{tag}" for tag in _TAGS] + [f"<{tag}" for tag in _TAGS]
    attributes = [f" {name}=" for name in _ATTRIBUTES]
    integers = [str(number) for number in range(_INDEX_LIMIT)]
    return list(dict.fromkeys([*integers, *lines, *closings, *tags, *attributes, *_REPLY, *_STATE]))


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learns the merges from `texts` and adds the fixed tokens after them.

    Args:
      vocab_size: ids in all: bytes, merges, structure and control tokens.
    """
    structure = structure_tokens()
    tokenizer = Tokenizer(models.BPE())
    words = Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]|\s")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # A single character of the structure is in the byte alphabet already: it takes no new id.
    new = [token for token in structure if len(token) > 1 or token not in alphabet]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(new) - len(CONTROL_TOKENS),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
        max_token_length=12,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    known = tokenizer.get_vocab()
    tokenizer.add_tokens([_plain(token) for token in structure if token not in known or token.isdigit()])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
    )
    return tokenizer


def _plain(text: str) -> AddedToken:
    return AddedToken(text, normalized=False, special=False)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Writes `tokenizer.json` and the `tokenizer_config.json` that transformers' `AutoTokenizer` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "split_special_tokens": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n")


def token_ids(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[int]:
    """Ids of whole tokens.

    Raises:
      KeyError: a token is not in the vocabulary.
    """
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[token] for token in tokens]


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
