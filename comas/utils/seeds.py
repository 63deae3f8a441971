"""Sampling seeds for training, validation and evaluation."""

import hashlib


def sampling_seed(*parts: object) -> int:
    """Return 63 bits of a hash of ``parts``, so that requests sample independently of each other
    and of their order: ``sampling_seed(0, 3, "math/17", 1, "r0.s1")`` is for turn r0.s1 in copy 1
    of question math/17 at step 3 of a run with seed 0."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
