#!/usr/bin/env bash
# Checks files of your own questions before a training run.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/check_data.sh FILE|hub:OWNER/NAME/CONFIG/SPLIT|reasoning_gym ... [key=value ...]

Makes the environment (.venv) where there is none, then checks questions (data/README.md describes
them) and lists the faulty ones, a line for each kind of fault: keys and their types, ids that occur
twice, empty and endless prompts, math and science answers that no grader can read, letters of no
option, checker code that cannot run in the sandbox or asserts nothing, and tasks of reasoning_gym
that judge their own answer wrong. Shows the first ones as agents will read them, and the command
that trains on all.

  FILE       JSONL, JSON, CSV or Parquet
  key=value  as for training: data.columns.prompt=question data.domain=math; what YAML would take
             for something else is quoted for it as well: "data.answer_after='####'";
             for reasoning_gym: "data.reasoning_gym.tasks={chain_sum: {max_terms: 3}, gcd: {}}"
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
if [[ $# -eq 0 ]]; then
  usage >&2
  exit 2
fi

# Files may be named from where the user stands; everything else lives in the repository.
named=()
for argument in "$@"; do
  case "$argument" in
    hub:* | reasoning_gym | *=*) named+=("$argument") ;;
    *) named+=("$(realpath -m -- "$argument")") ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.data.preparation.check "${named[@]}"
