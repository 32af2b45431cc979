#!/bin/sh
# One stage of the recipe on this machine: sh scripts/launch/stage.sh STAGE [--FLAG=VALUE...]
#
#   collect  a teacher plays this machine's share of the tasks (CPU fleet)
#   corpus   runs -> SFT samples (one CPU machine)
#   sft      supervised fine-tuning (TPU, GPU)
#   serve    an endpoint with the SFT policy (one TPU or GPU host)
#   play     the policy at POLICY_URL plays the tasks of `collect` (CPU fleet)
#   mine     runs -> RL prompts (one CPU machine)
#   rl       Salvage-DS (TPU, GPU)
#
# Variables:
#   STORE        folder or bucket that all machines see: gs://BUCKET/RUN, s3://BUCKET/RUN
#   SIZE         8b (default) or 32b; smoke trains and serves the packaged tiny model on a CPU
#   MODEL        base model: a folder or a Hub name; default by SIZE
#   TASKS        file of tasks, for `collect`
#   PART, PARTS  number of this machine and of all machines of the fleet; default 0 and 1
#   POLICY_URL   address of the endpoint, for `play`: http://HOST:8000/v1
#   POLICY_KEY   the endpoint's key, for `serve` and `play`
#   FLAGS        more flags, separated by spaces: --config.mesh.tensor=4
#
# The same command again resumes; exit code 75 means that it was stopped and has saved its state.
set -eu
: "${STORE:?set STORE to a folder or bucket that all machines see, as gs://BUCKET/RUN}"
size=${SIZE:-8b} part=${PART:-0} parts=${PARTS:-1}
case $size in
  smoke) model=tiny_base kind=smoke policy=smoke_policy ;;
  *) model=Qwen/Qwen3-VL-$(echo "$size" | tr b B)-Instruct kind=paper policy=paper_policy ;;
esac
model=${MODEL:-$model}

# $STORE/NAME-0,$STORE/NAME-1,...: a folder for each machine of the fleet.
folders() {
  i=1 list="$STORE/$1-0"
  while [ "$i" -lt "$parts" ]; do
    list="$list,$STORE/$1-$i" i=$((i + 1))
  done
  echo "$list"
}

stage=${1:?give a stage: collect, corpus, sft, serve, play, mine or rl}
shift
case $stage in
  collect)
    share=${TMPDIR:-/tmp}/tasks-$part-of-$parts.jsonl
    split --number="r/$((part + 1))/$parts" "${TASKS:?set TASKS to a file of tasks}" >"$share"
    set -- collect --config=configs/collect.py:web "--config.tasks_file=$share" "--workdir=$STORE/collect-$part" "$@"
    ;;
  corpus)
    set -- build_sft "--config=configs/build_sft.py:$kind" "--config.trajectories=$(folders collect)" \
      "--workdir=$STORE/sft_corpus" "$@"
    ;;
  sft)
    set -- train_sft "--config=configs/sft.py:$size" "--config.model=$model" "--config.corpus=$STORE/sft_corpus" \
      "--workdir=$STORE/sft" "$@"
    ;;
  serve)
    : "${POLICY_KEY:?set POLICY_KEY to a key of your choice}"
    set -- serve "--config=configs/serve.py:$size" "--config.model=$STORE/sft/export" --config.host=0.0.0.0 \
      --config.port=8000 --config.api_key_env=POLICY_KEY "--config.served_names=('policy',)" \
      "--workdir=${TMPDIR:-/tmp}/serve" "$@"
    ;;
  play)
    set -- collect "--config=configs/collect.py:$policy" --config.actor.kind=chat --config.actor.model=policy \
      "--config.actor.base_url=${POLICY_URL:?set POLICY_URL to the address of stage serve}" \
      --config.actor.api_key_env=POLICY_KEY --config.guard.task_site=True \
      "--config.tasks_from=$STORE/collect-$part" "--workdir=$STORE/collect_policy-$part" "$@"
    ;;
  mine)
    set -- mine "--config=configs/mine.py:$kind" "--config.pools=$(folders collect),$(folders collect_policy)" \
      "--workdir=$STORE/mine" "$@"
    ;;
  rl)
    set -- train_rl "--config=configs/rl.py:$size" "--config.model=$STORE/sft/export" \
      "--config.prompts=$STORE/mine/prompts" "--workdir=$STORE/rl" "$@"
    ;;
  *)
    echo "error: no stage $stage: give collect, corpus, sft, serve, play, mine or rl" >&2
    exit 2
    ;;
esac
script=$1
shift
# Replaces the shell, so that the stage itself gets the scheduler's signals.
# shellcheck disable=SC2086  # FLAGS are words.
exec python -m "experiments.$script" "$@" ${FLAGS:-}
