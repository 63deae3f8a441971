"""The model card (README.md) of every saved model: base, data, recipe, results, how to load it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import ModelCard, ModelCardData

from comas.config.schema import Config
from comas.config.yaml_texts import dump
from comas.data import QuestionSet
from comas.data.preparation.manifest import Manifest
from comas.data.rows import HUB, source_of
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.wording import wording_of
from comas.quickstart import QUICKSTART_PREFIX
from comas.run.prepared import Prepared
from comas.run.provenance import describe_process, version_of
from comas.run.records import Row
from comas.run.validation import GREEDY, SAMPLED
from comas.utils.model_folder import CARD, may_be_hub_name

TEMPLATE = Path(__file__).with_name("model_card.md")
RECIPE = (
    *("seed", "society", "interaction", "reward", "rollout", "policy"),
    *("algorithm", "optimization", "training"),
)
"""Sections of the configuration that decide what is learnt from given questions."""
PACKAGES = ("torch", "transformers", "vllm", "deepspeed", "openrlhf")
OWN_LICENCE = {"license": "mit"}
"""Licence of the quick-start's models, which this code makes from nothing."""
LICENCE_KEYS = ("license", "license_name", "license_link")
"""Keys of a card's metadata."""
QUESTION = "What is 48 + 23?"


def write_model_cards(
    folder: Path, prepared: Prepared, *, rows: Sequence[Row], num_steps: int
) -> None:
    """Write ``folder/agent_<i>/README.md`` of every agent that was trained.

    ``rows`` are the run's metrics, a validation before training and one after among them. Folders
    on this machine are called by the last part of their path alone.
    """
    config, process = prepared.config, describe_process()
    for agent, policy in enumerate(config.policy_of_agent):
        if policy not in config.trained_policies:
            continue
        facts = _facts(prepared, agent=agent, rows=rows, process=process)
        card = ModelCard.from_template(
            _card_data(prepared, agent), template_path=str(TEMPLATE), step=num_steps, **facts
        )
        card.save(folder / f"agent_{agent}" / CARD)


def _card_data(prepared: Prepared, agent: int) -> ModelCardData:
    """Return what the hub reads of a card."""
    base = _base(prepared.config, agent)
    return ModelCardData(
        base_model=base if may_be_hub_name(base) and not Path(base).is_dir() else None,
        datasets=_hub_datasets(prepared),
        library_name="transformers" if prepared.config.policy.lora.rank is None else "peft",
        pipeline_tag="text-generation",
        tags=["comas", "multi-agent", "reinforcement-learning"],
        **(_licence(prepared, base) or {"license": "unknown"}),
    )


def _facts(
    prepared: Prepared, *, agent: int, rows: Sequence[Row], process: Mapping[str, Any]
) -> dict[str, Any]:
    config, base = prepared.config, _base(prepared.config, agent)
    values = asdict(config)
    values["society"]["models"] = [_shown(name) for name in config.society.models]
    told = config.chat_template_kwargs[config.policy_of_agent[agent]]
    body = {"chat_template_kwargs": told}
    asked = '{"role": "user", "content": PROMPT}'
    if config.rollout.system_prompt is not None:
        asked = f'{{"role": "system", "content": {config.rollout.system_prompt!r}}}, {asked}'
    validations = [row for row in rows if row.get("validation/accuracy") is not None]
    first, last = validations[0], validations[-1]
    return {
        "name": config.name,
        "agent": agent,
        "num_agents": config.society.num_agents,
        "scheme": config.reward.scheme,
        "base": _shown(base),
        "licence": _licence_in_words(_licence(prepared, base)),
        "data": [
            ("for training", _shown(config.data.train), _domains_of(prepared.train)),
            ("held out", _shown(config.data.validation), _domains_of(prepared.validation)),
        ],
        "sources": _sources(Path(prepared.locations[config.data.train])),
        "adapter_rank": config.policy.lora.rank,
        "temperature": config.validation.temperature,
        "first_step": first["step"],
        "last_step": last["step"],
        "results": _results(first, last, num_agents=config.society.num_agents),
        "code": _code(process),
        "recipe": dump({name: values[name] for name in RECIPE}),
        "prompt": fill(
            SOLUTION,
            "math",
            question=QUESTION,
            wording=wording_of(config.interaction.prompts),
        ).replace("\\", "\\\\"),
        "messages": f"[{asked}]",
        "to_tokenizer": f", **{told!r}" if told else "",
        "to_server": f", extra_body={body!r}" if told else "",
        "max_tokens": config.rollout.max_response_tokens,
    }


