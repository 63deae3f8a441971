#!/usr/bin/env bash
# Serves a society to programs that speak OpenAI's protocol.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas serve 1 "$@"
