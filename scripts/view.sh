#!/usr/bin/env bash
# Shows runs, or the results of evaluations, as a page.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/view.sh [FOLDER ...] [--steps STEPS] [--output FILE]
       bash scripts/view.sh [FOLDER ...] --live [--steps STEPS] [--port PORT]

Writes one page that needs no server and no network, and says where it is. It has the report, a
curve of any metric, and every discussion of every step, to be filtered by what one looks for
(approved though wrong, accused though right, unparsable, truncated, special tokens), step, domain,
agent, role, verdict, score and reward, with the exact prompts and every token's log-probability
and advantage.

  FOLDER         a run's (saves/latest unless given), or results/NAME. Of several, curves lie over
                 each other, and what became of the same question stands side by side
  --steps STEPS  the discussions of these steps only, such as 1,10-12
  --output FILE  where to write it (view.html in the first FOLDER)
  --live         follows runs under way: serves the page to this machine alone, at an address with
                 a random key; new steps appear by themselves, with the time that is left
  --port PORT    where to serve it (any that is free), as for a tunnel by ssh -L
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done

# Folders may be named from where the user stands; everything else lives in the repository.
arguments=()
previous=""
for argument in "$@"; do
  case "$previous" in
    --steps | --port) ;;
    *) [[ "$argument" == -* ]] || argument="$(realpath -ms -- "$argument")" ;;
  esac
  arguments+=("$argument")
  previous="$argument"
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" scripts/view.py "${arguments[@]+"${arguments[@]}"}"
