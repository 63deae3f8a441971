#!/usr/bin/env bash
# Evaluates a model, or a whole society, on benchmarks; compares results.
set -euo pipefail

usage() {
  local folder
  folder="$(dirname "${BASH_SOURCE[0]}")"
  sed "s|{command}|bash scripts/evaluate_model.sh|" "$folder/../comas/help/evaluate.txt"
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
if [[ $# -eq 0 ]]; then
  usage >&2
  exit 2
fi

export COMAS_STARTED_IN="$PWD" # where paths may start
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.commands evaluate "$@"
