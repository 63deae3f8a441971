#!/usr/bin/env bash
# Builds the training data, the validation data and the benchmarks from public datasets.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/prepare_data.sh [--from DIR] [--only NAME ...] [--skip NAME ...] [--seed N]
                                    [--output DIR] [--train-size M C S] [--validation-size M C S]
                                    [--rebuild]

Makes the environment (.venv) where there is none, then builds data/train.jsonl,
data/validation.jsonl and data/benchmarks/*.jsonl from datasets of the Hugging Face hub. What is
built already is checked and kept: rerun the command to resume.

  --from DIR            local copies instead of the hub: DIR/openai/gsm8k and so on, as
                        data/README.md says
  --only NAME ...       only these benchmarks; "train" names the training and validation
                        questions, which need all benchmarks
  --skip NAME ...       leave out these benchmarks: the training questions are then not compared
                        with them
  --seed N              draws the training and validation questions (0)
  --output DIR          where to build (data)
  --train-size M C S    numbers of math, coding and science questions (600 600 800)
  --validation-size M C S                                             (150 150 200)
  --rebuild             build again what is there
USAGE
  local benchmarks
  benchmarks="$(dirname "${BASH_SOURCE[0]}")/../evaluation/benchmarks"
  echo
  echo "Names: train" "$(sed -n 's/^    name="\(.*\)",$/\1/p' "$benchmarks"/*.py | paste -sd " ")"
}

export COMAS_STARTED_IN="$PWD" # where paths may start
start 0 "$ANY" "$@"
exec "$PYTHON_BIN" -m scripts prepare_data "$@"
