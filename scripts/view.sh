#!/usr/bin/env bash
# Shows runs, or the results of evaluations, as a page.
set -euo pipefail

usage() {
  local folder
  folder="$(dirname "${BASH_SOURCE[0]}")"
  sed "s|{command}|bash scripts/view.sh|" "$folder/../comas/help/view.txt"
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done

export COMAS_STARTED_IN="$PWD" # where paths may start
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.commands view "$@"
