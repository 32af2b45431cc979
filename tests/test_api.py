"""`Policy`: what it answers, samples and scores, against the parts that training and the server use."""

import base64
import io
import json
import shutil

import httpx
import huggingface_hub.constants
import jax
import numpy as np
import pytest
from PIL import Image

import rmsweb_jax
from rmsweb_jax.api import Policy, read_prompt
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.inputs import ModelInputs, image_rows, mrope_positions, vision_inputs
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.server import serving_engine
from rmsweb_jax.training.mesh import make_mesh
from tests.policies import random_messages
from tests.serve.conftest import serving

PIXELS, NEW_TOKENS = 4096, 8
TEXTS = ["Click the button.", "Type the name.", "Go back. " * 20]
SYSTEM = "You act in a browser."


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.load("tiny_base", max_pixels=PIXELS)


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 96, 3), np.uint8))


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_chat_is_the_greedy_reply_of_the_server(policy, picture):
    shown = f"data:image/png;base64,{base64.b64encode(png(picture)).decode()}"
    content = [{"type": "text", "text": TEXTS[0]}, {"type": "image_url", "image_url": {"url": shown}}]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    config = ServeSettings(model="tiny_base", lanes=1, prompt_tokens=256, max_new_tokens=NEW_TOKENS)
    engine = ServingEngine(serving_engine(policy.model, policy.processor, config), policy.model, 1)
    engine.start()
    with serving(engine, policy.processor, model="tiny_base", max_new_tokens=NEW_TOKENS) as url:
        body = {"messages": messages, "temperature": 0.0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=3000).raise_for_status()
    engine.close()
    served = answer.json()["choices"][0]["message"]["content"]
    chat = {"system": SYSTEM, "max_new_tokens": NEW_TOKENS}
    assert policy.chat(TEXTS[0], [picture], **chat) == served != ""
    assert policy.chat(TEXTS[0], png(picture), **chat) == served


def test_prompts_may_be_texts_chats_or_records(policy, picture, tmp_path):
    path = tmp_path / "picture.png"
    picture.save(path)
    content = [{"type": "text", "text": TEXTS[0]}, {"type": "image", "image": path}]
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    replies = (
        policy.chat(TEXTS[0], path, system=SYSTEM, max_new_tokens=NEW_TOKENS),
        policy.chat(chat, max_new_tokens=NEW_TOKENS),
    )
    assert replies[0] == replies[1]
    store = ImageStore(tmp_path)
    recorded = random_messages(3, store, repeats=2)
    shown = Image.open(store.open(recorded[1].content[1].sha256))
    text = recorded[1].text
    found = policy.score(recorded, "go", store).log_probs
    parts = [{"type": "text", "text": text}, {"type": "image", "image": shown}]
    same = [recorded[0], {"role": "user", "content": parts}]
    np.testing.assert_array_equal(policy.score(same, "go").log_probs, found)


def plain_log_probs(policy: Policy, text: str, picture: Image.Image, reply: str) -> np.ndarray:
    """Every token of the reply by one forward pass over one row, without padding."""
    processor, config = policy.processor, policy.model.config
    prompt = processor.encode_prompt(*read_prompt(text, picture))
    target = processor.encode_response(reply).tokens
    tokens = np.concatenate([prompt.tokens, target])
    grids, patches = prompt.grids, prompt.patches
    inputs = ModelInputs(
        tokens[None],
        mrope_positions(tokens, grids, config)[:, None],
        np.full((1, len(tokens)), len(tokens), np.int32),
        image_rows(tokens, grids, [0], config)[None],
        vision_inputs(patches, grids, config, len(patches[0])),
    )
    logits = jax.jit(lambda inputs: policy.model.head()(policy.model(inputs)))(inputs)
    logits = logits[0, len(prompt.tokens) - 1 : -1]
    return np.asarray(jax.nn.log_softmax(logits)[np.arange(len(target)), target])


