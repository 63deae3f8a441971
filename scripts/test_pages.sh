#!/usr/bin/env bash
# Tests the pages of runs in a real browser.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/test_pages.sh [PYTEST ARGUMENT ...]

Opens the page that scripts/view.sh writes in Chromium, offline: it filters, shows a known
discussion with its prompts and tokens, is used by keyboard, and says nothing on the console.

A script of its own, apart from scripts/test.sh, as a browser has to be installed first:
  Debian, Ubuntu      apt-get install chromium
  elsewhere           PYTHONPATH=.venv/browser .venv/bin/python -m playwright install chromium
CHROMIUM=/path/to/chromium names another one. Playwright is installed into .venv/browser.
USAGE
}

start 0 "$ANY" "$@"
source scripts/browser.sh
exec "$PYTHON_BIN" -m pytest tests/browser/page_checks.py "$@"
