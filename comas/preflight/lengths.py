"""Checks that prompts and responses fit into the models' context, and questions into a prompt."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from tokenizers import Tokenizer

from comas.config.schema import Config
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.wording import wording_of
from comas.preflight.checks import Check
from comas.types import Question
from comas.utils.files import read_json

MAX_QUESTIONS = 100
"""Questions whose prompts are measured, spread evenly over the file."""
WARNED_SHARE = 0.1
"""A larger share of questions that are too long is a warning."""
NOT_STRETCHED = ("default", "dynamic", "llama3", "longrope", "su")
"""Kinds of RoPE for which vLLM's table has max_position_embeddings entries. (With "dynamic" it
accepts more, and then reads beyond the end of its table.)"""
_OBJECT = TypeAdapter(dict[str, Any])


def check_lengths(
    config: Config, *, folders: Mapping[str, Path], questions: Sequence[Question]
) -> Iterator[Check]:
    """Yield the checks of the context of the models in ``folders`` (by name), and of the prompts of
    the training ``questions``, as far as they are known."""
    contexts = {name: context_length(folder) for name, folder in folders.items()}
    known = {name: tokens for name, tokens in contexts.items() if tokens is not None}
    if known:
        yield _check_contexts(config, known)
    asked = questions[:: max(1, len(questions) // MAX_QUESTIONS)][:MAX_QUESTIONS]
    wording = wording_of(config.interaction.prompts)
    prompts = [fill(SOLUTION, q.domain, question=q.text, wording=wording) for q in asked]
    files = {name: folder / "tokenizer.json" for name, folder in folders.items()}
    lengths = {name: _text_lengths(file, prompts) for name, file in files.items() if file.is_file()}
    if asked and lengths:
        yield _check_prompts(config, lengths)


def context_length(folder: Path) -> int | None:
    """Return the model's context in tokens, for prompt and response together; None if config.json
    does not say, or stretches its positions (linear, yarn), which vLLM handles itself."""
    whole = read_json(folder / "config.json", _OBJECT, remedy="Get the model again")
    text = whole.get("text_config") or whole
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    return text.get("max_position_embeddings") if kind in NOT_STRETCHED else None


def _text_lengths(tokenizer_file: Path, texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text, without the chat template's: transformers, which applies it,
    takes seconds to import."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    return [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]


def _check_prompts(config: Config, lengths: Mapping[str, Sequence[int]]) -> Check:
    """Check the prompts of the questions with the tokenizer for which most are too long."""
    limit = config.rollout.max_prompt_tokens
    name, worst = max(lengths.items(), key=lambda item: sum(n > limit for n in item[1]))
    num_over, longest = sum(length > limit for length in worst), max(worst)
    said = (
        f"rollout.max_prompt_tokens={limit}: of {len(worst)} questions {num_over} have longer "
        f"prompts for {name}, and are never asked; the longest has {longest} tokens, without the "
        "chat template's: raise it"
    )
    is_hopeless = num_over == len(worst)
    is_warning = not is_hopeless and num_over > WARNED_SHARE * len(worst)
    return Check(
        "longest first prompt",
        f"over {longest} tokens",
        f"at most {limit}",
        error=said if is_hopeless else None,
        warning=said if is_warning else None,
    )


def _check_contexts(config: Config, contexts: Mapping[str, int]) -> Check:
    prompt, response = config.rollout.max_prompt_tokens, config.rollout.longest_response
    name, least = min(contexts.items(), key=lambda item: item[1])
    error = None
    if prompt + response > least:
        error = (
            f"rollout.max_prompt_tokens={prompt} and rollout.max_response_tokens={response}: "
            f"{name} reads {least} tokens, prompt and response together; lower one of them, so "
            f"that both have {least} at most, or choose another model (society.models)"
        )
    return Check("context of the models", f"{prompt + response} tokens", str(least), error)
