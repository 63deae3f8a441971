"""The inside of the sandbox: the fork server, and the processes that it forks.

The server is an interpreter of its own that knows nothing of ``comas`` nor of any installed
package (``python -S -m inside``). So this package imports the standard library alone, and its
own modules by relative names.
"""

from dataclasses import dataclass

HEADER_BYTES = 400
"""The length of a request to the server, without its texts (``__main__``)."""


@dataclass(frozen=True)
class Limits:
    """Limits of one program, and of its checker as well."""

    cpu_s: int = 3
    """CPU seconds of each process. It decides before the wall limit does, so that a verdict
    does not depend on how busy the machine is."""
    wall_s: float = 10.0
    memory_mib: int = 512
    """Address space of each process."""
    num_processes: int = 16
    """Processes and threads, the four that make up the sandbox included."""
    open_files: int = 32
    disk_mib: int = 16
    """Each file, and all files together."""
