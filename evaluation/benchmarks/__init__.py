"""The benchmarks. A new one is one file and an entry here."""

from comas.config.plugins import Registry, check_call
from evaluation.benchmarks.aime_2024 import AIME_2024
from evaluation.benchmarks.amc_2023 import AMC_2023
from evaluation.benchmarks.benchmark import Benchmark
from evaluation.benchmarks.gpqa import GPQA
from evaluation.benchmarks.gsm8k import GSM8K
from evaluation.benchmarks.humaneval import HUMANEVAL
from evaluation.benchmarks.math_500 import MATH_500
from evaluation.benchmarks.mbpp import MBPP
from evaluation.benchmarks.medqa import MEDQA
from evaluation.benchmarks.mmlu import MMLU
from evaluation.benchmarks.scibench import SCIBENCH

_SHIPPED = {
    benchmark.name: benchmark
    for benchmark in (
        GSM8K,
        MATH_500,
        HUMANEVAL,
        MBPP,
        SCIBENCH,
        GPQA,
        MMLU,
        AIME_2024,
        AMC_2023,
        MEDQA,
    )
}


def _as_benchmark(found: object) -> Benchmark | None:
    if not isinstance(found, Benchmark):
        return None
    check_call(found.convert, "row")
    return found


BENCHMARKS: Registry[Benchmark] = Registry(
    _SHIPPED,
    group="comas.benchmarks",
    wanted="a Benchmark",
    adapt=_as_benchmark,
)

__all__ = ["BENCHMARKS", "Benchmark"]
