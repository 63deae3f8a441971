#!/usr/bin/env bash
# Lets a society discuss a question on the terminal.
set -euo pipefail

usage() {
  local folder
  folder="$(dirname "${BASH_SOURCE[0]}")"
  sed "s|{command}|bash scripts/discuss.sh|" "$folder/../comas/help/discuss.txt"
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
exec "$PYTHON_BIN" -m comas.commands discuss "$@"
