#!/usr/bin/env bash
# Checks files of your own questions before a training run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas check-data 1 "$@"
