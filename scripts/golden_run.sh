#!/usr/bin/env bash
# Shows that a restructuring changed no number of a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/golden_run.sh COMMIT [key=value ...]

Trains the quick-start society for three steps under the schedules parallel and sequential, once
with the code of COMMIT and once with the code here, and compares metrics (times apart) and
discussions digit by digit. Exit status 1: they differ, or a run failed. The overrides must mean
the same to both.
Societies that are not there yet are built first, under saves/golden.
USAGE
}

start 1 "$ANY" "$@"
exec "$PYTHON_BIN" scripts/golden_run.py "$@"
