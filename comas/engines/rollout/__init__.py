"""Sampling: one vLLM engine per process, and the way new weights get into it."""