def _base(config: Config, agent: int) -> str:
    return config.models[config.policy_of_agent[agent]]


def _shown(name: str) -> str:
    return Path(name).name if Path(name).exists() else name


def _licence(prepared: Prepared, base: str) -> dict[str, Any]:
    """Return what a card says of the licence, in the hub's words; empty where nobody states one."""
    is_own = base.startswith(QUICKSTART_PREFIX)
    return OWN_LICENCE if is_own else licence_of(prepared.locations[base])


def licence_of(model: str) -> dict[str, Any]:
    """The licence that the card of a model on this machine states, under the hub's keys.

    Example: ``{"license": "other", "license_name": "qwen-research"}``; empty: it states none.
    """
    inside = Path(model) / CARD
    path = inside if Path(model).is_dir() else huggingface_hub.try_to_load_from_cache(model, CARD)
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return {}
    stated = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    return {key: value for key, value in stated.items() if key in LICENCE_KEYS}


def _licence_in_words(licence: Mapping[str, Any]) -> str:
    if not licence:
        return "It states no licence: find out which it has before you share this model."
    named = licence.get("license_name") or licence["license"]
    link = f" ({licence['license_link']})" if "license_link" in licence else ""
    return f"Its licence, and so that of this model: {named}{link}."


def _domains_of(questions: QuestionSet) -> Counter[str]:
    return Counter(question.domain for question in questions.questions)


def _sources(train: Path) -> list[dict[str, Any]]:
    """The datasets behind questions that scripts/prepare_data.sh built; of others none is known."""
    manifest = Manifest.read(train.parent)
    if not manifest.is_built(train.name):
        return []
    return list(manifest[train.name].recipe["datasets"].values())


def _hub_datasets(prepared: Prepared) -> list[str] | None:
    """Names on the hub of what was trained on, as far as they are known."""
    train = prepared.config.data.train
    if train.startswith(HUB):
        return [source_of(train)]
    prepared_from = _sources(Path(prepared.locations[train]))
    return [source["dataset"] for source in prepared_from] or None


def _results(first: Row, last: Row, *, num_agents: int) -> list[tuple[str, ...]]:
    """(what, greedy before and after, sampled before and after): the mean of the agents, by domain,
    and each agent's. Where temperature 0 was not measured apart, its columns hold "-"."""
    keys = {"all agents": "validation/accuracy"}
    keys |= {
        f"all agents, {key.rpartition('/')[2]}": key
        for key in first
        if key.startswith("validation/accuracy/")
    }
    keys |= {f"agent {i}": f"agent_{i}/validation/accuracy" for i in range(num_agents)}
    return [
        (
            what,
            *(_percent(row.get(key.replace(SAMPLED, GREEDY, 1))) for row in (first, last)),
            *(_percent(row[key]) for row in (first, last)),
        )
        for what, key in keys.items()
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _code(process: Mapping[str, Any]) -> str:
    git, installed = process["git"], process["packages"]
    commit = "an unknown commit" if git is None else f"commit `{git['commit'][:12]}`"
    changed = ", with changes" if git is not None and git["dirty"] else ""
    versions = ", ".join(f"{name} {version_of(name, installed)}" for name in PACKAGES)
    return f"CoMAS at {commit}{changed}; {versions}."
