#!/usr/bin/env bash
# Shows that everything specific to GPUs works on this machine, and how fast.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/gpu_check.sh [key=value ...]

Makes the environment (.venv) where there is none. Then one agent, and two agents that share the
GPU, of a random Qwen2 model of 0.5 and of 3 billion parameters (made here, nothing is downloaded)
go through two steps as in training: vLLM generates and sleeps, DeepSpeed updates, the weights go
back by CUDA IPC, vLLM wakes. Prints a table (tokens per second, model FLOPs utilisation, seconds
of a sync, most memory) that can be copied into results/README.md.

  size=0.5b,3b  which models; what does not fit is left out: two agents of 3b need a GPU of 80 GB
                and 140 GB of memory
  agents=1,2    how many agents share the GPU, in one run after another
  lora_rank=0   0,16 also has the agents as LoRA adapters over one model
  requests=N, response_tokens=N
                of each agent, if fewer than 128 and 512
  device=cpu    the same steps on a CPU, for which there is size=tiny

Exit status: 0 when policies and engines agree after every sync (mean difference of log-probs below
0.02) and each update changed what the policy says; 1 when not, or when a run failed; 2 when there
is no GPU, or a key is wrong.
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m scripts.gpu_check "$@"
