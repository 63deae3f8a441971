"""Speed benchmarks, one file each, run by scripts/benchmark.sh."""
