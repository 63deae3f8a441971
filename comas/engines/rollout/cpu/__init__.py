"""Needs of rollout engines on a CPU alone: the way of new weights, LoRA adapters, models that fit.

* ``shared_weights``, ``weight_receiver``: the only way to new weights without a GPU. Through Ray's
  object store a sync of 98 M parameters takes 3.3 to 4 times as long (0.99 and 0.96 s instead of
  0.24 and 0.29 s) and a quick-start step of 0.85 s takes 0.006 s more; no parameter could be larger
  than the store.
* ``lora``: without it a step of configs/quickstart_lora.yaml takes 1.27 times as long (1.18 to
  1.37 in four turns in pairs), its rollout 1.52 times (1.42 to 1.64).
* ``worker``: what a worker imports for these before it loads a model.
* ``amx``: what a process has to ask for, before vLLM dies without it.
"""
