#!/usr/bin/env bash
# Runs one of the benchmarks of this code's own speed.
set -euo pipefail

list_benchmarks() {
  local file
  for file in scripts/benchmarks/[!_]*.py; do
    printf '  %-12s %s\n' "$(basename "$file" .py)" "$(sed -n '1s/^"""//p' "$file")"
  done
}

usage() {
  cat <<'USAGE'
usage: bash scripts/benchmark.sh NAME [key=value ...]
       bash scripts/benchmark.sh NAME --help      what it measures, and its keys

Makes the environment (.venv) where there is none, then measures on this machine:

USAGE
  list_benchmarks
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  "") usage >&2 && exit 2 ;;
esac
if [[ ! "$1" =~ ^[a-z]+$ || ! -f "scripts/benchmarks/$1.py" ]]; then
  echo "error: no benchmark is named $1. There are:" >&2
  list_benchmarks >&2
  exit 2
fi
for argument in "${@:2}"; do
  case "$argument" in
    -h | --help)
      source scripts/help.sh
      shared=()
      if grep -q '(Repeated)' "scripts/benchmarks/$1.py"; then
        shared=(scripts/benchmarks/_turns.py)
      fi
      print_help "scripts/benchmarks/$1.py" "${shared[@]+"${shared[@]}"}"
      exit 0
      ;;
  esac
done
source scripts/environment.sh
exec "$PYTHON_BIN" -m "scripts.benchmarks.$1" "${@:2}"
