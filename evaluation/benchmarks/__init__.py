"""The benchmarks. To add one, write a conversion and a ``Benchmark``, and add it here."""

from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS
from comas.config.plugins import Registry, check_call
from evaluation.benchmarks.benchmark import Benchmark
from evaluation.benchmarks.choice import GPQA, MMLU
from evaluation.benchmarks.coding import HUMANEVAL, MBPP
from evaluation.benchmarks.mathematics import GSM8K, MATH_500, SCIBENCH

_PAPERS = (GSM8K, MATH_500, HUMANEVAL, MBPP, SCIBENCH, GPQA, MMLU)
"""The columns of the paper's Table 1."""


def _as_benchmark(found: object) -> Benchmark | None:
    if not isinstance(found, Benchmark):
        return None
    check_call(found.convert, "row")
    if not FOLDER_NAME.fullmatch(found.name):
        raise TypeError(f"its name {found.name!r} {FOLDER_NAME_IN_WORDS}")
    return found


BENCHMARKS: Registry[Benchmark] = Registry(
    {benchmark.name: benchmark for benchmark in _PAPERS},
    group="comas.benchmarks",
    wanted="a Benchmark",
    adapt=_as_benchmark,
)
