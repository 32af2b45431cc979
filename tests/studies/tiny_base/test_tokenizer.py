"""The tiny base's tokenizer: what it promises to a model that copies indices and labels."""

import functools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.studies.tiny_base.corpus.words import tokenizer_texts
from experiments.studies.tiny_base.tokenizer import (
    CONTROL_TOKENS,
    build_tokenizer,
    save_tokenizer,
    structure_tokens,
)
from tests.references import transformers

VOCAB_SIZE = 1024
STATE = "[7]<button id=go />\n\tOk\n*[12]<input id=user placeholder=Name />\n<page_info>0.0 pages above, "
REPLY = (
    '{"evaluation_previous_goal":"Success","memory":"typed user","next_goal":"Click \'Ok\'",'
    '"action":[{"click_element_by_index":{"index":7}}]}'
)


@functools.cache
def made():
    tokenizer = build_tokenizer(tokenizer_texts(0, 4000), VOCAB_SIZE)
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture
def tokenizer():
    return made()


def pieces(tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_vocabulary_is_full_and_control_tokens_are_last(tokenizer):
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(VOCAB_SIZE))
    assert [vocabulary[token] for token in CONTROL_TOKENS] == list(range(VOCAB_SIZE - 26, VOCAB_SIZE))


@given(st.text(max_size=80))
def test_any_text_comes_back(text):
    tokenizer = made()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@given(st.lists(st.sampled_from([*CONTROL_TOKENS, "a", " ", "<", "|>"]), max_size=8))
def test_page_text_never_becomes_a_control_token(parts):
    tokenizer = made()
    control = set(range(VOCAB_SIZE - len(CONTROL_TOKENS), VOCAB_SIZE))
    assert not control & set(tokenizer.encode("".join(parts), add_special_tokens=False).ids)


def test_an_index_is_one_token_and_the_same_on_page_and_in_reply(tokenizer):
    for index in range(100):
        on_page = pieces(tokenizer, f"[{index}]<button />")
        in_reply = pieces(tokenizer, f'"action":[{{"click_element_by_index":{{"index":{index}}}}}]}}')
        assert on_page[1] == str(index) and str(index) in in_reply


def test_structure_is_one_token_each(tokenizer):
    for token in structure_tokens():
        assert len(tokenizer.encode(token, add_special_tokens=False).ids) == 1, token


def test_a_label_is_written_the_same_way_everywhere(tokenizer):
    for label in ("Ok", "username", "xQ7z", "Tab #2", "Cancel order"):
        alone = pieces(tokenizer, label)
        for before, after in (("\n\t", "\n"), (" id=", " />"), ("Click '", '\'","action":[{"'), (' "', '"')):
            written = pieces(tokenizer, before + label + after)
            assert any(written[at : at + len(alone)] == alone for at in range(len(written))), (before, label)


def test_replies_are_short(tokenizer):
    assert len(pieces(tokenizer, REPLY)) <= 20
    assert pieces(tokenizer, STATE)[:3] == ["[", "7", "]<button"]


def test_saved_files_are_read_by_transformers(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path, 512)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = STATE + REPLY + "<|im_end|>"
    ours = tokenizer.encode(text, add_special_tokens=False).ids
    assert loaded(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] == ours
    assert loaded.eos_token == "<|im_end|>"
    chat = [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]}]
    rendered = loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert rendered == (
        "<|im_start|>user\nhi<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 512
