"""``python -m comas.commands``: the command ``comas``."""

from comas.commands import main

main()
