#!/usr/bin/env bash
# Trains one config with several seeds, then prints mean and spread of the held-out accuracy.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/repeat_seeds.sh "SEED ..." [CONFIG] [key=value ...]

Trains CONFIG (default: configs/quickstart.yaml) once for each seed, one after the other, and
prints the held-out accuracy before and after training of every run, their mean and spread.
Each run is called <name>-seed<seed>-<six random digits>.
Example: bash scripts/repeat_seeds.sh "0 1 2"
USAGE
}

for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
  esac
done
if [[ -z "${1:-}" ]]; then
  usage >&2
  exit 2
fi
read -r -a seeds <<<"$1"
shift
config=configs/quickstart.yaml
if [[ $# -gt 0 && "$1" != *=* ]]; then
  config="$1"
  if [[ -e "$config" ]]; then
    config="$(realpath "$config")"
  fi
  shift
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

# Where the runs will be and what they would be called: the config may say so, or an argument.
settings="$("$PYTHON_BIN" - "$config" "$@" <<'PYTHON'
import sys
from pathlib import Path
from comas.preflight.configuration import load_config

try:
    config = load_config(Path(sys.argv[1]), sys.argv[2:])
except (ValueError, OSError) as error:
    sys.exit(f"error: {error}")
print(config.saves, config.name, sep="\n")
PYTHON
)"
{ read -r saves && read -r first_part; } <<<"$settings"

runs=()
for seed in "${seeds[@]}"; do
  # Not saves/latest, which any other run that begins meanwhile moves. A name has 64 letters at most.
  name="${first_part:0:40}-seed$seed-$(printf '%06x' $((RANDOM << 9 ^ RANDOM)))"
  bash scripts/train_comas.sh "$config" "$@" "seed=$seed" "name=$name"
  found=()
  for folder in "$saves"/*-"$name"; do
    if [[ -d "$folder" ]]; then
      found+=("$folder")
    fi
  done
  if ((${#found[@]} != 1)); then
    echo "error: seed $seed has been trained, but $saves holds ${#found[@]} runs named $name" >&2
    echo "where one is expected: there is no mean. Was it moved, or is resume= among the keys?" >&2
    exit 1
  fi
  runs+=("${found[0]}")
done
"$PYTHON_BIN" -m comas.run.metrics.seed_summary "${runs[@]}"
