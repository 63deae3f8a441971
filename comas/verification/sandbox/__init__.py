"""Runs model-written programs, which are assumed to be hostile.

A program and its checker run in two processes, forked for this run from a small server that holds
no memory, environment, file or connection of ours (``inside/``). The checker calls the program's
functions over a pipe and exchanges only literals (``inside/literals.py``). A run that needs more
(objects, generators, functions or classes of either side) raises ``LiteralsError``, the verdict
"failed". A program passes if the checker's process reaches its end.

The program is kept from:

* The verdict. It cannot see, signal or trace the checker, has no descriptor of its report, and
  never has the checker's source in its memory. An invalid message ends the run, and so do
  exceptions that end a loop or leave Python (``StopIteration``, ``SystemExit``). None of its code
  runs where its values are compared.
* More time, memory, processes, open files and disk than ``Limits``. All processes are killed at the
  end. Resources that no limit counts, or that all processes of a user share, are refused.
* The network: an empty network namespace, and no sockets.
* Files: a read-only root with Python and the system's libraries, and a small /tmp in memory,
  shared with the checker, that ends with the run. No /proc, and of /dev only null and urandom.
* Other processes, signals, devices, mounts, further namespaces: namespaces of PIDs, users,
  mounts, IPC and network, no capabilities, no_new_privs, and a seccomp filter.
* The caller's environment, standard input and output, and user: it runs as nobody if started by
  root, and its output is discarded.

This does not protect from: kernel bugs in what the filter allows; a program that knows the tests;
load, until the time limits end it; reading what every user may read in /usr; a checker that
computes the expected value from an argument after the call, as in ``r = f(xs); assert r ==
sorted(xs)``: the program may have emptied the list. A wrong program can make itself "failed".

Where namespaces are refused, as in most containers, nothing runs under ``require_namespaces``.
Under ``allow_degraded`` program and checker are ordinary processes (of two users without rights, if
started by root), with a temporary folder as their disk. Landlock restricts them to that folder and
the libraries; the filter refuses sockets, signals, and what Landlock does not cover. Files that
they remove are moved aside, so that they still count. A warning names the protections that the
machine lacks. There a program may find out about files and processes that it cannot touch, and use
up other programs' share of the limit on processes; and ``os.chmod``, ``os.utime``, ``os.kill``,
``os.posix_fallocate`` and ``multiprocessing`` locks do not work.

A checker may rely on this: literals and the containers of ``collections`` arrive as copies with
their exact types; a list, dict or set passed to a call that changes it is changed in place, then
and not later; exceptions arrive as their first builtin class, with their text. Apart from what is
"failed", these do not work: one object in two places, assigning to names of the program, reading
its output, and installed packages (pytest).
"""

from comas.verification.sandbox.inside import Limits
from comas.verification.sandbox.sandbox import (
    HOW_TO_GET_NAMESPACES,
    Isolation,
    LiteralsError,
    ProgramError,
    Sandbox,
    SandboxError,
)
