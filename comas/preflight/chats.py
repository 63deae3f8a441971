"""Constraints on the keys of chats, which a training run and an evaluation share."""

from collections.abc import Collection, Iterator

from comas.config.faults import Conflict

RESERVED_KWARGS = frozenset(
    {"conversation", "messages", "chat_template", "add_generation_prompt", "tokenizer_kwargs"}
    | {"continue_final_message", "tokenize", "padding", "truncation", "max_length"}
    | {"return_tensors", "return_dict", "return_assistant_tokens_mask"}
)
"""Arguments of ``apply_chat_template`` that are for its caller, or make the prompt."""


def kwargs_conflicts(key: str, template_kwargs: Collection[str]) -> Iterator[Conflict]:
    """Yield a conflict for each variable that no chat template is given from outside."""
    for name in sorted(RESERVED_KWARGS.intersection(template_kwargs)):
        said = f"{name}: whoever asks decides it, no chat template"
        yield Conflict((f"{key}.{name}",), said, "leave it out")
