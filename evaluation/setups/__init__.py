"""The setups: ways to answer a task. To add one, write a file and add it here.

By default, a setup sends the task as a single user message without a system prompt.
"""

from comas.config.plugins import Registry, check_call
from evaluation.setups.discussion import DISCUSSION
from evaluation.setups.paper import AUTOGEN, CONSISTENCY, DEBATE, VANILLA
from evaluation.setups.program import setup_of
from evaluation.types import Setup


def _as_setup(found: object) -> Setup | None:
    if not isinstance(found, Setup):
        return None
    check_call(found.flow, "task", "ask")
    return found


SETUPS: Registry[Setup] = Registry(
    {
        "vanilla": VANILLA,
        "consistency": CONSISTENCY,
        "debate": DEBATE,
        "autogen": AUTOGEN,
        "discussion": DISCUSSION,
    },
    group="comas.setups",
    wanted="a Setup",
    adapt=_as_setup,
    prefixes={"program": setup_of},
)
