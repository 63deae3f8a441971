#!/usr/bin/env bash
# Writes the LoRA adapters of a run as whole models.
set -euo pipefail

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

for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
  esac
done
if [[ $# -lt 1 || $# -gt 2 ]]; then
  usage >&2
  exit 2
fi

# Folders may be named from where the user stands; everything else lives in the repository.
arguments=()
for argument in "$@"; do
  arguments+=("$(realpath -m "$argument")")
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" scripts/merge_models.py "${arguments[@]}"
