"""What is kept of a run, and what a resume needs: ``saves/<date>-<time>-<name>/``."""

from comas.run_directory.checkpoint_writer import CheckpointWriter
from comas.run_directory.directory import RunDirectory

__all__ = ["CheckpointWriter", "RunDirectory"]
