"""The paper's experiments at once: which runs, what they showed, and which claims they bear out.

Started by scripts/reproduce.sh. A new experiment is one YAML and one line in ``experiments``; a new
claim is one entry in ``claims``.
"""
