"""``python -m comas.reproduction``, started by scripts/reproduce.sh."""

if __name__ == "__main__":  # lets Ctrl-C end it during the slow imports below
    from comas.utils.interrupts import end_at_ctrl_c

    end_at_ctrl_c()

import argparse
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from comas.config import load
from comas.config.paths import find, names_file
from comas.reproduction.report import comparison_table, has_metric, write_report
from comas.reproduction.results import (
    Record,
    RunResult,
    machine_of,
    pooled,
    read_records,
    read_result,
    write_record,
)
from comas.reproduction.runs import PlannedRun, make_runs, plan_runs
from comas.reproduction.study import Study, find_conflicts
from comas.run.metrics.meanings import meanings_of
from comas.run.provenance import read_processes
from comas.utils.files import explaining_errors
from comas.utils.terminal import command, run_command

log = logging.getLogger("comas")

QUICKSTART = "configs/studies/quickstart.yaml"


@command("comas", interrupted="interrupted; the same command goes on from here")
def main(arguments: Sequence[str]) -> int:
    """Run, list or report the study that the arguments name; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/reproduce.sh", allow_abbrev=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("words", nargs="*", metavar="[STUDY] key=value")
    options = parser.parse_intermixed_args(arguments)
    words = options.words
    is_named = bool(words) and ("=" not in words[0] or names_file(words[0]))
    named = Path(words[0] if is_named else QUICKSTART)
    study = load(Study, named, words[1:] if is_named else words, check=find_conflicts)
    path = find(named)
    assert path is not None  # it has been read
    planned = study, Path(study.saves or f"saves/studies/{path.stem}"), path.parent
    runs = plan_runs(*planned)
    log.info(
        "%d runs, %d of them finished", len(runs), sum(run.finished is not None for run in runs)
    )
    for unknown in [metric for metric in study.metrics if not meanings_of(metric)]:
        log.warning("metrics: %s is not listed in comas/run/metrics/metrics.md", unknown)
    if options.list:
        for run in runs:
            log.info("  %-28s %-9s %s", run.label, run.state, study.experiments[run.experiment])
        return 0
    num_failed = 0
    if not options.report:
        num_failed = make_runs(runs, metric=study.metrics[0])
        plan_runs(*planned)  # refuses inputs that changed while runs were made
    report = save_report(study, runs, Path(study.results or f"results/studies/{path.stem}"))
    log.info("report: %s", report)
    if num_failed:
        log.error("%d runs failed (above); the same command tries them again", num_failed)
    return 1 if num_failed else 0


def save_report(study: Study, runs: Sequence[PlannedRun], target: Path) -> Path:
    """Add the numbers of the finished runs to the folder ``target``, and write a report of all runs
    there that the study would start the same way today; returns its path. Raises ValueError if
    there are none."""
    made = defaultdict[str, list[RunResult]](list)
    dates = defaultdict[str, str](str)
    for run in runs:
        if folder := run.finished:
            result = read_result(folder, run.experiment, seed=run.seed, metrics=study.metrics)
            words, machine = study.words(run.experiment), machine_of(folder)
            made[machine].append(replace(result, words=words))
            dates[machine] = max(dates[machine], read_processes(folder)[-1]["started"][:10])
    with explaining_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    known = {record.machine: record for record in read_records(target)}
    for machine, runs_here in made.items():
        earlier = known[machine].runs if machine in known else []
        made_as = attrgetter("experiment", "seed", "words")
        runs_here += [old for old in earlier if made_as(old) not in map(made_as, runs_here)]
        known[machine] = Record(machine, dates[machine], runs_here)
        write_record(target, known[machine])
    ours_first = sorted(known.values(), key=lambda record: record.machine not in made)
    records = [of_today(record, study) for record in ours_first]
    results = pooled(records, study.experiments, study.seeds)
    if not results:
        raise ValueError(f"no run is finished, and {target} has no numbers: nothing to report")
    report = write_report(study, results, records, target)
    if has_metric(results, study.metrics[0]):
        log.info("%s", comparison_table(results, study.metrics[0], reference=study.reference))
    return report


def of_today(record: Record, study: Study) -> Record:
    """Leave out runs that the study would start with other arguments today, and log how many."""
    fit = [
        run
        for run in record.runs
        if run.experiment in study.experiments and run.words == study.words(run.experiment)
    ]
    if left_out := len(record.runs) - len(fit):
        log.warning("%s: %d runs were started otherwise: not in the report", record.file, left_out)
    return replace(record, runs=fit)


if __name__ == "__main__":
    run_command(main)
