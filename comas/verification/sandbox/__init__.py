"""Running model-written programs, which are taken to be hostile.

A program and its checker run in two processes, forked for them alone from a small warm server
that holds no memory, environment, file or connection of ours (``inside/``). The checker calls
the program's functions over a pipe. What comes back is data of Python's own types, or stays a
reference to an object over there; nothing of the program runs in the checker's process, and
the verdict is that the checker's process has come to the checker's end.

What a program is kept from:

* The verdict. It cannot see, signal or trace the checker, has no descriptor of its report, and
  has the checker's source nowhere in its memory. A message that no honest program sends ends the
  run. Its objects are compared and calculated with the checker's values by what a builtin type has
  of them, whatever their ``__eq__`` says, or not at all: they would learn what is expected. A
  conversion (``float``, ``len``, ``str``) is asked for once, until something else is. Exceptions
  that end a loop or skip a test (``StopIteration``, ``SystemExit``, ``unittest.SkipTest``) end the
  run, unless the checker names them. No method of the checker's objects can be replaced.
* Time, memory, processes, open files, disk: ``Limits``. All processes are killed at the end, with
  whatever they fork while they die. Refused is what no limit counts (files in memory and without a
  name, pages that a pipe holds) or all processes of a user share (watches, asynchronous input, room
  in pipes), and to have the machine write out its disks.
* The network: an empty network namespace, and no sockets.
* Files: a root with Python and the system's libraries, read-only, and a small /tmp in memory,
  shared with the checker, that ends with the run. No /proc, no /dev but null and urandom.
* Other processes, signals, devices, mounts, further namespaces: namespaces of PIDs, users,
  mounts, IPC and network, no capabilities, no_new_privs, and a seccomp filter.
* The caller's environment, standard input and output, and user: it runs as nobody if started by
  root, and its output is discarded.

What this does not protect from:

* Faults of the kernel in what the filter allows; a virtual machine would.
* A program that knows the tests: it may answer just those.
* A checker that believes the program's objects: ``assert f(2)``, ``f(2).startswith("a")`` and
  ``3 in f(2)`` ask the object that the program returns, and so does ``f(2) == g(2)``.
* A checker that works out what it expects from an argument after the call, as in ``r = f(xs);
  assert r == sorted(xs)``: the program may have emptied the list, which may be its task.
* A checker that calls functions which it finds in a list or dictionary that it has passed to the
  program: they may be the program's by then.
* Load: ``num_processes`` times ``memory_mib`` may be in use until the limits of time end it.
* Reading what every user of the machine may read beneath /usr.

Where namespaces are refused, as in most containers, nothing runs under ``require_namespaces``.
Under ``allow_degraded`` program and checker are processes of the machine like others (of two
users without rights, if started by root) and files beneath a temporary folder are their disk.
Landlock keeps them to that folder and the libraries; the filter keeps them from sockets and
signals, and from what Landlock leaves open. What they remove is moved aside, so that it still
counts. What is missing of these is said in a warning, with what it opens and how to get it. Not
promised there: that a program cannot find out about files and processes that it cannot touch, and
that one program leaves another its share of the limit on processes. And less works: ``os.chmod``,
``os.utime``, ``os.kill``, ``os.posix_fallocate``, ``multiprocessing`` locks.

What a checker may count on: its values arrive with their exact types, as do the program's
(numbers, text, bytes, the containers of ``builtins`` and ``collections``, dates, ``Decimal``,
``Fraction``); instances of their subclasses, such as named tuples, compare and calculate as in one
process; a list, dict or set that both sides hold is the same on both at every call (of more than
2000 items together: during that call only); functions and objects of the checker can be passed
to the program, which gets their public attributes; objects, classes, generators, context
managers and exceptions of the program work as in one process. What does not: ``type``,
``callable`` and the abstract base classes, which see a stand-in of the program's object; its
subclasses in the checker, ``inspect``, ``await``, pickling or copying its objects, patching its
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
