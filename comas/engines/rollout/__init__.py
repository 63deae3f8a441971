"""Sampling: one vLLM engine per process, and its weight updates."""
