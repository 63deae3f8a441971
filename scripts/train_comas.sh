#!/usr/bin/env bash
# Trains a co-evolving society.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/train_comas.sh [--dry-run | --export-best] [CONFIG] [key=value ...]

Makes the environment (.venv) where there is none, then trains a society of agents.

  CONFIG      a YAML file. Without it: configs/comas.yaml (the paper's settings) where the
              GPUs, the models and the data it names are there, else configs/quickstart.yaml
              (tiny agents built from nothing, on CPU). Your own may begin with
              "base: configs/comas.yaml" and then say only what differs.
  key=value   overrides a key of the config, for example
                training.num_steps=20 optimization.learning_rate=1e-4 seed=1
              resume=saves/<run> continues a stopped run with its own config.

  --dry-run   only tells what the run would need and what is here, where its engines would run,
              its sizes and its time; starts and writes nothing. Status 1: it could not start.
  --export-best
              trains nothing: writes the models of the best checkpoint that a run has kept
              (training.keep_best) into its folder best/, with resume=saves/<run>.

The run is written to saves/<date>-<time>-<name>/, which saves/latest points at.
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done

# A config may be named from where the user stands; everything else lives in the repository.
arguments=()
for argument in "$@"; do
  if [[ "$argument" != *=* && -f "$argument" ]]; then
    argument="$(realpath "$argument")"
  fi
  arguments+=("$argument")
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas "${arguments[@]}"
