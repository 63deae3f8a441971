"""Prompts and responses of a run's agents, token by token, in readable form."""

from collections.abc import Iterable, Mapping
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
    """Prompts and tokens of ``threads`` by step, from the files of ``tokens/`` of ``steps`` (None:
    of all); nothing where the run wrote none.

    Raises ValueError when the tokenizer of an agent is found no more.
    """
    records = read_tokens(run / TOKENS, steps=steps)
    chunks: dict[str, Details] = {}
    texts = _Texts(run, config)
    for thread in threads:
        said = {
            turn.id: texts.of(record, agent=turn.agent)
            for turn in thread.turns
            if turn.agent is not None
            and (record := records.get((thread.id, turn.id))) is not None
            and "response_token_ids" in record
        }
        if said:
            chunks.setdefault(thread.chunk, {})[thread.id] = said
    return chunks


class _Texts:
    """Decodes token ids by the tokenizer of whoever read or said them."""

    def __init__(self, run: Path, config: Config) -> None:
        locations = read_inputs(run)
        bases = [config.models[policy] for policy in config.policy_of_agent]
        self._run = run
        self._bases = [locations.get(name, name) for name in bases]
        self._token = cache(self._decode_token)

    def of(self, record: Mapping[str, Any], *, agent: int) -> dict[str, Any]:
        """A record of ``tokens/`` with texts in the place of ids."""
        prompt = self._tokenizer(agent).decode(record["prompt_token_ids"])
        tokens = [self._token(agent, token_id) for token_id in record["response_token_ids"]]
        numbers = {name: record[name] for name in ("logprobs", "advantages") if name in record}
        return {"prompt": prompt, "tokens": tokens, **numbers}

    def _decode_token(self, agent: int, token_id: int) -> str:
        return self._tokenizer(agent).decode([token_id])

    def _tokenizer(self, agent: int) -> Any:
        """The tokenizer of the trained agent, or before it is saved of its base model."""
        saved = self._run / "models" / f"agent_{agent}"
        return _load_tokenizer(saved if saved.is_dir() else folder_of(self._bases[agent]))


@cache
def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # which takes seconds

    return AutoTokenizer.from_pretrained(folder)
