#!/usr/bin/env bash
# Tells which societies fit on how many GPUs, how, and for how many hours: by arithmetic alone.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/plan.sh [key=value ...]

Makes the environment (.venv) where there is none, then prints a page.

USAGE
  print_help scripts/plan.py
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/help.sh
for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
source scripts/environment.sh
exec "$PYTHON_BIN" -m scripts.plan "$@"
