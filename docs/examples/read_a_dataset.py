"""Read a data set: trajectories, SFT samples, RL prompts or audit records, whichever the folder holds.

    python docs/examples/read_a_dataset.py [FOLDER]

Without FOLDER the example writes a data set of one SFT sample first. The records' fields are described in
rmsweb_jax/records/schema.py.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from rmsweb_jax import read_dataset
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import ImagePart, Message, SftSample, TextPart
from rmsweb_jax.records.shards import read_manifest


def write_example(folder: Path) -> Path:
    png = io.BytesIO()
    Image.new("RGB", (64, 48), "lightgray").save(png, "PNG")
    content = (TextPart(text="Press Accept."), ImagePart(sha256=ImageStore(folder).put(png.getvalue())))
    message = Message(role="user", content=content)
    names = {"sample_id": "example-1", "task_id": "example", "site": "example.org", "kind": "action"}
    sample = SftSample(**names, messages=(message,), response='{"action":[{"go_back":{}}]}')
    write_dataset(folder, [sample], "sft_samples")
    return folder


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else write_example(Path(tempfile.mkdtemp()))
manifest = read_manifest(folder)
print(f"{folder}: {manifest.records} {manifest.kind}, made of {manifest.provenance or 'nothing else'}")
record = next(read_dataset(folder))
print(record.model_dump_json(indent=1)[:2000])
for sha256 in record_images(record):
    print(sha256, Image.open(ImageStore(folder).open(sha256)).size)
