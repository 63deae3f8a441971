#!/usr/bin/env bash
# Shows a run, or the results of an evaluation, as a page.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/view.sh [FOLDER] [--against FOLDER] [--steps STEPS] [--output FILE]

Writes one page that needs no server and no network, and says where it is. It has the report, and
every discussion of every step, to be filtered by step, domain, agent, role, verdict, score and
reward, with the exact prompts and every token's log-probability and advantage.

  FOLDER            a run's, also of one under way (saves/latest), or results/NAME
  --against FOLDER  a second one on the same page: what became of the same question there
  --steps STEPS     the discussions of these steps only, such as 1,10-12
  --output FILE     where to write it (FOLDER/view.html)
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
    --steps) ;;
    *) [[ "$argument" == -* ]] || argument="$(realpath -ms -- "$argument")" ;;
  esac
  arguments+=("$argument")
  previous="$argument"
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" scripts/view.py "${arguments[@]+"${arguments[@]}"}"
