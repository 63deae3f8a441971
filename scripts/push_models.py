"""Uploads a run's trained agents to the Hugging Face hub: what scripts/push_models.sh starts."""

import argparse
import glob
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from huggingface_hub import HfApi, ModelCard, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from comas.utils.invocation import program
from comas.utils.model_folder import CARD, MODEL_FILES, adapter_of, check_model_folder
from comas.utils.terminal import command, run_command

log = logging.getLogger("push_models")

UPLOADED = (*MODEL_FILES, CARD)
"""Patterns of the files that travel: of the folder itself, none of folders in it."""


@dataclass(frozen=True)
class Upload:
    """A model's folder, and the repository that it becomes."""

    folder: Path
    repository: str
    files: tuple[Path, ...]
    licence: str

    def __str__(self) -> str:
        size_mib = sum(file.stat().st_size for file in self.files) / 2**20
        names = ", ".join(file.name for file in self.files)
        return (
            f"{self.folder} -> https://huggingface.co/{self.repository} ({size_mib:.1f} MiB, "
            f"licence {self.licence}): {names}"
        )


@command("push_models")
def main(arguments: Sequence[str]) -> int:
    """Show what would be uploaded, or upload it; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/push_models.sh")
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--push", action="store_true")
    parser.add_argument("--public", action="store_true")
    options = parser.parse_args(arguments)
    uploads = plan(options.run, options.name)
    for upload in uploads:
        log.info("%s", upload)
        if upload.licence == "unknown":
            log.warning("its licence is unknown: write it into %s", upload.folder / CARD)
    if not options.push:
        login = f"first log in: {program('hf')} auth login, or set HF_TOKEN"
        if get_token() is not None:
            login = "with the login that is there"
        log.info("Nothing was uploaded: --push does it (%s)", login)
        return 0
    try:
        push(uploads, HfApi(), public=options.public)  # an OSError is what the hub refuses
    except httpx.TransportError as error:
        reason = f"the hub cannot be reached ({error}); the same command goes on"
        raise OSError(reason) from error
    return 0


def plan(run: Path, name: str) -> list[Upload]:
    """The upload of every trained agent of ``run``, or of the folder of agents that
    scripts/merge_models.sh has written: the repository ``<name>-agent_<i>``.

    Raises ValueError when the run has no models, one of them is not complete, or the hub allows
    no such name.
    """
    folders = sorted(run.glob("models/agent_*")) or sorted(run.glob("agent_*"))
    if not folders:
        raise ValueError(
            f"{run} holds no trained models: name a run that has ended, such as saves/latest"
        )
    return [_upload(folder, f"{name}-{folder.name}") for folder in folders]


def push(uploads: Sequence[Upload], hub: HfApi, *, public: bool) -> None:
    """Create the repositories that are not there, and upload. ``hub`` knows the login: that of
    ``hf auth login``, or HF_TOKEN of the environment."""
    for upload in uploads:
        hub.create_repo(upload.repository, private=not public, exist_ok=True)
        hub.upload_folder(
            repo_id=upload.repository,
            folder_path=upload.folder,
            # Trap: in the hub's patterns, * also stands for "/".
            allow_patterns=[glob.escape(file.name) for file in upload.files],
            commit_message="Upload a model trained by CoMAS",
        )
        log.info("uploaded https://huggingface.co/%s", upload.repository)


def _upload(folder: Path, repository: str) -> Upload:
    adapter = adapter_of(folder)
    if adapter is None:
        check_model_folder(folder)
    elif Path(adapter.base).is_dir():
        raise ValueError(
            f"{folder} is an adapter of the model in {adapter.base}, a folder that nobody else "
            "has: write whole models with bash scripts/merge_models.sh, and push those"
        )
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(f"NAME: {error} Write it like your-account/my-society") from error
    if not (folder / CARD).is_file():
        raise ValueError(f"{folder} has no model card: write where it comes from into {CARD} there")
    licence = ModelCard.load(folder / CARD).data.to_dict().get("license", "unknown")
    found = {file for pattern in UPLOADED for file in folder.glob(pattern) if file.is_file()}
    return Upload(folder, repository, tuple(sorted(found)), licence)


if __name__ == "__main__":
    run_command(main)
