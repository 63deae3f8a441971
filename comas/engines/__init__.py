"""The engines, each in one package: vLLM in rollout, DeepSpeed in policy, Ray in cluster."""

LOOPBACK_GROUPS = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment variables of every engine's process: its groups, all on one node, meet on the
loopback interface. By itself gloo listens where the host name leads, and NCCL on the network."""
