"""The program's process: it loads the program, and then does what the checker asks for."""

import sys
import types
from typing import NoReturn

from .conversation import Conversation


def run(program: str, *, source: int, sink: int) -> NoReturn:
    """Load ``program`` as the module ``solution``, and serve it. Raises what loading raises."""
    conversation = Conversation(source, sink)
    solution = types.ModuleType("solution")
    sys.modules["solution"] = solution
    conversation.references.give_number(solution)
    exec(compile(program, "<program>", "exec", dont_inherit=True), vars(solution))
    conversation.tell_outcome(None)
    conversation.serve()
