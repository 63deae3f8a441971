#!/usr/bin/env bash
# Draws the figures of training runs.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/plot_run.sh [RUN ...]

Draws RUN/plots/training_dynamics.png and RUN/plots/reward_effectiveness.png from the metrics of
each run directory, of a run under way as well. Without RUN: saves/latest.
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done

runs=()
for run in "$@"; do
  runs+=("$(realpath "$run")")
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.metrics.plots "${runs[@]:-saves/latest}"
