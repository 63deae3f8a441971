"""What rollout engines need on a CPU alone: the way of new weights, and LoRA adapters.

* ``shared_weights``, ``weight_receiver``: the only way to new weights without a GPU; 0.02 s of a
  quick-start step of 0.85 s.
* ``lora``: without it a step of configs/quickstart_lora.yaml takes 1.27 times as long (1.18 to
  1.37 in four turns in pairs), its rollout 1.52 times (1.42 to 1.64).
"""
