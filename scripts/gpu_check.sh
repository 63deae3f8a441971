#!/usr/bin/env bash
# Shows that what is specific to GPUs works on this machine, and how fast.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/gpu_check.sh [key=value ...]
       bash scripts/gpu_check.sh --help

Random Qwen2 models (made here, nothing is downloaded) go through two steps as in training: vLLM
generates and sleeps, DeepSpeed updates, the weights go back, vLLM wakes. Each check is a row of a
table (tokens per second, model FLOPs utilisation, seconds of a sync, memory) that is printed as soon
as it is known, the most telling first; it can be copied into results/README.md. An error is a row,
too, with its traceback. Makes the environment (.venv) where there is none; an interpreter
that has the packages takes the same keys: PYTHONPATH=$PWD python3 -m scripts.gpu_check

  budget=0      seconds; what takes longer than is left is listed as not run (0: no limit)
  checks=one,lora,ranks,tensor,resume,bare,long,zero3,nccl
                one: an agent; lora: two adapters over one model; ranks: two ranks and two engines by
                NCCL; tensor: an engine sharded over the GPUs of two ranks; resume: a checkpoint of
                ZeRO-2, and a resume from it; bare: the rollout against vLLM alone, the update against
                a plain loop, and where its time goes; long: long prompts, recomputed activations, a KL
                penalty; zero3: as resume, by ZeRO-3 with Adam on the host; nccl: weights between two
                GPUs by NCCL
  size=0.5b,1.5b  which models (also 3b, 135m): the first for all checks, the others for "one"
                alone; what does not fit is left out
  out=saves/gpu_check  the folder of rows.jsonl, to which every row is added as it is known, with
                its time; those of earlier checks stay
  host_gib=128  memory of the machine, where it grows as it is used
  device=cpu    the same steps on a CPU, with size=tiny or 135m; NCCL's own checks are skipped

Beside the table: attention against plain attention in float64. "reserved" is the most of a GPU that
PyTorch held in a rank, "memory" the most that was in use behind the parts of a step.

Exit status: 0 when policies and engines agree after every sync (mean difference of log-probs below
0.02), each update changed what the policy says, and what a check adds holds; 1 when not, or when a
run failed; 2 when there is no GPU, or a key is wrong.
USAGE
}

start 0 "$ANY" "$@"
exec "$PYTHON_BIN" -m scripts.gpu_check "$@"