def test_score_is_the_log_probability_under_a_plain_forward(policy, picture):
    reply = '{"action":[{"done":{"text":"three words here","success":true}}]}'
    score = policy.score(TEXTS[0], reply, [picture])
    assert score.tokens.tolist() == policy.processor.encode_response(reply).tokens.tolist()
    assert score.tokens[-1] == policy.processor.end_id
    np.testing.assert_allclose(score.log_probs, plain_log_probs(policy, TEXTS[0], picture, reply), atol=1e-4)
    assert score.total == pytest.approx(score.log_probs.sum(), rel=1e-6) and score.total < 0
    blank = policy.score(TEXTS[0], reply, [Image.new("RGB", picture.size)])
    assert abs(blank.log_probs - score.log_probs).max() > 1e-3
    likely = policy.chat(TEXTS[1], max_new_tokens=NEW_TOKENS)
    best, other = (policy.score(TEXTS[1], text).log_probs for text in (likely, likely[::-1]))
    assert best[0] > other[0]


def test_samples_depend_on_prompt_seed_and_number_alone(policy):
    settings = {"max_new_tokens": NEW_TOKENS, "temperature": 3.0}
    replies = policy.sample(TEXTS, n=2, batch_size=1, seed=5, **settings)
    assert [len(one) for one in replies] == [2, 2, 2] and replies[0][0] != replies[0][1]
    assert policy.sample(TEXTS, n=2, batch_size=2, seed=5, **settings) == replies
    assert policy.sample(TEXTS[::-1], n=2, batch_size=2, seed=5, **settings) == replies[::-1]
    assert policy.sample(TEXTS, n=2, batch_size=2, seed=6, **settings) != replies
    assert policy.sample([]) == []
    greedy = policy.sample(TEXTS[:1], n=2, temperature=0.0, max_new_tokens=NEW_TOKENS)[0]
    assert greedy == [policy.chat(TEXTS[0], max_new_tokens=NEW_TOKENS)] * 2


def test_a_mesh_of_all_devices_gives_the_same(policy):
    spread = Policy.load("tiny_base", max_pixels=PIXELS, mesh=make_mesh())
    np.testing.assert_allclose(
        spread.score(TEXTS[0], "go").log_probs, policy.score(TEXTS[0], "go").log_probs, atol=1e-5
    )


def test_mistakes_are_one_line(policy, picture, tmp_path):
    (tmp_path / "page.html").write_text("<html>")
    wrong = {
        "nothing.png: No such file": lambda: policy.chat("a", "nothing.png"),
        r"page.html: .*cannot be read": lambda: policy.chat("a", [tmp_path / "page.html"]),
        "an image of 5 bytes cannot be read": lambda: policy.chat("a", b"bytes"),
        r"\d+ tokens and 8 new ones .* context of 4096": lambda: policy.chat(
            "a " * 5000, max_new_tokens=NEW_TOKENS
        ),
        "exceed the model's context of 4096": lambda: policy.score("a " * 5000, "b"),
        "is not a message: give a role": lambda: policy.chat([{"role": "user"}]),
        "'robot', 'content': 'a'} is not a message": lambda: policy.chat([{"role": "robot", "content": "a"}]),
        "images go into the messages": lambda: policy.chat([{"role": "user", "content": "a"}], picture),
        "takes a list of prompts": lambda: policy.sample("a"),
        "n is 0": lambda: policy.sample(["a"], n=0),
    }
    for message, call in wrong.items():
        with pytest.raises(UserError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_a_hub_name_is_found_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "models--some-org--some-model"
    snapshot = model / "snapshots" / ("0" * 40)
    shutil.copytree(resolve_model("tiny_base"), snapshot)
    (model / "refs").mkdir()
    (model / "refs/main").write_text("0" * 40)
    assert resolve_model("some-org/some-model") == snapshot
    missing = problem("some-org/other")
    assert "no model at some-org/other (config.json is missing), nor on the Hugging Face Hub (" in missing
    # A mistyped path below a folder that exists is looked for nowhere else.
    assert "Hub (" not in problem("models--some-org--some-model/export")


def problem(name: str) -> str:
    with pytest.raises(
        UserError, match="give a model folder, tiny_base or the name of a Hub model"
    ) as raised:
        resolve_model(name)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_unknown_model_is_one_line(tmp_path):
    for name in (tmp_path / "nothing", "tiny_bass"):
        with pytest.raises(UserError, match=r"no model at .*(nothing|tiny_bass) \(config.json is missing\)"):
            Policy.load(name)


def test_names_of_models_are_taken_everywhere():
    assert json.loads(rmsweb_jax.Processor.from_pretrained("tiny_base").tokenizer.to_str())
    assert rmsweb_jax.load_model("tiny_base").config.text.max_position_embeddings == 4096
