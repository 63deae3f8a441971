#!/usr/bin/env bash
# Shows that everything specific to GPUs works on this machine, and how fast.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/gpu_check.sh [key=value ...]
       bash scripts/gpu_check.sh --help

Random Qwen2 models of 0.5 and of 3 billion parameters (made here, nothing is downloaded) go through
two steps as in training: vLLM generates and sleeps, DeepSpeed updates, the weights go back, vLLM
wakes. Each check is a row of a table (tokens per second, model FLOPs utilisation, seconds of a sync,
memory) that is printed as soon as it is known, the most telling first; it can be copied into
results/README.md. Makes the environment (.venv) where there is none.

  python=PATH   take this interpreter as it is, and install nothing
  budget=600    seconds; what no longer fits is listed as not run (0: everything)
  checks=one,ranks,tensor,long,lora,zero3,recovery,nodes,nccl
                one: an agent; ranks: two ranks and two engines by NCCL; tensor: an engine sharded over
                the GPUs of two ranks; long: long prompts, recomputed activations, a KL penalty; lora:
                two adapters over one model; zero3: ZeRO-3 with Adam on the host, a checkpoint, and a
                resume from it; recovery: two agents on one GPU, of which an engine is killed; nodes: a
                policy in two parts, as over two nodes; nccl: weights between two GPUs by NCCL
  size=0.5b,3b  which models; what does not fit is left out
  device=cpu    the same steps on a CPU, with size=tiny; without what is NCCL's alone

Beside the table: attention against plain attention in float64. "reserved" is the most of a GPU that
PyTorch held in a rank, "memory" the most that nvidia-smi saw in use.

Exit status: 0 when policies and engines agree after every sync (mean difference of log-probs below
0.02), each update changed what the policy says, and what a check adds holds; 1 when not, or when a
run failed; 2 when there is no GPU, a key is wrong, or python= lacks packages.
USAGE
}

python="" arguments=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    python=*) python="${argument#python=}" ;;
    *) arguments+=("$argument") ;;
  esac
done
if [[ -n "$python" ]]; then
  PYTHON_BIN="$(type -P "$python")" || {
    echo "error: python=$python: no such program" >&2
    exit 2
  }
  PYTHON_BIN="$(realpath -s "$PYTHON_BIN")"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z "$python" ]]; then
  source scripts/environment.sh
else
  # Also for Ray's processes: nothing is installed into it, this code neither.
  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
fi
exec "$PYTHON_BIN" -m scripts.gpu_check "${arguments[@]+"${arguments[@]}"}"
