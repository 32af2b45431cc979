"""Fine-tune on conversations of your own, with images: the messages format, as TRL and LLaMA-Factory take it.

    python docs/examples/own_chats.py WORKDIR [MODEL] [CHATS]

CHATS is .jsonl, .json or .parquet; without it, conversations about coloured pictures are written. By command:
python -m experiments.train_sft --config=configs/sft.py:8b --config.corpus=CHATS --workdir=WORKDIR
"""

import json
import sys
from pathlib import Path

from PIL import Image

from rmsweb_jax import Policy, train_sft

QUESTION = "Which colour is this?"


def write_chats(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "chats.jsonl", "w") as file:
        for number, colour in enumerate(("red", "green", "blue", "black") * 4):
            Image.new("RGB", (64, 64 + number), colour).save(folder / f"{number}.png")
            ask = {"role": "user", "content": [{"type": "text", "text": QUESTION}, {"type": "image"}]}
            reply = {"role": "assistant", "content": f"It is {colour}."}
            print(json.dumps({"messages": [ask, reply], "images": [f"{number}.png"]}), file=file)
    return folder / "chats.jsonl"


workdir = Path(sys.argv[1])
model = sys.argv[2] if len(sys.argv) > 2 else "tiny_base"
chats = sys.argv[3] if len(sys.argv) > 3 else str(write_chats(workdir / "pictures"))
small = {"dtype": "float32", "param_dtype": "float32", "row_tokens": 512, "row_multiple": 128}
config = {"corpus": chats, "model": model, "trainable": "all", "epochs": 20, "batch_size": 8, **small}
report = train_sft(config | {"learning_rate": 1e-3, "eval": {"share": 0.0}}, workdir / "run")
print(f"{report['samples']} replies, loss {report['final']['loss/train']:.2f}")
policy, picture = Policy.load(workdir / "run/export"), Image.new("RGB", (64, 64), "green")
print(policy.chat(QUESTION, images=[picture], max_new_tokens=16))
