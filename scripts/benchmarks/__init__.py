"""What this code's own speed is measured with: one file for each, run by scripts/benchmark.sh."""
