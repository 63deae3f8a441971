#!/usr/bin/env bash
# Takes pictures of the page of a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/screenshots.sh PAGE FOLDER

Opens PAGE, which scripts/view.sh wrote, in Chromium, and writes FOLDER/report.png and
FOLDER/discussion.png: the report's beginning, and the first discussion in which rewards and
verdicts disagree, with its tokens. Chromium: see bash scripts/test_pages.sh --help.
USAGE
}

start 2 2 "$@"
mapfile -t paths < <(whole "$@")
source scripts/browser.sh
exec "$PYTHON_BIN" scripts/screenshots.py "${paths[@]}"
