#!/usr/bin/env bash
# Runs one of the benchmarks of this code's own speed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
benchmarks="$(dirname "${BASH_SOURCE[0]}")/benchmarks"

list_benchmarks() {
  local file
  for file in "$benchmarks"/[!_]*.py; do
    printf '  %-12s %s\n' "$(basename "$file" .py)" "$(sed -n '1s/^"""//p' "$file")"
  done
}

# Of the benchmark that is named, or of all.
usage() {
  if [[ -n "$name" ]]; then
    print_help "$benchmarks/$name.py"
    return
  fi
  cat <<'USAGE'
usage: bash scripts/benchmark.sh NAME [key=value ...]
       bash scripts/benchmark.sh NAME --help      what it measures, and its keys

Makes the environment (.venv) where there is none, then measures on this machine:

USAGE
  list_benchmarks
}

name=""
if [[ $# -gt 0 && "$1" != -* ]]; then
  name="$1"
  if [[ ! "$name" =~ ^[a-z]+$ || ! -f "$benchmarks/$name.py" ]]; then
    echo "error: no benchmark is named $name. There are:" >&2
    list_benchmarks >&2
    exit 2
  fi
fi
start 1 "$ANY" "$@"
exec "$PYTHON_BIN" -m "scripts.benchmarks.$name" "${@:2}"
