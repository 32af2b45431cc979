"""The recipe with every workdir in a bucket against that on a disk, and what kills leave. 20 minutes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.storage import AnyPath, StorePath, parse_path
from rmsweb_jax.training.metrics import GROUPS_FILE, METRICS_FILE, REPLIES_FILE, read_rows
from tests.fleet.watched import without_times
from tests.proofs.bucket_input import input_rate, requests_per_thousand
from tests.proofs.bucket_kills import (
    CHECKPOINT_EVERY,
    STEPS,
    TRAINER_LEASE_S,
    Kills,
    kill_publishers,
    kill_trainers,
    model_digest,
)
from tests.proofs.result import Claim, Figures, Proof, main, table
from tests.proofs.runs import untimed
from tests.storage.chain import COLLECTORS, run_stage, stages
from tests.storage.faulty_proxy import FaultyProxy
from tests.storage.publisher import LEASE_SECONDS
from tests.storage.servers import serve, variables

HOSTS = 2
SCHEMES = ("gs", "s3")
PUBLISHER_KILLS, TRAINER_KILLS = 16, 6
TOKENS_PER_S = 30_000
# The hosts of the killed training runs.
TRAINERS = {"gs": 2, "s3": 2}
_DATASETS = (
    *(f"{name}-{number}" for name in ("collect", "collect_policy") for number in range(COLLECTORS)),
    "sft_corpus",
    "mine/prompts",
    "mine/audit",
    "evaluate/sft",
    "evaluate/rl",
)


@dataclasses.dataclass
class Made:
    """What a run of the recipe has made, but for names of folders and how long things took.

    Attributes:
      records: each record of each data set with its screenshots, as digests.
      rows: of metrics, replies and groups.
      weights: digests of the exported models.
      summary: the report's figures.
      problems: what `experiments.records verify` finds.
    """

    records: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    rows: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    weights: dict[str, str] = dataclasses.field(default_factory=dict)
    summary: str = ""
    problems: list[str] = dataclasses.field(default_factory=list)


def read_made(root: AnyPath, folder: Path) -> Made:
    """Reads all of it.

    Args:
      folder: on disk, for a copy of the models.
    """
    made = Made()

    def plain(text: str) -> str:
        # In a bucket, stages name the version that they have read.
        return re.sub(r"(ROOT/[\w/-]+)@[0-9a-f]{12}", r"\1", text.replace(str(root), "ROOT"))

    for name in _DATASETS:
        made.records[name] = Counter(plain(one) for one in _records(root / name))
        made.problems += check_dataset(root / name).problems
    for stage in ("sft", "rl"):
        for file in (METRICS_FILE, REPLIES_FILE, GROUPS_FILE):
            rows = [json.dumps(untimed(row)) for row in read_rows(root / stage / file)]
            made.rows[f"{stage}/{file}"] = [plain(row) for row in rows]
        made.weights[stage] = model_digest(_copy(root / stage / "export", folder / stage))
    summary = json.loads((root / "report/summary.json").read_bytes())
    made.summary = plain(json.dumps(_untimed(summary), sort_keys=True))
    return made


def _records(folder: AnyPath) -> Iterator[str]:
    images = ImageStore(folder)
    for record in read_dataset(folder):
        if isinstance(record, Trajectory):
            record = without_times(record)
        shown = "".join(hashlib.sha256(images.get(name)).hexdigest() for name in record_images(record))
        yield f"{record.model_dump_json()}{shown}"


def _untimed(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = untimed(value).items()
        return {name: _untimed(one) for name, one in kept if not name.endswith("seconds")}
    return [_untimed(one) for one in value] if isinstance(value, list) else value


def _copy(source: AnyPath, folder: Path) -> Path:
    if isinstance(source, Path):
        return source
    folder.mkdir(parents=True)
    for path in source.iterdir():
        path.download(folder / path.name)
    return folder


def compare(wanted: Made, found: Made) -> dict[str, Any]:
    """What is equal, and by how much what is not differs."""
    records = {name: found.records[name] == one for name, one in wanted.records.items()}
    rows = {name: found.rows[name] == one for name, one in wanted.rows.items()}
    weights = {name: found.weights[name] == one for name, one in wanted.weights.items()}
    missing = sum((one - found.records[name]).total() for name, one in wanted.records.items())
    more = sum((found.records[name] - one).total() for name, one in wanted.records.items())
    return {
        "records": sum(one.total() for one in wanted.records.values()),
        "missing": missing,
        "more": more,
        "rows": sum(map(len, wanted.rows.values())),
        "different": [name for name, same in (records | rows | weights).items() if not same]
        + ([] if wanted.summary == found.summary else ["report"]),
        "records_equal": all(records.values()),
        "rows_equal": all(rows.values()),
        "weights_equal": all(weights.values()),
        "report_equal": wanted.summary == found.summary,
        "problems": len(found.problems),
    }


def run_chain(root: str, folder: Path, environment: Mapping[str, str], proxy: FaultyProxy | None) -> Figures:
    """Runs all stages; returns the seconds of each, and the requests to the store."""
    rows = []
    for name, stage in stages(root, HOSTS).items():
        before = sum(proxy.count().requests.values()) if proxy else 0
        seconds = run_stage(stage, root, folder / "machines", environment)
        after = sum(proxy.count().requests.values()) if proxy else 0
        print(f"{root}: {name} in {seconds} s", flush=True)
        rows.append({"stage": name, "seconds": seconds, "requests": after - before})
    return {"stages": rows}


def prove_store(scheme: str, wanted: Made, folder: Path, found: Kills) -> Figures:
    """The recipe in a bucket, compared with that on a disk; then the kills."""
    with FaultyProxy() as proxy, serve(scheme, folder / "store.log", proxy) as environment:
        root = f"{scheme}://runs/chain"
        chain = run_chain(root, folder, environment, proxy)
        with variables(environment | {"RMSWEB_CACHE": str(folder / "reader")}):
            path = parse_path(root, "root")
            assert isinstance(path, StorePath)
            objects = path.entries()
            chain["objects"] = len(objects)
            chain["megabytes"] = round(sum(entry.size for entry in objects) / 1e6, 1)
            chain |= compare(wanted, read_made(path, folder / "models"))
        print(f"{root}: {chain}", flush=True)
        kill_publishers(scheme, proxy, environment, folder / "publishers", PUBLISHER_KILLS, found)
        chain["resumed"] = kill_trainers(
            scheme, proxy, environment, folder / "trainers", TRAINERS[scheme], TRAINER_KILLS, found
        )
        print(f"{root}: {found}", flush=True)
    return chain


def measure() -> Figures:
    found = Kills()
    with tempfile.TemporaryDirectory(prefix="rmsweb-buckets-") as name:
        folder = Path(name)
        programs = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))
        compiling = {
            "JAX_COMPILATION_CACHE_DIR": programs,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        }
        with variables(compiling):
            (folder / "disk").mkdir()
            disk = run_chain(str(folder / "disk/run"), folder / "disk", {}, None)
            wanted = read_made(folder / "disk/run", folder / "disk/models")
            stores = {}
            for scheme in SCHEMES:
                (folder / scheme).mkdir()
                stores[scheme] = prove_store(scheme, wanted, folder / scheme, found)
                shutil.rmtree(folder / scheme)
        for name in ("input", "thousand"):
            (folder / name).mkdir()
        thousand, rate = requests_per_thousand(folder / "thousand"), input_rate(folder / "input")
    chains = stores.values()
    return {
        "kills": found.kills.total(),
        "lost": found.lost,
        "doubled": found.doubled,
        "half_visible": found.half_visible,
        "records_equal": all(chain["records_equal"] for chain in chains),
        "weights_equal": all(chain["weights_equal"] for chain in chains),
        "resume_bitwise": all(all(chain["resumed"].values()) for chain in chains),
        "readings": found.readings,
        "gave_up": found.gave_up,
        "killed": dict(found.kills),
        "killed_while": dict(found.states),
        "notes": found.notes,
        "disk": disk,
        "stores": stores,
        "thousand": thousand,
        "input": rate,
        "steps": STEPS,
        "checkpoint_every": CHECKPOINT_EVERY,
        "leases_s": [LEASE_SECONDS, TRAINER_LEASE_S],
    }


def claims(figures: Figures) -> list[Claim]:
    chains = figures["stores"]
    faults = [figures[name] for name in ("lost", "doubled", "half_visible")]

    def described(names: tuple[str, ...]) -> str:
        return "; ".join(
            f"{scheme}://: {', '.join(f'{chain[name]:,} {name}' for name in names)}"
            + (f", different: {', '.join(chain['different'])}" if chain["different"] else "")
            for scheme, chain in chains.items()
        )

    return [
        Claim(
            "the recipe in a bucket makes the same records and screenshots as on a disk",
            described(("records", "missing", "more")),
            figures["records_equal"] and not any(chain["problems"] for chain in chains.values()),
        ),
        Claim(
            "the same weights, bit for bit, the same rows of metrics, and the same report",
            described(("rows",)),
            figures["weights_equal"]
            and all(chain["rows_equal"] and chain["report_equal"] for chain in chains.values()),
        ),
        Claim(
            f"{figures['kills']} kills lose, double and half-show nothing",
            f"{faults[0]} lost, {faults[1]} doubled, {faults[2]} of {figures['readings']} readings broken or "
            "mixed",
            figures["kills"] >= 50 and not any(faults),
        ),
        Claim(
            "killed training goes on elsewhere and ends bit for bit like one that was not killed",
            "; ".join(
                f"{scheme}://: {', '.join(f'{name} {_equal(one)}' for name, one in chain['resumed'].items())}"
                for scheme, chain in chains.items()
            ),
            figures["resume_bitwise"],
        ),
        Claim(
            f"with {figures['input']['delay_s'] * 1000:.0f} ms a request the input of training keeps "
            f"{TOKENS_PER_S:,} tokens a second on {figures['input']['cores']} cores",
            f"{figures['input']['bucket']['tokens_per_s']:,}; from the disk "
            f"{figures['input']['disk']['tokens_per_s']:,}",
            figures["input"]["bucket"]["tokens_per_s"] >= TOKENS_PER_S,
        ),
    ]


def _equal(same: bool) -> str:
    return "equal" if same else "DIFFER"


def tables(figures: Figures) -> str:
    chains = figures["stores"]
    rows = [
        (
            row["stage"],
            f"{row['seconds']:,.0f}",
            *(
                cell
                for chain in chains.values()
                for cell in (f"{chain['stages'][at]['seconds']:,.0f}", chain["stages"][at]["requests"])
            ),
        )
        for at, row in enumerate(figures["disk"]["stages"])
    ]
    head = ("stage", "disk, s", *(word for scheme in chains for word in (f"{scheme}, s", "requests")))
    objects = "; ".join(
        f"{scheme}://: {chain['objects']:,} objects, {chain['megabytes']:,} MB"
        for scheme, chain in chains.items()
    )
    thousand = figures["thousand"]
    layouts = {"objects": "an object for each record and screenshot", "packs": "shards and packs"}
    counts = [
        (text, *(thousand[name][what] for what in ("objects", "write", "read", "train")))
        for name, text in layouts.items()
    ]
    parts = [
        table(head, rows),
        f"In the bucket at the end: {objects}.",
        table(("killed", "kills"), list(figures["killed"].items())),
        table(("state of the store", "kills"), list(figures["killed_while"].items())),
        f"{thousand['episodes']:,} episodes with {thousand['screenshots']:,} screenshots, and the samples of "
        f"{thousand['training_steps']:,} training steps:",
        table(("layout", "objects", "requests: write", "read", "train"), counts),
    ]
    return "\n\n".join(parts)


ABOUT = """\
The recipe runs at smoke size three times: on a disk, in a bucket of fake-gcs-server (`gs://`) and in one of
moto (`s3://`), both on loopback and reached by the real clients. All workdirs are in the bucket. Two
processes collect, each its share of the tasks, and two train together (`--distributed`). Each process has a
folder of copies (`RMSWEB_CACHE`) of its own, as machines have. Records are compared by content; names of
folders and times are left out.

Then publishers of a growing data set and training runs ({steps} steps, a checkpoint every
{checkpoint_every}) are killed by SIGKILL at drawn moments, and all of the store's connections are cut at
others. Each start meets the store in another state. After each kill a reader with an empty cache reads and
verifies the data set, or the rows of metrics and the newest checkpoint, and compares them with what was
published. The next trainer starts with empty disks. Leases are short ({leases_s} s for publishers and
trainers) so that the next process waits less; a start that ends with a line because the store did not answer
for too long is counted ({gave_up}) and made again.

The input of training is read as `train_sft` reads it, by a process with an empty cache: text, screenshots of
1280 x 800, rows of tokens and patches. Store and delay are on the same two cores.
"""
PROOF = Proof(
    "Kills and the whole recipe in buckets",
    ABOUT,
    measure,
    claims,
    tables,
    ("jax", "orbax-checkpoint", "gcsfs", "s3fs"),
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
