#!/usr/bin/env bash
# An example to copy: trains on several nodes of a Slurm cluster.
#
#   sbatch scripts/slurm_example.sh [CONFIG] [key=value ...]
#
# Submit it from the repository, which lies, with its environment and saves/, on a disk that all nodes
# share. The first node runs the command itself. Rerun it with resume=saves/latest to continue.
#SBATCH --job-name=comas
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=comas-%j.log
set -euo pipefail

case "${1:-}" in
  -h | --help)
    echo "usage: sbatch scripts/slurm_example.sh [CONFIG] [key=value ...]"
    sed -n '2,/^#SBATCH/{/^#SBATCH/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
cd "${SLURM_SUBMIT_DIR:?submit this file with sbatch}"
source scripts/environment.sh
export PATH="$PWD/$VENV/bin:$PATH"
read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address="$head:6379"

# Nobody else on these nodes may join, and Ray's processes are as nice as ours. By default a node has 30 s
# to join, of which importing Ray from a shared disk may take more.
RAY_AUTH_TOKEN="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_worker_niceness=0 RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600

# Starts Ray on every node, runs what follows -- on the first, and stops Ray.
# srun does not take --cpus-per-task from above (since Slurm 22.05).
srun --cpus-per-task "$SLURM_CPUS_PER_TASK" \
  ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-gpus "$SLURM_GPUS_ON_NODE" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
  env RAY_ADDRESS="$address" bash scripts/train_comas.sh "$@"
