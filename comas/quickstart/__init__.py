"""The quick-start: a society of tiny agents and its questions, built from scratch."""

from comas.quickstart.build import build_society

QUICKSTART_PREFIX = "quickstart/"
"""Prefix of the names of its models and question files."""
