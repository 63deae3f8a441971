"""The engines, each in one package: vLLM in rollout, DeepSpeed in policy, Ray in cluster."""

LOOPBACK_GROUPS = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment variables of engines, whose groups are all on one node: they meet on the loopback
interface. By itself gloo listens where the host name leads, and NCCL on the network."""


def thread_environment(threads: int) -> dict[str, str]:
    """Environment variables of a process that computes on so many threads.

    They sleep while they wait: by itself OpenMP spins, and the spinning threads of two engines on
    the same cores cost four fifths of the throughput.
    """
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
