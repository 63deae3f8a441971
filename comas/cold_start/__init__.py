"""The cold start (``society.cold_start``): base models learn from demonstrations how their roles
speak, before a run trains them."""
