#!/usr/bin/env bash
# Lets a society discuss a question on the terminal.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas discuss 1 "$@"
