#!/usr/bin/env bash
# Takes pictures of the page of a run.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/screenshots.sh PAGE FOLDER

Opens PAGE, which scripts/view.sh wrote, in Chromium, and writes FOLDER/report.png and
FOLDER/discussion.png: the report's beginning, and the first discussion in which rewards and
verdicts disagree, with its tokens. Chromium: see bash scripts/test_pages.sh --help.
USAGE
}

for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
  esac
done
if [[ $# -ne 2 ]]; then
  usage >&2
  exit 2
fi
set -- "$(realpath "$1")" "$(realpath -m "$2")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
source scripts/browser.sh
exec "$PYTHON_BIN" scripts/screenshots.py "$@"
