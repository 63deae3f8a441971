"""A run's records, checks and validation, and all that a resume needs."""

from comas.run.directory import RunDirectory
