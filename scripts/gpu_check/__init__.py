"""Checks and times what is specific to GPUs, on this machine; started by scripts/gpu_check.sh."""
