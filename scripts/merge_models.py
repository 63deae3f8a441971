"""Whole models from LoRA adapters: what scripts/merge_models.sh starts."""

import argparse
import logging
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard

from comas.model_folder import CARD, DESCRIPTION_FILES, adapter_of, folder_of
from comas.terminal import EXIT_FAULT, EXIT_INTERRUPTED, start_command

log = logging.getLogger("merge_models")

OF_ADAPTERS = "adapter_*"
ABOUT_ADAPTER = re.compile(r"^This is a LoRA adapter.*?(?=\n\n)", re.DOTALL | re.MULTILINE)
"""The paragraph of a card (comas/model_card.md) on how an adapter is opened."""
MERGED = "merged"


def main(arguments: Sequence[str]) -> int:
    """Merge every adapter of a run, or one; returns the process's exit status."""
    start_command("merge_models")
    parser = argparse.ArgumentParser(prog="bash scripts/merge_models.sh")
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    try:
        adapters = find_adapters(options.folder)
        output = options.output or options.folder / MERGED
        for adapter in adapters:
            merge(adapter, output / adapter.name)
            log.info("%s", output / adapter.name)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (ValueError, OSError) as error:
        log.error("error: %s", error)
        return EXIT_FAULT
    return 0


def find_adapters(folder: Path) -> list[Path]:
    """``folder`` itself, or the trained agents of the run in it.

    Raises ValueError when neither is an adapter.
    """
    candidates = [folder, *sorted(folder.glob("models/agent_*"))]
    adapters = [candidate for candidate in candidates if adapter_of(candidate) is not None]
    if not adapters:
        raise ValueError(
            f"{folder} holds no LoRA adapters: name a run of policy.lora that has ended, such as "
            "saves/latest, or the folder of one adapter (models that are whole need no merging)"
        )
    return adapters


def merge(adapter: Path, output: Path) -> None:
    """Write the model that ``adapter`` makes of its base, with the same tokenizer, to ``output``.

    Raises ValueError when the base is not there, or ``output`` is.
    """
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    found = adapter_of(adapter)
    assert found is not None
    if output.exists():
        raise ValueError(f"{output} is there already: remove it, or name another folder")
    base = AutoModelForCausalLM.from_pretrained(folder_of(found.base), dtype="auto")
    model = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    model.save_pretrained(output)
    others = {path for pattern in DESCRIPTION_FILES for path in adapter.glob(pattern)}
    for path in sorted(others - set(adapter.glob(OF_ADAPTERS))):
        shutil.copyfile(path, output / path.name)
    if (adapter / CARD).is_file():
        _card_of_merged(adapter / CARD, rank=found.rank).save(output / CARD)


def _card_of_merged(path: Path, *, rank: int) -> ModelCard:
    """The adapter's card, of a model that is whole."""
    card = ModelCard.load(path)
    card.data.library_name = "transformers"
    merged = f"A LoRA adapter of rank {rank} is merged into it."
    card.text = ABOUT_ADAPTER.sub(merged, card.text)
    return card


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
