#!/usr/bin/env bash
# Lets a society discuss a question on the terminal.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/discuss.sh MODEL QUESTION [option ...]
       bash scripts/discuss.sh --base-url URL [--name MODEL] QUESTION [option ...]

Shows every turn as it is sampled, with the scores, and at last the answer of the solution with
the best score: two rounds, in each of which every agent solves, is evaluated and scored.

  MODEL             a run directory such as saves/latest, whose agents discuss; or a model folder
                    or a hub name such as Qwen/Qwen2.5-3B-Instruct, which plays four agents
  --base-url URL    asks an OpenAI-compatible endpoint instead, such as http://host:8000/v1 (its
                    key, if it wants one: OPENAI_API_KEY); --name where it serves several models
  --untrained       of a run: the models that it began with
  --domain DOMAIN   whose prompts: math, science or coding (math)
  --seed N          another one gives another discussion (0)
  --temperature T   of sampling; 0 is greedy (0.7)

Example: bash scripts/discuss.sh saves/latest "What is 48 + 23?"
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
if [[ $# -eq 0 ]]; then
  usage >&2
  exit 2
fi

# A model may be named from where the user stands; everything else lives in the repository.
if [[ -e "$1" ]]; then
  set -- "$(realpath "$1")" "${@:2}"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" scripts/discuss.py "$@"
