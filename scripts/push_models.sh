#!/usr/bin/env bash
# Uploads a run's trained agents to the Hugging Face hub.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

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

start 2 "$ANY" "$@"
run="$(whole "$1")"
[[ -e "$run" ]] || run="$1"
exec "$PYTHON_BIN" scripts/push_models.py "$run" "${@:2}"
