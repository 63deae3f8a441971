"""Started by scripts/gpu_check.sh."""

import sys

if __name__ == "__main__":  # not in spawned processes, which import less
    from scripts.command import read_arguments
    from scripts.gpu_check.checks import Arguments
    from scripts.gpu_check.run import main

    sys.exit(main(read_arguments(Arguments)))
