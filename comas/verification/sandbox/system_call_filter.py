"""seccomp: the system calls that no Python program needs, refused by the kernel.

What is left out here is allowed: threads, child processes and files work as ever.
"""

import errno
import tempfile
from functools import cache
from typing import Any

REFUSED = {
    "other processes": (
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp "
        "pidfd_getfd move_pages migrate_pages"
    ),
    "namespaces and mounts": (
        "unshare setns mount umount2 pivot_root chroot move_mount open_tree open_tree_attr "
        "fsopen fsconfig fsmount fspick mount_setattr statmount listmount"
    ),
    "sockets, but for socketpair": "socket",
    "objects that outlive their process": "shmget semget msgget mq_open",
    "device nodes": "mknod mknodat",
    "large and seldom used parts of the kernel": (
        "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register "
        "keyctl add_key request_key fanotify_init name_to_handle_at open_by_handle_at "
        "lookup_dcookie remap_file_pages modify_ldt uselib ustat sysfs vm86 vm86old"
    ),
    "the machine": (
        "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon "
        "swapoff syslog acct quotactl quotactl_fd settimeofday clock_settime adjtimex "
        "clock_adjtime sethostname setdomainname iopl ioperm personality vhangup nfsservctl"
    ),
}
SIGNALS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal"
NEW_NAMESPACES = {
    "cgroup": 0x02000000,
    "IPC": 0x08000000,
    "mounts": 0x00020000,
    "network": 0x40000000,
    "PIDs": 0x20000000,
    "users": 0x10000000,
    "host name": 0x04000000,
}
"""Flags of clone."""


@cache
def compile_filter(*, signals: bool) -> bytes:
    """The filter as instructions for the kernel (BPF), compiled by libseccomp.

    signals: whether signals may be sent; without PID namespaces every process of the user is
        in reach of them.

    Raises RuntimeError where a library is missing, with the remedy.
    """
    seccomp = _load_library()
    filtering = seccomp.SyscallFilter(seccomp.ALLOW)
    refusal = seccomp.ERRNO(errno.EPERM)
    names = " ".join(REFUSED.values()) + ("" if signals else f" {SIGNALS}")
    for name in names.split():
        number = seccomp.resolve_syscall(seccomp.Arch.NATIVE, name)
        if number != -1:  # unknown to this version of libseccomp
            filtering.add_rule(refusal, number)
    for flag in NEW_NAMESPACES.values():
        is_set = seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag)
        filtering.add_rule(refusal, "clone", is_set)
    # The flags of clone3 are out of a filter's sight; without it the C library uses clone.
    filtering.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    # The limits of another process: only one's own are named by 0.
    filtering.add_rule(refusal, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    with tempfile.TemporaryFile() as file:
        filtering.export_bpf(file)
        file.seek(0)
        return file.read()


def _load_library() -> Any:
    try:
        import pyseccomp
    except ImportError as error:
        raise RuntimeError("pyseccomp is missing: pip install pyseccomp") from error
    except RuntimeError as error:
        raise RuntimeError("libseccomp is missing: apt-get install libseccomp2") from error
    return pyseccomp
