"""The records of a run, and all that a resume needs: ``saves/<date>-<time>-<name>/``."""

from comas.run.directory import RunDirectory

__all__ = ["RunDirectory"]
