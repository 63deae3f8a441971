"""The inside of the sandbox: the fork server and the processes that it forks.

The server is a separate interpreter without ``comas`` or any installed package (``python -S -m
inside``). So this package imports only the standard library, and its own modules by relative names.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one program, and of its checker too."""

    cpu_s: int = 3
    """CPU seconds of each process. Reached before the wall limit, so that a verdict does not depend
    on how busy the machine is."""
    wall_s: float = 10.0
    memory_mib: int = 512
    """Address space of each process, so that all have ``num_processes`` times as much."""
    num_processes: int = 16
    """Processes and threads, including the four that make up the sandbox."""
    open_files: int = 32
    disk_mib: int = 16
    """Size of each file, and of all files together."""
