"""What rollout engines need on a CPU only.

* ``shared_weights``, ``weights``: weight updates without a GPU, sent and received.
* ``lora``: without it a step of configs/quickstart_lora.yaml takes 1.27 times as long (1.18 to
  1.37 in four paired runs), its rollout 1.52 times (1.42 to 1.64).
* ``worker``: imported by vLLM's worker before it loads a model.
"""
