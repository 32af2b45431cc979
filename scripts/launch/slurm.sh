#!/bin/bash
# SFT or RL on hosts with eight GPUs of a Slurm cluster. From the checkout, with an environment in .venv
# (pip install '.[cuda]'), on a file system that all hosts share:
#
#     STORE=/shared/runs/first STAGE=sft sbatch --nodes=2 scripts/launch/slurm.sh
#
# Five minutes before the time limit, and when it is pre-empted, the run saves and ends with exit code 75; the
# job is then queued again.
#SBATCH --job-name=rmsweb
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=rmsweb-%j.log
set -u
# shellcheck source=/dev/null
. .venv/bin/activate
# One process for all GPUs of a host; without this JAX takes one GPU for each process.
JAX_LOCAL_DEVICE_IDS=$(seq --separator=, 0 $((SLURM_GPUS_ON_NODE - 1)))
export JAX_LOCAL_DEVICE_IDS
code=0
srun sh scripts/launch/stage.sh "${STAGE:-sft}" --distributed || code=$?
# A limit, for what ends with 75 each time.
if [ "$code" = 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
