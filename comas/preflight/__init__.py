"""Checks of the configuration, machine, models and questions before a run, so that no work is lost
to an error that could have been found at the start."""
