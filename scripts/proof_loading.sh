#!/bin/sh
# Writes a random checkpoint in the shape of Qwen3-VL-2B, loads it in a fresh process and reports the peak of
# host memory in docs/results/loading.md. Needs 5 GB of disk under build/; a few minutes.
#
#   sh scripts/proof_loading.sh PYTHON
set -eu
python=$1
folder=build/loading
report=docs/results/loading.md

rm -rf "$folder"
mkdir -p "$folder"
"$python" -m experiments.random_checkpoint --size=2b --folder="$folder/2b"
"$python" -m tests.qwen3_vl.load_and_save "$folder/2b" "$folder/again" | tail -n 1 >"$folder/report.json"
"$python" - "$folder/report.json" >"$report" <<'END'
import json
import sys
from pathlib import Path

report = {name: value / 1e9 for name, value in json.loads(Path(sys.argv[1]).read_text()).items()}
print(f"""# Host memory while a checkpoint is loaded

    make proof-loading

A random checkpoint in the shape of Qwen3-VL-2B (`experiments.random_checkpoint --size=2b`), bfloat16, loaded by
`load_model` in a fresh process on one CPU device (`tests/qwen3_vl/load_and_save.py`).

| | GB |
|---|---|
| parameters | {report["params"]:.3f} |
| read from files | {report["read"]:.3f} |
| resident before loading: interpreter and libraries | {report["before"]:.3f} |
| peak resident while loading, all included | {report["before"] + report["peak"]:.3f} |
| of that beyond the parameters | {report["before"] + report["peak"] - report["params"]:.3f} |""")
END
rm -rf "$folder"
echo "wrote $report"
