"""The model card (README.md) of every saved model: base, licence, results and recipe."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import ModelCard, ModelCardData

from comas.config.yaml_texts import dump
from comas.quickstart import QUICKSTART_PREFIX
from comas.run.prepared import Prepared
from comas.run.provenance import PACKAGES, commit_of, describe_process, version_of
from comas.run.records import Row
from comas.run.validation import GREEDY, SAMPLED
from comas.utils.model_folder import CARD, may_be_hub_name

TEMPLATE = Path(__file__).with_name("model_card.md")
RECIPE = (
    *("seed", "society", "data", "interaction", "reward", "rollout", "policy"),
    *("algorithm", "optimization", "training"),
)
"""Sections of the configuration shown as the recipe."""
LICENCE_KEYS = ("license", "license_name", "license_link")


def write_model_cards(
    folder: Path, prepared: Prepared, *, rows: Sequence[Row], num_steps: int
) -> None:
    """Write ``folder/agent_<i>/README.md`` for every trained agent.

    ``rows`` are the run's metrics, with validations before and after training. Local paths are
    shown by their last part.
    """
    config, process = prepared.config, describe_process()
    values = {name: value for name, value in asdict(config).items() if name in RECIPE}
    versions = [f"{name} {version_of(name, process['packages'])}" for name in PACKAGES]
    for agent, policy in enumerate(config.policy_of_agent):
        if policy not in config.trained_policies:
            continue
        base = config.models[policy]
        is_own = base.startswith(QUICKSTART_PREFIX)  # made from scratch by this code
        licence = {"license": "mit"} if is_own else licence_of(prepared.locations[base])
        data = ModelCardData(
            base_model=base if may_be_hub_name(base) and not Path(base).is_dir() else None,
            library_name="transformers" if config.policy.lora.rank is None else "peft",
            pipeline_tag="text-generation",
            tags=["comas", "multi-agent", "reinforcement-learning"],
            **(licence or {"license": "unknown"}),
        )
        ModelCard.from_template(
            data,
            template_path=str(TEMPLATE),
            config=config,
            step=num_steps,
            agent=agent,
            base=_shown(base),
            licence=licence,
            code=f"CoMAS at commit {commit_of(process)}; {', '.join(versions)}.",
            results=_results(rows, num_agents=config.society.num_agents),
            recipe=dump(_shown(values)),
        ).save(folder / f"agent_{agent}" / CARD)


def licence_of(model: str) -> dict[str, Any]:
    """Return the licence in a local model's card, under the hub's keys; empty if it states none.

    Example: ``{"license": "other", "license_name": "qwen-research"}``
    """
    inside = Path(model) / CARD
    path = inside if Path(model).is_dir() else huggingface_hub.try_to_load_from_cache(model, CARD)
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return {}
    stated = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    return {key: value for key, value in stated.items() if key in LICENCE_KEYS}


def _shown(value: Any) -> Any:
    """Return a value of the configuration without the folders of absolute paths."""
    if isinstance(value, dict):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_shown, value)]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def _results(rows: Sequence[Row], *, num_agents: int) -> list[tuple[str, ...]]:
    """Return rows (who, greedy before and after, sampled before and after), in percent: the agents'
    mean and each agent's. Missing values are "-"."""
    validations = [row for row in rows if row.get(f"{SAMPLED}/accuracy") is not None]
    ends, samplings = (validations[0], validations[-1]), (GREEDY, SAMPLED)
    heading = [f"{how}, at step {row['step']}" for how in ("greedy", "sampled") for row in ends]
    table = [("", *heading), ("---",) * 5]
    agents = {f"agent {i}": f"agent_{i}/" for i in range(num_agents)}
    for who, prefix in {"all agents": "", **agents}.items():
        shares = [row.get(f"{prefix}{how}/accuracy") for how in samplings for row in ends]
        table.append((who, *("-" if s is None else f"{100 * s:.1f}" for s in shares)))
    return table
