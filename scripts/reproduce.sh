#!/usr/bin/env bash
# Makes every run that the paper's claims need, and a report of what they show.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/reproduce.sh [--list | --report | --tune | --freeze]
                                 [--paper | --lasting | --combined | --voted] [key=value ...]

Trains CoMAS, its ablations, controls and baselines with five seeds each, one after the other, asks
the agents of CoMAS some more questions, and writes results/reproduction/report.md: the paper's
claims with what the runs say of them, tables and figures. Makes the environment (.venv) where there
is none. What is finished is never made again: after an interruption the same command goes on, also
within a run.

  --list        only say what will run, and for how long
  --report      only write the report, of the runs that are finished
  --tune        try several learning rates on seeds of their own, and write results/reproduction/
                tuning.md; what is chosen goes into the YAML files
  --freeze      write down what the society, the settings and the rules are; from then on no other
                runs are made or reported there
  --paper       with the paper's models, on GPUs (it takes days), in place of the quick-start's
                tiny agents; say saves= and results= of their own
  --lasting     another study: rewards and judges beyond the paper's, over 300 steps, against the
                verifier's reward; into saves/lasting and results/lasting
  --combined    the three changes of that study that its rules choose, in one run, with fresh seeds;
                into saves/combined and results/lasting/combined
  --voted       the same with a vote for what the judges do not see, again with fresh seeds; into
                saves/voted and results/lasting/voted
  together=true what another machine has put into the folder of results counts as finished, and is
                reported along with what is made here (--lasting, --combined, --voted)
  seeds=[0,1]   other seeds
  only=[comas,muted]   these experiments alone
  num_steps=5   shorter runs, to try the command out
  saves=DIR     where the runs are (saves/reproduction)
  results=DIR   where the report goes (results/reproduction)
USAGE
}

for argument in "$@"; do
  case "$argument" in -h | --help) usage && exit 0 ;; esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
exec "$PYTHON_BIN" -m comas.reproduction "$@"
