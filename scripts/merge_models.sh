#!/usr/bin/env bash
# Writes the LoRA adapters of a run as whole models.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/merge_models.sh RUN [OUTPUT]

Writes each trained agent of a run with policy.lora as a whole model in Hugging Face format, which
needs neither its base model nor PEFT: OUTPUT/agent_0, and so on. What is merged is kept: after an
interruption the same command goes on.

  RUN     a run that has ended, such as saves/latest, or the folder of a single adapter
  OUTPUT  a folder; RUN/merged unless given
USAGE
}

export COMAS_STARTED_IN="$PWD" # where paths may start
start 1 2 "$@"
exec "$PYTHON_BIN" -m scripts merge_models "$1" ${2+"$(whole "$2")"}
