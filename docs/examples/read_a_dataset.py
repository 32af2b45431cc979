"""Read a data set: trajectories, SFT samples, RL prompts or audit records, whichever the folder holds.

    python docs/examples/read_a_dataset.py [FOLDER]

Without FOLDER the example writes a data set of one SFT sample first.
"""

import io
import sys
import tempfile

from PIL import Image

from rmsweb_jax import ImagePart, ImageStore, Message, SftSample, TextPart, read_dataset, write_dataset


def write_example(folder: str) -> str:
    png = io.BytesIO()
    Image.new("RGB", (64, 48), "lightgray").save(png, "PNG")
    content = (TextPart(text="Press Accept."), ImagePart(sha256=ImageStore(folder).put(png.getvalue())))
    message = Message(role="user", content=content)
    reply = '{"action":[{"go_back":{}}]}'
    names = {"sample_id": "example-1", "task_id": "example", "site": "example.org"}
    sample = SftSample(**names, kind="action", messages=(message,), response=reply)
    write_dataset(folder, [sample], "sft_samples")
    return folder


folder = sys.argv[1] if len(sys.argv) > 1 else write_example(tempfile.mkdtemp())
records = list(read_dataset(folder))
print(f"{folder}: {len(records)} records of type {type(records[0]).__name__}")
print(records[0].model_dump_json(indent=1)[:2000])
for message in getattr(records[0], "messages", ()):
    for part in message.content:
        if isinstance(part, ImagePart):
            print(part.sha256, Image.open(ImageStore(folder).open(part.sha256)).size)
