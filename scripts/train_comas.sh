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

# A config may be named from where the user stands; everything else lives in the repository.
arguments=()
for argument in "$@"; do
  if [[ "$argument" != *=* && -f "$argument" ]]; then
    argument="$(realpath "$argument")"
  fi
  arguments+=("$argument")
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.commands train "${arguments[@]}"
