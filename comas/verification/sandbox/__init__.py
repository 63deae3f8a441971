"""Running model-written programs, which are taken to be hostile.

A program and its checker run in two processes, forked for them alone from a small warm server
that holds no memory, environment, file or connection of ours (``inside/``). The checker calls
the program's functions over a pipe, by literals alone (``inside/literals.py``): what needs more,
as objects, generators, functions or classes of either side, is judged neither correct nor wrong
(``LiteralsError``: the verdict "failed"). The verdict is that the checker's process has come to
its end.

What a program is kept from:

* The verdict. It cannot see, signal or trace the checker, has no descriptor of its report, and
  nowhere in its memory the checker's source. A message that no honest program sends ends the run.
  None of its code runs where its values are compared. Exceptions that end a loop or leave Python
  (``StopIteration``, ``SystemExit``) end the run.
* Time, memory, processes, open files, disk: ``Limits``. All processes are killed at the end. What
  no limit counts, or all processes of a user share, is refused.
* The network: an empty network namespace, and no sockets.
* Files: a root with Python and the system's libraries, read-only, and a small /tmp in memory,
  shared with the checker, that ends with the run. No /proc, no /dev but null and urandom.
* Other processes, signals, devices, mounts, further namespaces: namespaces of PIDs, users,
  mounts, IPC and network, no capabilities, no_new_privs, and a seccomp filter.
* The caller's environment, standard input and output, and user: it runs as nobody if started by
  root, and its output is discarded.

What this does not protect from: faults of the kernel in what the filter allows; a program that
knows the tests; load, until the limits of time end it; reading what every user may read beneath
/usr; and a checker that works out what it expects from an argument after the call, as in ``r =
f(xs); assert r == sorted(xs)``: the program may have emptied the list, which may be its task. A
program that is wrong can have itself judged "failed".

Where namespaces are refused, as in most containers, nothing runs under ``require_namespaces``.
Under ``allow_degraded`` program and checker are processes of the machine like others (of two
users without rights, if started by root) and files beneath a temporary folder are their disk.
Landlock keeps them to that folder and the libraries; the filter keeps them from sockets and
signals, and from what Landlock leaves open. What they remove is moved aside, so that it still
counts. What is missing of these is said in a warning. Not promised there: that a program cannot
find out about files and processes that it cannot touch, and that one program leaves another its
share of the limit on processes. And less works: ``os.chmod``, ``os.utime``, ``os.kill``,
``os.posix_fallocate``, ``multiprocessing`` locks.

What a checker may count on: literals and the containers of ``collections`` arrive with their exact
types, as copies; a list, dict or set that is an argument is changed in place by the call that
changes it, and not later; exceptions arrive as their first builtin class, with their text. What
does not work, beside all that is "failed": items that were the same object in two places, names
of the program that the checker assigns to, reading its output, and installed packages (pytest).
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

__all__ = [
    "HOW_TO_GET_NAMESPACES",
    "Isolation",
    "Limits",
    "LiteralsError",
    "ProgramError",
    "Sandbox",
    "SandboxError",
]
