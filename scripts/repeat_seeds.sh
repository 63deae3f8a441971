#!/usr/bin/env bash
# Trains one config with several seeds, then prints mean and spread of the held-out accuracy.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/repeat_seeds.sh "SEED ..." [CONFIG] [key=value ...]

Trains CONFIG (default: configs/quickstart.yaml) once for each seed, one after the other, and
prints the held-out accuracy before and after training of every run, their mean and spread.
Example: bash scripts/repeat_seeds.sh "0 1 2"
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  "") usage >&2 && exit 2 ;;
esac
read -r -a seeds <<<"$1"
shift
config=configs/quickstart.yaml
if [[ $# -gt 0 && "$1" != *=* ]]; then
  config="$(realpath "$1")"
  shift
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
saves=saves
for argument in "$@"; do
  case "$argument" in saves=*) saves="${argument#saves=}" ;; esac
done
runs=()
for seed in "${seeds[@]}"; do
  bash scripts/train_comas.sh "$config" "$@" "seed=$seed"
  runs+=("$(realpath "$saves/latest")")
done
.venv/bin/python -m comas.metrics.seed_summary "${runs[@]}"
