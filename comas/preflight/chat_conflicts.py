"""What the keys of chats and of thinking must satisfy."""

from collections.abc import Collection, Iterator, Sequence

from comas.config.faults import Conflict
from comas.config.schema import Config
from comas.utils.chat import RESERVED_KWARGS


def chat_conflicts(config: Config) -> Iterator[Conflict]:
    """What of a run's chats contradicts itself."""
    rollout, of_policies = config.rollout, config.society.chat_template_kwargs
    yield from kwargs_conflicts("rollout.chat_template_kwargs", rollout.chat_template_kwargs)
    yield from marks_conflicts("rollout.thinking_marks", rollout.thinking_marks)
    if of_policies is None:
        return
    if reserved := sorted(RESERVED_KWARGS & {name for own in of_policies for name in own}):
        yield _reserved("society.chat_template_kwargs", ", ".join(reserved))
    kwargs = config.chat_template_kwargs
    is_whole = len(kwargs) == len(config.models) == config.num_policies  # else a conflict elsewhere
    if is_whole and any(
        kwargs[p] != kwargs[family[0]] for family in config.families for p in family
    ):
        yield Conflict(
            ("society.chat_template_kwargs", "policy.lora.rank"),
            "adapters of one model share its rollout engines, which have one chat template",
            "give the policies of a model the same, or set policy.lora.rank to null",
        )


def kwargs_conflicts(key: str, template_kwargs: Collection[str]) -> Iterator[Conflict]:
    """Variables that no chat template is given from outside."""
    for name in sorted(RESERVED_KWARGS.intersection(template_kwargs)):
        yield _reserved(f"{key}.{name}", name)


def marks_conflicts(key: str, marks: Sequence[str] | None) -> Iterator[Conflict]:
    """What is no pair of thinking marks."""
    if marks is not None and not (len(marks) == 2 and all(marks) and marks[0] != marks[1]):
        yield Conflict(
            (key,),
            "must hold the mark before the thinking and another one after it",
            "write [<think>, </think>], or null for those of the model",
        )


def _reserved(key: str, names: str) -> Conflict:
    return Conflict((key,), f"{names}: whoever asks decides it, no chat template", "leave it out")
