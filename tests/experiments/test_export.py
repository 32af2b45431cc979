"""Releases as others load them: transformers and PEFT answer as our own sampler does, image included."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from huggingface_hub import ModelCard
from ml_collections import ConfigDict
from PIL import Image

from configs import rl as rl_config
from configs import sft as sft_config
from configs.export import get_config
from experiments import export, train_sft
from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.errors import UserError
from rmsweb_jax.export.config import ExportSettings
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, RlPrompt, SftSample, TextPart
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import Settings, from_config
from rmsweb_jax.sft import train as sft_train
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.workdir import check_config
from tests.decoding.drawing import draw
from tests.policies import REPLY, random_messages, write_corpus
from tests.references import peft, torch, transformers
from tests.report.evaluated import make_results, write_evaluation
from tests.sft.test_peft_parity import save_model_folder

NEW = 24
PAD = "<|image_pad|>"
MAX_PIXELS = 4096


S = TypeVar("S", bound=Settings)


def begin(type_: type[S], config: ConfigDict, workdir: Path) -> S:
    """Writes the config as the command line does before a stage's `main`."""
    workdir.mkdir()
    check_config(config, workdir, frozenset())
    return from_config(type_, config)


@pytest.fixture(scope="module")
def sft_run(tmp_path_factory) -> Path:
    """A real training of adapters on all linear layers, seven updates."""
    root = tmp_path_factory.mktemp("runs")
    base = root / "tiny"
    save_model_folder(base)
    (base / "README.md").write_text("---\nlicense: apache-2.0\ntags: [x]\n---\n# Tiny\n")
    write_corpus(root / "sft_corpus", [1 + number % 3 for number in range(14)])
    config = sft_config.get_config("smoke")
    config.model, config.corpus = str(base), str(root / "sft_corpus")
    config.max_length, config.max_pixels = 256, MAX_PIXELS
    config.batch_size, config.epochs = 4, 2
    config.row_tokens, config.row_multiple = 512, 128
    config.trainable, config.lora.rank, config.lora.alpha = "lora", 2, 4.0
    config.learning_rate = 0.02
    train_sft.main(begin(SftConfig, config, root / "sft"), root / "sft")
    return root / "sft"


@pytest.fixture(scope="module")
def rl_run(sft_run) -> Path:
    """Writes an RL workdir with the real loaders and writers, and non-zero adapters."""
    root = sft_run.parent
    images = ImageStore(root / "prompts")
    prompts = [
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"t{number}",
            site="s",
            category="ui_navigation",
            messages=random_messages(number, images, 1),
            target=REPLY % 1,
        )
        for number in range(4)
    ]
    write_dataset(root / "prompts", prompts, "rl_prompts", {"pools": [str(root / "gone")], "teacher": "x"})
    config = rl_config.get_config("smoke")
    config.model, config.prompts = str(sft_run / "export"), str(root / "prompts")
    config.max_pixels, config.lora.rank, config.lora.alpha = MAX_PIXELS, 4, 8.0
    folder = root / "rl"
    settings = begin(RlConfig, config, folder)
    mesh = make_mesh()
    model = load_policy(settings, sft_run / "export", mesh, settings.lora, settings.seed)
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(jnp.asarray(0.3 * rng.standard_normal(variable.shape, np.float32)))
    graphdef, params, frozen = split_model(model, "lora")
    sft_train.export(
        nnx.merge(graphdef, params, frozen), sft_run / "export", folder, settings.lora, config.model
    )
    report = {
        "stage": "train_rl",
        "seconds": 10.0,
        "iterations": 2,
        "optimizer_steps": 4,
        "prompts": 3,
        "held_out": 1,
        "parameters": {"base": 1000, "adapters": 10},
        "final": {"eval/reward": 0.5, "eval/reward/type/done": 0.1, "time/rollout": 3.0},
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def release(run: Path, workdir: Path, format_: str = "merged", **settings) -> Path:
    config = get_config(format_)
    config.update({"run": str(run), **settings})
    workdir.mkdir(exist_ok=True)
    export.main(from_config(ExportSettings, config), workdir)
    return workdir / "release"


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory) -> Path:
    return write_evaluation(
        tmp_path_factory.mktemp("evaluation") / "wv", make_results("sft", "webvoyager", 0.6, unjudged=9)
    )


