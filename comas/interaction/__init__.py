"""Interaction: agents discuss questions."""
