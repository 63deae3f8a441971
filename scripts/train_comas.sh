#!/usr/bin/env bash
# Trains a co-evolving society.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas train 0 "$@"
