"""What rollout engines need on a CPU alone: the way of new weights, and faster matrix products.

* ``shared_weights``, ``weight_receiver``: the only way to new weights without a GPU; 0.02 s of a
  quick-start step of 0.85 s.
* ``lora``: vLLM's own adapters take four times as long as the rest of a tiny model.
* ``matmul``: the rollout of a quick-start step takes 1.03 times as long without it (median of 8
  turns in pairs, 0.95 to 1.16), with the same requests in every turn.
"""
