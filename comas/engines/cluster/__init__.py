"""Ray lives here and nowhere else: placement, actors, weight transfer, supervision."""

import os

# Read by Ray when it is imported. A Ray that we start listens on the loopback interface alone
# (joining an existing cluster through RAY_ADDRESS is not affected), reports nothing
# home, and leaves CUDA_VISIBLE_DEVICES of processes without a GPU alone.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# It would print raw lines of the logs of its own processes when one of them dies.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
# Its processes are known by their environment, which their new titles would overwrite.
os.environ.setdefault("SPT_NOENV", "1")
# Nothing that is still under way when a Ray ends may start another, unasked.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# By default its workers are nicer (15) than whatever else runs: the verifier beside an update, or
# another program, would take the cores from the engines.
os.environ.setdefault("RAY_worker_niceness", "0")
