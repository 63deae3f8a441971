"""Prompts and responses of a run's agents as text, token by token."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from comas.config.schema import Config
from comas.run.pages.page import Details, Thread
from comas.run.records import TOKENS, read_tokens
from comas.run.seals import read_inputs
from comas.utils.model_folder import folder_of

NOT_WRITTEN = "the run's folder has no tokens/"


def read_details(
    run: Path, config: Config, threads: Iterable[Thread], *, steps: Iterable[int] | None = None
) -> dict[str, Details]:
    """Return the prompts and tokens of ``threads`` by step, read from ``tokens/`` for ``steps``
    (None: all), as far as the run wrote them.

    Raises ValueError when an agent's tokenizer is gone.
    """
    records = read_tokens(run / TOKENS, steps=steps)
    locations = read_inputs(run)
    bases = [config.models[policy] for policy in config.policy_of_agent]

    def tokenizer(agent: int) -> Any:
        """Load the tokenizer of the saved agent, or else of its base model."""
        saved = run / "models" / f"agent_{agent}"
        base = locations.get(bases[agent], bases[agent])
        return _load_tokenizer(saved if saved.is_dir() else folder_of(base))

    @cache
    def text_of(agent: int, token_id: int) -> str:
        return str(tokenizer(agent).decode([token_id]))

    chunks: dict[str, Details] = {}
    for thread in threads:
        for turn in thread.turns:
            record = records.get((thread.id, turn.id), {})
            if turn.agent is None or "response_token_ids" not in record:
                continue
            chunks.setdefault(thread.chunk, {}).setdefault(thread.id, {})[turn.id] = {
                "prompt": tokenizer(turn.agent).decode(record["prompt_token_ids"]),
                "tokens": [text_of(turn.agent, each) for each in record["response_token_ids"]],
                **{name: record[name] for name in ("logprobs", "advantages") if name in record},
            }
    return chunks


@cache
def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # takes seconds

    return AutoTokenizer.from_pretrained(folder)
