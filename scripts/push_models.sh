#!/usr/bin/env bash
# Uploads a run's trained agents to the Hugging Face hub.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/push_models.sh RUN NAME [--push] [--public]

Shows which files of which agents would go where, and uploads nothing without --push. Agent 0
becomes the model NAME-agent_0 on the hub, and so on, each with its model card (README.md).

  RUN       a run that has ended, such as saves/latest, or what scripts/merge_models.sh has written
  NAME      such as your-account/my-society
  --push    uploads them, with the login of `.venv/bin/hf auth login` or of HF_TOKEN
  --public  models that are new there can be seen by everybody; without it only by you
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
if [[ $# -lt 2 ]]; then
  usage >&2
  exit 2
fi

# A run may be named from where the user stands; everything else lives in the repository.
if [[ -e "$1" ]]; then
  set -- "$(realpath -s "$1")" "${@:2}"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" scripts/push_models.py "$@"
