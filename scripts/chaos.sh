#!/usr/bin/env bash
# Shows that runs survive faults.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/chaos.sh [key=value ...]

Makes the environment (.venv) where there is none, then disturbs training runs of the quick-start
society at random moments: processes are killed, frozen or interrupted. Checks that each ends with
the numbers of one that nobody disturbed. (The tests cover damaged checkpoints and full disks.)
About an hour on 2 cores.

USAGE
  print_help "$(dirname "${BASH_SOURCE[0]}")/chaos/__main__.py"
}

start 0 "$ANY" "$@"
exec "$PYTHON_BIN" -m scripts.chaos "$@"
