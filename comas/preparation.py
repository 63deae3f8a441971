"""Before any engine starts: which config, which device, which models, which questions.

Everything that can be wrong on this machine is found here, so no work is lost to it later.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from comas import quickstart
from comas.config import load_config
from comas.config.schema import Config
from comas.data import QuestionSet, load_questions
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.model_folder import check_model_folder, may_be_hub_name
from comas.run_directory.inputs import read_inputs
from comas.types import Device

log = logging.getLogger(__name__)

PAPER_CONFIG = Path("configs/comas.yaml")
QUICKSTART_CONFIG = Path("configs/quickstart.yaml")
QUICKSTART_PREFIX = "quickstart/"
MIN_FREE_DISK_MIB = 512


@dataclass(frozen=True)
class Prepared:
    """What a run needs, checked."""

    models: list[str]
    """Folder or hub name of the base model of each policy."""
    train: QuestionSet
    validation: QuestionSet
    device: Device
    places: Mapping[str, str]
    """Where each name of the config leads (see ``locate``)."""


def choose_config() -> tuple[Path, str]:
    """The config of a run that names none, and why, in plain words."""
    missing = _missing_for(load_config(PAPER_CONFIG, []))
    if not missing:
        return PAPER_CONFIG, (
            f"Training the paper's society ({PAPER_CONFIG}): its GPUs, models and data are here.\n"
            f"For the embedded quick-start society: bash scripts/train_comas.sh {QUICKSTART_CONFIG}"
        )
    return QUICKSTART_CONFIG, (
        f"Training the embedded quick-start society of tiny agents ({QUICKSTART_CONFIG}), because "
        f"the paper's run ({PAPER_CONFIG}) lacks here: {'; '.join(missing)}.\n"
        f"When that is there (the data: bash scripts/prepare_data.sh), the same command trains "
        f"the paper's society; to insist on it: bash scripts/train_comas.sh {PAPER_CONFIG}"
    )


def prepare(config: Config) -> Prepared:
    """Check the machine against the config, build the quick-start society if it is named.

    A run that is resumed goes on with the models and questions that it began with.

    Raises:
        ValueError: a model, dataset or device that the config names is not there or broken.
        OSError: the saves folder cannot be written, or too little disk is left.
    """
    device = choose_device(config.cluster.device)
    saves = Path(config.saves)
    _check_disk(saves)
    places = locate(
        [*config.models, config.data.train, config.data.validation],
        saves=saves,
        seed=config.seed,
        found_before=read_inputs(Path(config.resume)) if config.resume else {},
    )
    models = [places[name] for name in config.models]
    for model in models:
        check_model(model)
    return Prepared(
        models=models,
        train=load_questions(Path(places[config.data.train])),
        validation=load_questions(Path(places[config.data.validation])),
        device=device,
        places=places,
    )


def locate(
    names: Iterable[str], *, saves: Path, seed: int, found_before: Mapping[str, str]
) -> dict[str, str]:
    """Where names of models and question files lead: embedded ones (``quickstart/...``) into the
    society under ``saves``, which is built if it is not there; all others to themselves.

    ``found_before`` says where a run found them (inputs.json). Raises ValueError when an
    embedded one is no longer there and today's recipe makes another.
    """
    places = {}
    for name in names:
        before = found_before.get(name)
        if not name.startswith(QUICKSTART_PREFIX):
            places[name] = before or name
        elif before is not None and Path(before).exists():
            places[name] = before
        else:
            society = quickstart.build_society(saves, seed=seed)
            place = society / name.removeprefix(QUICKSTART_PREFIX)
            if before is not None and Path(before) != place.resolve():
                raise ValueError(
                    f"this run began with {before} ({name}), which is gone, and this version of "
                    f"the code makes another ({place}). Put it back, or train again"
                )
            places[name] = str(place)
    return places


def choose_device(wanted: str) -> Device:
    """The device to run on; "auto" is cuda where torch sees a GPU."""
    available = _num_gpus() > 0
    if wanted == "cuda" and not available:
        raise ValueError(
            "cluster.device=cuda, but torch sees no CUDA GPU on this machine. Run where one is, "
            "or on the CPU with cluster.device=cpu (for tiny models: configs/quickstart.yaml)."
        )
    return "cuda" if wanted == "cuda" or (wanted == "auto" and available) else "cpu"


def check_model(model: str) -> None:
    """Raise ValueError unless ``model`` is a folder in Hugging Face format, or a hub name."""
    folder = Path(model)
    if folder.exists():
        try:
            check_model_folder(folder)
        except ValueError as error:
            raise ValueError(f"society.models names {model!r}: {error}") from error
    elif not may_be_hub_name(model):
        raise ValueError(
            f"society.models names {model!r}, which is no folder here. Give a folder in Hugging "
            "Face format or a hub name such as Qwen/Qwen2.5-3B-Instruct."
        )


def _missing_for(config: Config) -> list[str]:
    missing = []
    needed = gpus_in_all(plan_policy(config, device="cuda"), config.num_policies)
    if _num_gpus() < needed:
        missing.append(f"GPUs ({needed} needed, {_num_gpus()} found)")
    missing += [f"the model {model}" for model in sorted(set(config.models)) if not _is_here(model)]
    missing += [
        f"the dataset {path}"
        for path in (config.data.train, config.data.validation)
        if not Path(path).is_file()
    ]
    return missing


def _is_here(model: str) -> bool:
    """Whether a model is a folder here or already in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    if Path(model).is_dir():
        return True
    return isinstance(try_to_load_from_cache(model, "config.json"), str)


def _num_gpus() -> int:
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


def _check_disk(saves: Path) -> None:
    saves.mkdir(parents=True, exist_ok=True)
    if not os.access(saves, os.W_OK):
        raise OSError(f"saves={saves}: the folder cannot be written; name another with saves=...")
    free = shutil.disk_usage(saves).free >> 20
    if free < MIN_FREE_DISK_MIB:
        raise OSError(
            f"saves={saves}: {free} MiB of disk are free, at least {MIN_FREE_DISK_MIB} MiB are "
            "needed for models and checkpoints; free some, or name another disk with saves=..."
        )
