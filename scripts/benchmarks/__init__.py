"""Benchmarks of this code's own speed, one file each, run by scripts/benchmark.sh."""
