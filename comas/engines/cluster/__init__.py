"""Placement, actors, weight transfer and supervision: Ray is imported in this package only."""

import os

# Ray reads these when it is imported. A Ray that we start listens on the loopback interface only
# (a cluster joined by RAY_ADDRESS is not affected), reports no usage, and does not change
# CUDA_VISIBLE_DEVICES of processes without a GPU.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Otherwise Ray prints raw log lines of its own processes when one of them dies.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
# We find its processes by their environment, which new process titles would overwrite.
os.environ.setdefault("SPT_NOENV", "1")
# A call that is still under way when a Ray ends must not start another Ray.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# By default workers have niceness 15: verifiers or other programs would take the engines' cores.
os.environ.setdefault("RAY_worker_niceness", "0")
