"""What is computed from a run: the metrics of a step, reward effectiveness, figures, summaries."""
