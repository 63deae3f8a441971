#!/usr/bin/env bash
# Tells which societies fit on how many GPUs, how, and for how many hours: by arithmetic alone.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m scripts.plan "$@"
