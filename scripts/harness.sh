#!/usr/bin/env bash
# Has lm-evaluation-harness measure a run's agents, and compares its count with ours.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

HARNESS="lm_eval[api]==0.4.13"

usage() {
  cat <<'USAGE'
usage: bash scripts/harness.sh RUN

Makes an environment for lm-evaluation-harness (.venv-harness) where there is none, serves the
agents of RUN, such as saves/latest, lets the harness ask them the held-out math questions as a task
of its own, and prints for each agent how many it counts as correct, and how many we do, under the
same prompts and greedy sampling (evaluation/README.md).
USAGE
}

start 1 1 "$@"
if [[ "$(cat .venv-harness/stamp 2>/dev/null)" != "$HARNESS" ]]; then
  echo "harness: installing $HARNESS into .venv-harness (about 1 GB)"
  "$PYTHON_BIN" -m venv --clear .venv-harness
  .venv-harness/bin/python -m pip install -q "$HARNESS"
  printf '%s\n' "$HARNESS" >.venv-harness/stamp
fi
exec "$PYTHON_BIN" -m evaluation.harness "$(whole "$1")" .venv-harness/bin/lm_eval
