#!/usr/bin/env bash
# Runs the tests: bash scripts/test.sh [--quick | --slow] [pytest arguments]
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/test.sh [--quick | --slow] [pytest arguments]

Makes the environment (.venv) where there is none, then runs the tests:

  --quick     what needs no engine, on up to 8 cores: 1 to 3 minutes on 2
  (neither)   those, and the whole stack on tiny models: 5 to 15 minutes on 2 cores
  --slow      everything: also full learning runs, soak tests, installations from nothing

Otherwise two processes share the files of tests; -n 0 runs them one after another in one process.
USAGE
}

markers="not slow"
workers=2
arguments=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    --quick) markers="not slow and not stack" workers=logical ;;
    --slow) markers="slow or not slow" ;;
    *) arguments+=("$argument") ;;
  esac
done

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m pytest -n "$workers" --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
  -m "$markers" "${arguments[@]+"${arguments[@]}"}"