@pytest.fixture(scope="module")
def merged(sft_run, evaluation, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    return release(sft_run, folder, results=f"sft={evaluation}")


def screenshot(number: int) -> Image.Image:
    """Noise, larger than the limit of pixels."""
    pixels = np.random.default_rng(number).integers(0, 255, (64, 96, 3), np.uint8)
    return Image.fromarray(pixels)


PROMPTS = [("Click the button.", 1), ("Type a name.", 2), ("No picture here.", 0)]


def messages(text: str, pictures: int, images: ImageStore) -> tuple[Message, ...]:
    parts: list[TextPart | ImagePart] = [TextPart(text=text)]
    for number in range(pictures):
        png = io.BytesIO()
        screenshot(number).save(png, "PNG")
        parts.append(ImagePart(sha256=images.put(png.getvalue())))
    system = Message(role="system", content=(TextPart(text="You act in a browser."),))
    return (system, Message(role="user", content=tuple(parts)))


def our_replies(model_folder: Path, images: ImageStore) -> list[list[int]]:
    """Greedy, from the run's own export by this project's sampler."""
    processor = Processor.from_pretrained(model_folder, MAX_PIXELS)
    examples = []
    for number, (text, pictures) in enumerate(PROMPTS):
        prompt = processor.encode_prompt(messages(text, pictures, images), images.get)
        length = len(prompt.tokens)
        tokens = np.append(prompt.tokens, processor.end_id).astype(np.int32)
        mask = np.zeros(1, bool)
        examples.append(Example(f"p{number}", tokens, length, mask, prompt.patches, prompt.grids))
    sizes = sizes_for(
        [(one.prompt_length, list(map(len, one.patches))) for one in examples],
        samples=1,
        response_tokens=NEW,
        lanes=len(PROMPTS),
    )
    drawn = draw(
        load_model(model_folder),
        examples,
        Sampling(1, NEW, 0.0),
        sizes=sizes,
        eos=processor.end_id,
        banned=tuple(processor.banned_ids),
    )
    return [one.tokens[0].tolist() for one in drawn]


def their_replies(model: torch.nn.Module, folder: Path, first: int = 0) -> list[list[int]]:
    """Greedy, by transformers from what the release holds, as its processor would put it together.

    `AutoProcessor` itself needs torchvision (for videos); its parts do not.

    Args:
      first: number of the first screenshot of each prompt.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cutter = transformers.AutoImageProcessor.from_pretrained(folder)
    template = (folder / "chat_template.jinja").read_text()
    replies = []
    for text, pictures in PROMPTS:
        parts = [{"type": "text", "text": text}, *({"type": "image"} for _ in range(pictures))]
        chat = [
            {"role": "system", "content": [{"type": "text", "text": "You act in a browser."}]},
            {"role": "user", "content": parts},
        ]
        prompt = tokenizer.apply_chat_template(
            chat, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        inputs = {}
        if pictures:
            inputs = dict(cutter([screenshot(first + n) for n in range(pictures)], return_tensors="pt"))
            sizes = (inputs["image_grid_thw"].prod(dim=1) // cutter.merge_size**2).tolist()
            before, *others = prompt.split(PAD)
            prompt = before + "".join(PAD * size + after for size, after in zip(sizes, others, strict=True))
        inputs |= tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        if pictures:
            pad = torch.tensor(tokenizer.convert_tokens_to_ids(PAD))
            inputs["mm_token_type_ids"] = torch.eq(inputs["input_ids"], pad).int()
        length = inputs["input_ids"].shape[1]
        with torch.no_grad():
            out = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
        replies.append(out[0, length:].tolist())
    return replies


@pytest.fixture(scope="module")
def ours(sft_run, tmp_path_factory) -> list[list[int]]:
    replies = our_replies(sft_run / "export", ImageStore(tmp_path_factory.mktemp("images")))
    # Replies that are long and of each other's different say something when they are equal.
    print(replies)
    assert min(map(len, replies)) > NEW // 2 or len({tuple(reply) for reply in replies}) == len(replies)
    return replies


def test_merged_weights_load_in_transformers_and_give_the_same_greedy_replies(merged, ours):
    model = transformers.AutoModelForImageTextToText.from_pretrained(merged, dtype=torch.float32).eval()
    assert isinstance(model, transformers.Qwen3VLForConditionalGeneration)
    assert their_replies(model, merged) == ours
    others = their_replies(model, merged, first=7)
    assert [mine == other for mine, other in zip(ours, others, strict=True)] == [False, False, True]


def test_adapters_load_in_peft_and_give_the_same_greedy_replies(sft_run, ours, tmp_path):
    folder = release(sft_run, tmp_path, "adapter")
    assert not (folder / "config.json").exists()
    base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    model = transformers.AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
    before = their_replies(model.eval(), folder)
    policy = peft.PeftModel.from_pretrained(model, folder).eval()
    policy.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    assert their_replies(policy, folder) == ours
    assert before != ours


def test_a_run_of_before_writes_its_adapters_when_it_is_run_again(sft_run, tmp_path):
    """As the error of a run without them says."""
    run = tmp_path / "run"
    shutil.copytree(sft_run, run)
    shutil.rmtree(run / "adapters")
    (run / "report.json").unlink()
    train_sft.main(from_config(SftConfig, json.loads((run / "config.json").read_text())), run)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (run / "adapters" / name).read_bytes() == (sft_run / "adapters" / name).read_bytes()


def test_adapters_of_rl_belong_on_the_merged_sft_policy(rl_run, sft_run, tmp_path, tmp_path_factory):
    folder = release(rl_run, tmp_path, "adapter", license="apache-2.0")
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(sft_run / "export")
    assert settings["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    model = transformers.AutoModelForImageTextToText.from_pretrained(sft_run / "export", dtype=torch.float32)
    policy = peft.PeftModel.from_pretrained(model, folder).eval()
    policy.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    expected = our_replies(rl_run / "export", ImageStore(tmp_path_factory.mktemp("images")))
    assert their_replies(policy, folder) == expected


def test_the_whole_processor_loads_where_videos_can_be_read(merged):
    pytest.importorskip("torchvision", reason="transformers reads videos with it")
    processor = transformers.AutoProcessor.from_pretrained(merged)
    assert processor.image_processor.size["longest_edge"] == MAX_PIXELS
    assert processor.chat_template == (merged / "chat_template.jinja").read_text()


def test_every_file_is_in_the_sums_and_intact(merged):
    lines = (merged / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums.keys() == {path.name for path in merged.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((merged / name).read_bytes()).hexdigest() == digest
    assert {"README.md", "config.json", "tokenizer.json", "tokenizer_config.json"} <= sums.keys()
    assert {"preprocessor_config.json", "chat_template.jinja", "generation_config.json"} <= sums.keys()


def test_generation_defaults_are_the_recipes(merged):
    settings = json.loads((merged / "generation_config.json").read_text())
    processor = Processor.from_pretrained(merged)
    assert (settings["do_sample"], settings["temperature"], settings["top_k"]) == (True, 0.6, 0)
    assert settings["eos_token_id"] == processor.end_id
    assert settings["suppress_tokens"] == list(processor.banned_ids)


def test_the_hub_reads_the_cards_data_config_metrics_and_licence(merged, sft_run):
    card = ModelCard((merged / "README.md").read_text())
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.to_dict().get("base_model") is None  # The hub name is unknown.
    results = {one.metric_type: one for one in card.data.eval_results}
    assert results.keys() == {"pass@1", "pass@3"}
    assert results["pass@1"].dataset_type == "webvoyager"
    report = json.loads((sft_run / "report.json").read_text())
    text = card.text
    assert f"{report['samples']:,} samples" in text
    assert f"| loss/train | {report['final']['loss/train']:.4g} |" in text
    assert "| learning\\_rate | 0.02 |" in text
    assert "14 sft samples" in text
    assert "40 × 3" in text and "603" in text  # Tasks, runs, and what of 643 is left out.
    assert "that of tiny, as its card says" in text
    assert "No comparison of the training tasks" in text
    assert "0 of 40 tasks of WebVoyager (sft) were trained on" in text
    assert str(sft_run.parent) not in text


def test_the_rl_card_lists_both_trainings_and_trained_tasks(rl_run, tmp_path):
    seen = make_results("rl", "webvoyager", 0.5, tasks=range(12))
    table = seen.table.replace({"task_id": {seen.tasks[0]: "t0"}})
    check = {"checked": True, "overlapping": 1, "training_tasks": 4, "questions": 643}
    folder = write_evaluation(
        tmp_path / "e",
        dataclasses.replace(seen, table=table),
        contamination={**check, "by_test": {"same_id": 1}, "training": ["/home/x/collect"]},
    )
    settings = {"results": f"rl={folder}", "base_model": "Owner/Tiny", "name": "Mine"}
    card = ModelCard((release(rl_run, tmp_path, **settings) / "README.md").read_text())
    assert card.data.base_model == "Owner/Tiny"
    assert card.data.model_name == "Mine"
    assert "supervised fine-tuning, then Salvage-DS reinforcement learning" in card.text
    assert card.text.index("### supervised fine-tuning") < card.text.index("### Salvage-DS")
    assert "3 prompts (mined), 1 held out" in card.text
    assert "| eval/reward | 0.5 |" in card.text and "time/rollout" not in card.text
    assert "4 rl prompts, teacher x" in card.text
    assert "1 of 12 tasks of WebVoyager (rl) were trained on" in card.text
    assert "1 of 4 training tasks repeat one of its 643 questions" in card.text
    assert "same\\_id 1" in card.text and "/home/x" not in card.text


def test_a_replayed_corpus_is_on_the_card(rl_run, tmp_path):
    run, corpus = tmp_path / "rl", tmp_path / "replayed"
    shutil.copytree(rl_run, run)
    made = {"task_id": "t99", "site": "s", "kind": "action", "response": REPLY % 1}
    sample = SftSample(sample_id="s", messages=random_messages(0, ImageStore(corpus), 1), **made)
    write_dataset(corpus, [sample], "sft_samples", {"teacher": "y"})
    for name, change in (("report", {"replay": {"data": str(corpus)}}), ("config", {"replay": str(corpus)})):
        path = run / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    seen = make_results("rl", "webvoyager", 0.5, tasks=range(12))
    table = seen.table.replace({"task_id": {seen.tasks[0]: "t99"}})
    folder = write_evaluation(tmp_path / "e", dataclasses.replace(seen, table=table))
    text = (release(run, tmp_path, results=f"rl={folder}") / "README.md").read_text()
    assert "`replayed`: 1 sft samples, teacher y" in text and str(tmp_path) not in text
    assert "1 of 12 tasks of WebVoyager (rl) were trained on" in text


def test_the_contamination_check_of_the_tasks_is_on_the_card(rl_run, tmp_path):
    """Prompts from a pool that was played on tasks which `make_tasks` had compared with benchmarks."""
    pool, tasks = tmp_path / "pool", tmp_path / "tasks"
    write_dataset(
        pool,
        [RlPrompt(prompt_id="p", task_id="t", site="s", category="c", messages=(), target="{}")],
        "rl_prompts",
        {"kind": "gemini"},
    )
    (pool / "config.json").write_text(
        json.dumps({"tasks_file": str(tasks / "tasks.jsonl"), "tasks_from": ""})
    )
    tasks.mkdir()
    report = {
        "contamination_checked": True,
        "contaminated_by": {"webvoyager exact": 2},
        "questions": 1552,
        "tasks": 90,
    }
    (tasks / "report.json").write_text(json.dumps(report))
    run = tmp_path / "rl"
    shutil.copytree(rl_run, run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "prompts": str(tmp_path / "prompts")}))
    prompt = RlPrompt(prompt_id="p", task_id="t", site="s", category="c", messages=(), target="{}")
    write_dataset(tmp_path / "prompts", [prompt], "rl_prompts", {"pools": [str(pool)]})
    text = (release(run, tmp_path / "out") / "README.md").read_text()
    assert "90 training tasks passed a comparison with 1,552 questions" in text
    assert "webvoyager exact 2" in text
    assert "contains replies of a teacher (gemini)" in text


def test_base_files_are_copied_except_for_changed_ones(sft_run, tmp_path):
    """A folder like Qwen's: a template in a separate file, another limit of pixels, a video processor."""
    run = tmp_path / "run"
    shutil.copytree(sft_run, run)
    tokenizer = run / "export/tokenizer_config.json"
    settings = json.loads(tokenizer.read_text())
    template = settings.pop("chat_template")
    tokenizer.write_text(json.dumps(settings))
    files = {
        "chat_template.json": {"chat_template": template},
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "do_resize": True,
            "max_pixels": 9,
            "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
        },
        "video_preprocessor_config.json": {"video_processor_type": "Qwen3VLVideoProcessor", "fps": 3},
        "generation_config.json": {"temperature": 0.7, "top_k": 20},
    }
    for name, content in files.items():
        (run / "export" / name).write_text(json.dumps(content))
    folder = release(run, tmp_path)
    assert (folder / "chat_template.jinja").read_text() == template
    assert not (folder / "chat_template.json").exists()
    images = json.loads((folder / "preprocessor_config.json").read_text())
    assert images["size"] == {"longest_edge": MAX_PIXELS, "shortest_edge": 1024}
    assert images["do_resize"] is True and "max_pixels" not in images
    assert json.loads((folder / "video_preprocessor_config.json").read_text())["fps"] == 3
    assert json.loads((folder / "generation_config.json").read_text())["top_k"] == 0


