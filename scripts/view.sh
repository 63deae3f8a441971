#!/usr/bin/env bash
# Shows runs, or the results of evaluations, as a page.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
run_comas view 0 "$@"
