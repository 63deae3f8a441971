"""The embedded default: a society of tiny agents and its questions, built from nothing."""

from comas.quickstart.build import build_society

__all__ = ["QUICKSTART_PREFIX", "build_society"]

QUICKSTART_PREFIX = "quickstart/"
"""Begins the names of the embedded models and question files."""
