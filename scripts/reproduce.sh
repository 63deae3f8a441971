#!/usr/bin/env bash
# Makes every run of a study, and a report of how its experiments compare.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/reproduce.sh [--list | --report] [STUDY] [key=value ...]

Trains every experiment of a study with every seed, one run after the other, and writes a report:
what changed in each, and the difference from a reference, paired by seed. Makes
the environment (.venv) where there is none. What is finished is never made again: after an
interruption the same command goes on, also within a run. A finished run keeps its checkpoints, which
take most of its disk space: its folder checkpoints/ may be removed.

  STUDY         a YAML file, of yours or one that is shipped (configs/studies/...). Without it:
                configs/studies/quickstart.yaml, the paper's experiments with tiny agents, 3 to 4 hours on
                two CPU cores. Commit a study before its first run: the report names the code.
  --list        only say which runs there are, and how far they are
  --report      only write the report, of the runs that are finished

  only=[comas,muted]   these experiments alone
  seeds=[0,1]          other seeds
  settings="training.num_steps=5"
                       added to every experiment: here shorter runs, to try a study out
  experiments.mine="mine.yaml algorithm.kl_coef=0.1"
                       one more experiment: a configuration, and settings
  metrics=[reward/solution]     what is compared, by its name in metrics.jsonl
  compare_with=comas bound=verifier
                       what gains are compared with; what they are shown as a share of
  saves=DIR            where the runs are (saves/studies/NAME, by the name of the study's file)
  results=DIR          where the numbers, the report and its figure go (results/studies/NAME)
USAGE
}

export COMAS_STARTED_IN="$PWD" # where paths may start
start 0 "$ANY" "$@"
exec "$PYTHON_BIN" -m comas.reproduction "$@"
