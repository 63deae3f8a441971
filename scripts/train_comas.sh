#!/usr/bin/env bash
# Trains a co-evolving society.
set -euo pipefail

usage() {
  local folder
  folder="$(dirname "${BASH_SOURCE[0]}")"
  sed "s|{command}|bash scripts/train_comas.sh|" "$folder/../comas/help/train.txt"
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done

export COMAS_STARTED_IN="$PWD" # where paths may start
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.commands train "$@"