def test_a_release_that_is_there_is_left_alone(merged, sft_run):
    before = {path.name: path.read_bytes() for path in merged.iterdir()}
    with pytest.raises(UserError, match="is not empty"):
        release(sft_run, merged.parent)
    assert {path.name: path.read_bytes() for path in merged.iterdir()} == before


def test_a_failed_export_leaves_no_files(sft_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(sft_run, run)
    (run / "export/tokenizer_config.json").write_text("{}")
    (tmp_path / ".release.0123.tmp").mkdir()
    with pytest.raises(UserError, match="chat template"):
        release(run, tmp_path)
    assert not list(tmp_path.glob("*release*"))


def drop_report(run: Path) -> None:
    (run / "report.json").unlink()


def drop_config(run: Path) -> None:
    (run / "config.json").unlink()


def drop_export(run: Path) -> None:
    shutil.rmtree(run / "export")


def drop_adapters(run: Path) -> None:
    shutil.rmtree(run / "adapters")


def tear_adapters(run: Path) -> None:
    path = run / "adapters/adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def train_all(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "trainable": "all"}))


def other_stage(run: Path) -> None:
    (run / "report.json").write_text(json.dumps({"stage": "mine"}))


def tear_weights(run: Path) -> None:
    path = run / "export/model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def other_template(run: Path) -> None:
    path = run / "export/tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] = settings["chat_template"].replace("system", "sys").replace("\\n", "\\n\\n")
    path.write_text(json.dumps(settings))


def lose_card(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "model": "Qwen3-VL-8B-Instruct"}))


