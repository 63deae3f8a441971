#!/usr/bin/env bash
# Evaluates a model, or a whole society, on benchmarks; compares results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas evaluate 1 "$@"
