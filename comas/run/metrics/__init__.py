"""Numbers computed from a run: metrics of a step, reward effectiveness, figures, summaries."""
