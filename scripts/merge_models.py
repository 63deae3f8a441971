"""Merges LoRA adapters into whole models; see scripts/merge_models.sh."""

import argparse
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard

from comas.config.paths import whole
from comas.utils.files import written_aside
from comas.utils.model_folder import (
    ADAPTER_CONFIG,
    CARD,
    adapter_of,
    check_model_folder,
    contents_of,
    copy_tokenizer,
    describe_as,
    folder_of,
)
from comas.utils.terminal import command

log = logging.getLogger("merge_models")

ABOUT_ADAPTER = re.compile(r"^This is a LoRA adapter.*?(?=\n\n)", re.DOTALL | re.MULTILINE)
"""A model card's paragraph (comas/run/model_card.md) on opening an adapter."""
MERGED = "merged"
ORIGIN = "merged_from"
"""File: the digest of the adapter that a merged model was made from."""


@command("merge_models")
def main(arguments: Sequence[str]) -> int:
    """Merge every adapter of a run, or one adapter; return the exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/merge_models.sh")
    parser.add_argument("folder", type=lambda name: Path(whole(name, "file", None)))
    parser.add_argument("output", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    folder = options.output or options.folder / MERGED
    outputs = {adapter: folder / adapter.name for adapter in find_adapters(options.folder)}
    is_kept = {adapter: is_merged(adapter, output) for adapter, output in outputs.items()}
    for adapter, output in outputs.items():
        if not is_kept[adapter]:
            merge(adapter, output)
        log.info("%s%s", output, " (kept)" * is_kept[adapter])
    return 0


def find_adapters(folder: Path) -> list[Path]:
    """Return ``folder`` if it is an adapter, or the adapters of a run. Raises ValueError if there
    are none."""
    adapters = [*filter(adapter_of, (folder, *sorted(folder.glob("models/agent_*"))))]
    if not adapters:
        raise ValueError(
            f"{folder} holds no LoRA adapters: name a run of policy.lora that has ended, such as "
            "saves/latest, or the folder of one adapter (models that are whole need no merging)"
        )
    return adapters


def is_merged(adapter: Path, output: Path) -> bool:
    """True if ``merge`` has already written ``adapter`` to ``output``.

    Raises ValueError when something else is there: an incomplete model, the adapter itself, or the
    model of another adapter or step.
    """
    if not output.exists():
        return False
    if output.resolve() == adapter.resolve():
        raise ValueError(f"{output} is the adapter itself: name another folder")
    remedy = "remove it, or name another folder"
    try:
        check_model_folder(output)
    except ValueError as error:
        raise ValueError(f"{output} exists, but is incomplete ({error}): {remedy}") from error
    origin = output / ORIGIN
    if not origin.is_file() or origin.read_text() != contents_of(str(adapter), folder=adapter):
        raise ValueError(f"{output} exists, but was not merged from {adapter}: {remedy}")
    return True


def merge(adapter: Path, output: Path) -> None:
    """Merge ``adapter`` into its base and write it, with its tokenizer, to ``output``, atomically.
    Raises ValueError when the base is missing."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    found = adapter_of(adapter)
    assert found is not None
    try:
        folder = folder_of(found.base)
    except ValueError as error:
        place = f"base_model_name_or_path in {adapter / ADAPTER_CONFIG}"
        raise ValueError(f"{error}. If the base model was moved, correct {place}") from error
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    model = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    with written_aside(output) as partial:
        model.save_pretrained(partial)
        describe_as(folder, partial)
        copy_tokenizer(adapter, partial)
        (partial / ORIGIN).write_text(contents_of(str(adapter), folder=adapter))
        if (adapter / CARD).is_file():
            card = ModelCard.load(adapter / CARD)
            card.data.library_name = "transformers"
            merged = f"A LoRA adapter of rank {found.rank} is merged into it."
            card.text = ABOUT_ADAPTER.sub(merged, card.text)
            card.save(partial / CARD)
