"""The configuration of a run: the one that is named, or one that fits this machine."""

from collections.abc import Sequence
from pathlib import Path

from comas.config import load
from comas.config.errors import ConfigError, InvalidSetting
from comas.config.loading import read
from comas.config.schema import Config
from comas.config.sources import read_overrides
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.preflight.conflicts import find_conflicts
from comas.preflight.machine import count_gpus
from comas.run.seals import CONFIG, check_origin
from comas.utils.invocation import of_checkout, start_of
from comas.utils.model_folder import is_here

PAPER_CONFIG = Path("configs/comas.yaml")
QUICKSTART_CONFIG = Path("configs/quickstart.yaml")


def load_config(path: Path | None, overrides: Sequence[str]) -> Config:
    """Read and check a configuration with ``comas.config.load``; without a path, that of the run
    named by ``resume=``, or else the defaults."""
    named = [setting for setting in read_overrides(overrides)[0] if setting.key == "resume"]
    if named and not named[-1].value:
        remedy = "write resume=saves/<run>, or leave it out to begin a new run"
        raise ConfigError([InvalidSetting((named[-1],), "names no run", remedy)])
    asked, errors = read(Config, path, overrides, check=find_conflicts)
    if asked.resume is None or not (kept := Path(asked.resume) / CONFIG).is_file():
        if errors:  # which say what is wrong with `resume`
            raise ConfigError(errors)
        return asked
    check_origin(kept.parent, asked)
    if path is None:
        # These two hold for one resume only, whatever the run's file says.
        path, overrides = kept, ["resume_changed=false", "resume_foreign=false", *overrides]
    return load(Config, path, overrides, check=find_conflicts)


def choose_config() -> tuple[Path, str]:
    """Return the configuration to train if none is named, and a message with the reason."""
    missing = _missing_for(load_config(PAPER_CONFIG, []))
    if not missing:
        return PAPER_CONFIG, (
            f"Training the paper's society ({PAPER_CONFIG}): its GPUs, models and data are here.\n"
            f"For the quick-start society: {start_of('train')} {QUICKSTART_CONFIG}"
        )
    return QUICKSTART_CONFIG, (
        f"Training the quick-start society of tiny agents ({QUICKSTART_CONFIG}).\n"
        f"The paper's society ({PAPER_CONFIG}) also needs {', '.join(missing)}. Once these are "
        "here, the same command trains it."
    )


def _missing_for(config: Config) -> list[str]:
    missing = []
    needed = gpus_in_all(plan_policy(config, device="cuda"), len(config.families))
    if (found := count_gpus()) < needed:
        missing.append(f"{needed} GPUs (found {found})")
    missing += [f"the model {model}" for model in sorted(set(config.models)) if not is_here(model)]
    files = [
        path for path in (config.data.train, config.data.validation) if not Path(path).is_file()
    ]
    if files:
        built_by = of_checkout("bash scripts/prepare_data.sh")
        missing.append(f"{' and '.join(files)} (built by: {built_by})")
    return missing
