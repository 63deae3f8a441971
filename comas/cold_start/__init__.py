"""The cold start (``society.cold_start``): supervised learning of roles from demonstrations."""
