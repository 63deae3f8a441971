"""Started by scripts/gpu_check.sh."""

import sys

if __name__ == "__main__":  # else a process that measures something, and imports that alone
    from scripts.command import read_arguments
    from scripts.gpu_check.checks import Arguments
    from scripts.gpu_check.run import ABOUT, main

    sys.exit(main(read_arguments(Arguments, about=ABOUT)))
