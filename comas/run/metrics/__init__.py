"""Computed from a run: the metrics of a step, reward effectiveness, figures, summaries."""
