#!/usr/bin/env bash
# Evaluates a model, or a whole society, on benchmarks; compares results.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/evaluate_model.sh NAME PATH [key=value ...]
       bash scripts/evaluate_model.sh NAME --base-url URL [key=value ...]
       bash scripts/evaluate_model.sh compare A B [C ...]

Makes the environment (.venv) where there is none, serves the model with vLLM, asks it the
paper's seven benchmarks (of a quick-start run: its held-out questions) under every setup,
grades the answers and writes results/NAME/. Rerun the command to resume an evaluation.

  NAME          names the results
  PATH          a model folder in Hugging Face format, a hub name such as
                Qwen/Qwen2.5-3B-Instruct, or a run directory such as saves/latest: then every
                agent is evaluated, and the society as a whole
  --base-url    evaluates an OpenAI-compatible endpoint instead, such as http://host:8000/v1
                (its key, if it wants one: OPENAI_API_KEY)
  key=value     benchmarks=[gsm8k,math-500]  setups=[vanilla,debate]  limit=50  seeds=5
                baseline=OTHER_NAME  weights=untrained (of a run: the models it began with; best: of its best checkpoint)
                temperature=0.7  max_tokens=2048  concurrency=32  ... (evaluation/config.py)
  compare       prints a table of several results, and draws a figure

Example, without GPU, model or data: what bash scripts/train_comas.sh trained on this machine.
  bash scripts/evaluate_model.sh quickstart saves/latest
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
if [[ $# -gt 1 && "$1" != compare && -e "$2" ]]; then
  set -- "$1" "$(realpath "$2")" "${@:3}"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m evaluation "$@"
