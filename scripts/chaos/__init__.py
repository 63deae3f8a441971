"""Injects faults into quick-start runs at random moments; see scripts/chaos.sh."""
