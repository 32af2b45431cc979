#!/bin/sh
# Compiles every program of the paper's runs for TPU slices, with libtpu's compiler and no TPU, and writes
# what they need to docs/results/tpu_compile.md. A command that is done is not repeated: its table is kept in
# build/tpu until `make clean`. About an hour on two cores.
#
#   sh scripts/proof_tpu.sh PYTHON
set -eu
python=$1
version=0.0.51
libtpu=build/libtpu-$version
tables=build/tpu
report=docs/results/tpu_compile.md

if ! [ -f "$libtpu/.done" ]; then
  echo "installing libtpu $version (once)"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$libtpu" "libtpu==$version"
  touch "$libtpu/.done"
fi
# Beside the virtual environment, not in it: jax would look for a TPU at every start.
PYTHONPATH=$libtpu${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
mkdir -p "$tables"
"$python" -m pytest -q tests/aot

# compile NAME EXPECTED_EXIT_CODE ARGUMENTS...
compile() {
  name=$1 expected=$2
  shift 2
  [ -f "$tables/$name.md" ] && return
  echo "$(date +%T) $*"
  code=0
  "$python" -m experiments.compile_tpu "$@" --output="$tables/$name.json" \
    >"$tables/$name.out" 2>"$tables/$name.log" || code=$?
  if [ "$code" -ne "$expected" ]; then
    tail -n 3 "$tables/$name.log" >&2
    echo "error: exit code $code instead of $expected (log: $tables/$name.log)" >&2
    exit 1
  fi
  {
    printf '    python -m experiments.compile_tpu %s\n\n' "$*"
    # Without the line that repeats the command.
    sed 1,2d "$tables/$name.out"
    [ "$code" -eq 0 ] || printf '\nExit code %s: %s\n' "$code" "$(grep '^error:' "$tables/$name.log")"
    printf '\n'
  } >"$tables/$name.part"
  mv "$tables/$name.part" "$tables/$name.md"
}

split='--config.mesh.fsdp=4 --config.mesh.tensor=4'
wide='--config.mesh.fsdp=16 --config.mesh.tensor=4'
# shellcheck disable=SC2086
{
  compile sft_8b_v5e 0 --config=configs/sft.py:8b --topology=v5e:4x4 --config.micro_batch_size=16
  compile rl_8b_v5e 0 --config=configs/rl.py:8b --topology=v5e:4x4 $split
  compile sft_8b_v5p 0 --config=configs/sft.py:8b --topology=v5p:2x2x2
  compile rl_8b_v5p 0 --config=configs/rl.py:8b --topology=v5p:2x2x2
  compile rl_8b_v5p_tensor 0 --config=configs/rl.py:8b --topology=v5p:2x2x2 --config.mesh.fsdp=1 --config.mesh.tensor=8
  compile rl_8b_v5p_int8 0 --config=configs/rl.py:8b --topology=v5p:2x2x2 --config.cache_dtype=int8
  compile sft_32b_v6e 0 --config=configs/sft.py:32b --topology=v6e:4x4 $split
  compile rl_32b_v6e 0 --config=configs/rl.py:32b --topology=v6e:4x4 $split
  compile sft_32b_v5p 0 --config=configs/sft.py:32b --topology=v5p:4x4x4 $wide
  compile rl_32b_v5p 0 --config=configs/rl.py:32b --topology=v5p:4x4x4 $wide
  compile sft_32b_v5e 1 --config=configs/sft.py:32b --topology=v5e:4x4
}

order='sft_8b_v5e rl_8b_v5e sft_8b_v5p rl_8b_v5p rl_8b_v5p_tensor rl_8b_v5p_int8 sft_32b_v6e rl_32b_v6e sft_32b_v5p rl_32b_v5p sft_32b_v5e'
{
  sed '/^<!-- tables -->$/q' "$report"
  printf '\n'
  for name in $order; do cat "$tables/$name.md"; done
} >"$report.part"
mv "$report.part" "$report"
echo "wrote $report"
