# shellcheck shell=bash
# Sourced after scripts/environment.sh by the scripts that need a browser: brings Playwright into
# .venv/browser, apart from what is pinned, and finds Chromium.

PLAYWRIGHT="playwright==1.65.2"
BROWSER_SITE="$VENV/browser"
if [[ "$(cat "$BROWSER_SITE/stamp" 2>/dev/null)" != "$PLAYWRIGHT" ]]; then
  "$PYTHON_BIN" -m pip install -qq --no-user --upgrade --target "$BROWSER_SITE" "$PLAYWRIGHT"
  printf '%s\n' "$PLAYWRIGHT" >"$BROWSER_SITE/stamp"
fi
if [[ -z "${CHROMIUM:-}" ]] && found="$(command -v chromium || command -v chromium-browser)"; then
  export CHROMIUM="$found"
fi
export PYTHONPATH="$PWD:$PWD/tests:$BROWSER_SITE"
