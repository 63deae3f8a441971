"""Faults at random moments of quick-start runs, and what comes of them; see scripts/chaos.sh."""