@pytest.mark.parametrize(
    ("damage", "format_", "message"),
    [
        (drop_report, "merged", "has not finished"),
        (drop_config, "merged", "no training was begun"),
        (drop_export, "merged", "exported model is gone"),
        (other_stage, "merged", "made by mine"),
        (tear_weights, "merged", "model.safetensors: .*not fully covered"),
        (other_template, "merged", "does not render the text"),
        (lose_card, "merged", "--config.license=NAME"),
        (drop_adapters, "adapter", "no adapters .*delete this run's report.json"),
        (tear_adapters, "adapter", "adapter_model.safetensors: .*delete this run's report.json"),
        (train_all, "adapter", "every parameter was trained"),
    ],
)
def test_runs_that_cannot_be_exported_are_one_line(sft_run, tmp_path, damage, format_, message):
    run = tmp_path / "run"
    shutil.copytree(sft_run, run)
    damage(run)
    with pytest.raises(UserError, match=message) as raised:
        release(run, tmp_path / "out", format_)
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("settings", [{"run": ""}, {"format": "gguf"}, {"temperature": 0.0}])
def test_settings_that_cannot_be_used_are_one_line(sft_run, tmp_path, settings):
    config = get_config("merged")
    config.update({"run": str(sft_run), **settings})
    with pytest.raises(UserError, match=f"config.{next(iter(settings))}"):
        export.main(from_config(ExportSettings, config), tmp_path)
