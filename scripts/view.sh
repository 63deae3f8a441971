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

# Folders may be named from where the user stands; everything else lives in the repository.
arguments=()
previous=""
for argument in "$@"; do
  case "$previous" in
    --steps | --port) ;;
    *) [[ "$argument" == -* ]] || argument="$(realpath -ms -- "$argument")" ;;
  esac
  arguments+=("$argument")
  previous="$argument"
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.commands view "${arguments[@]+"${arguments[@]}"}"
