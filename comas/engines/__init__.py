"""The engines, each in its own package: vLLM in rollout, DeepSpeed in policy, Ray in cluster."""

LOOPBACK_GROUPS = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment variables that make process groups meet on the loopback interface: all groups are on
one node. By default gloo listens on the host name's address, and NCCL on the network."""


def thread_environment(threads: int) -> dict[str, str]:
    """Environment variables of a process that computes on ``threads`` threads.

    Waiting threads sleep: OpenMP's default is to spin, and spinning threads of two engines on the
    same cores cost four fifths of the throughput.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # An entry per shape multiplied: by default 250 MiB after 100,000 tokens.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    }
