"""The cold start (``society.cold_start``): supervised learning of the roles from demonstrations,
before a run."""
