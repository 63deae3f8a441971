"""Running model-written programs, which are taken to be hostile.

A program and its checker run in two processes, forked for them alone from a small warm server
that holds no memory, environment, file or connection of ours (``inside/``). The checker calls
the program's functions over a pipe. What comes back is data of Python's own types, or stays a
reference to an object over there; the verdict is that the checker's process has come to its end.

What a program is kept from:

* The verdict. It cannot see, signal or trace the checker, has no descriptor of its report, and
  nowhere in its memory the checker's source. A message that no honest program sends ends the run.
  Its objects are compared and calculated with the checker's values by what a builtin type has of
  them, whatever their ``__eq__`` says, or not at all: they would learn what is expected. A
  conversion (``float``, ``len``, ``str``) is asked for once, until something else is. Exceptions
  that end a loop or skip a test (``StopIteration``, ``unittest.SkipTest``) end the run, unless the
  checker names them. No method of the checker's objects can be replaced.
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
/usr; and a checker that

* believes the program's objects: ``assert f(2)``, ``f(2).startswith("a")``, ``3 in f(2)`` and
  ``f(2) == g(2)`` ask the object that the program returns;
* works out what it expects from an argument after the call, as in ``r = f(xs); assert r ==
  sorted(xs)``: the program may have emptied the list, which may be its task;
* calls functions that it finds in a container which it has passed to the program.

Where namespaces are refused, as in most containers, nothing runs under ``require_namespaces``.
Under ``allow_degraded`` program and checker are processes of the machine like others (of two
users without rights, if started by root) and files beneath a temporary folder are their disk.
Landlock keeps them to that folder and the libraries; the filter keeps them from sockets and
signals, and from what Landlock leaves open. What they remove is moved aside, so that it still
counts. What is missing of these is said in a warning. Not promised there: that a program cannot
find out about files and processes that it cannot touch, and that one program leaves another its
share of the limit on processes. And less works: ``os.chmod``, ``os.utime``, ``os.kill``,
``os.posix_fallocate``, ``multiprocessing`` locks.

What a checker may count on: values of builtin and standard types arrive with their exact types
(``inside/values.py``); instances of subclasses compare and calculate as in one process; a list,
dict or set that both sides hold is the same on both at every call (of more than 2000 items
together: during that call only); functions and objects of the checker can be passed to the
program, which gets their public attributes; objects, classes, generators, context managers and
exceptions of the program work as in one process. What does not work: ``type``, ``callable``,
abstract base classes and builtin types on the program's objects (``isinstance(f(), tuple)`` of a
namedtuple), operators between a value of the checker and an object that is of no builtin type
(``2 * Vector(3)``), subclassing, ``inspect``, ``await``, pickling or copying them, patching its
names, reading its output, and pytest or any other installed package.
"""

from comas.verification.sandbox.inside import Limits
from comas.verification.sandbox.sandbox import (
    HOW_TO_GET_NAMESPACES,
    Isolation,
    ProgramError,
    Sandbox,
    SandboxError,
)

__all__ = [
    "HOW_TO_GET_NAMESPACES",
    "Isolation",
    "Limits",
    "ProgramError",
    "Sandbox",
    "SandboxError",
]
