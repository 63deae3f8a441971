"""What rollout engines need on a CPU only.

* ``shared_weights``, ``weight_receiver``: weight updates without a GPU. Through Ray's object store
  a sync of 98 M parameters takes 3.3 to 4 times as long, and no parameter may exceed the store.
* ``lora``: without it a step of configs/quickstart_lora.yaml takes 1.27 times as long (1.18 to
  1.37 in four paired runs), its rollout 1.52 times (1.42 to 1.64).
* ``worker``: imported by vLLM's worker, for the others, before it loads a model.
* ``amx``: permission for AMX instructions, without which vLLM may crash.
"""
