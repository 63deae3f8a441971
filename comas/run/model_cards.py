"""The model card (README.md) of every saved model: base, data, recipe, results, how to load it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import ModelCard, ModelCardData

from comas.config.schema import Config, for_agent
from comas.config.yaml_texts import dump
from comas.data.preparation.manifest import Manifest
from comas.data.rows import HUB, source_of
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.wording import wording_of
from comas.quickstart import QUICKSTART_PREFIX
from comas.run.prepared import Prepared
from comas.run.provenance import PACKAGES, commit_of, describe_process, version_of
from comas.run.records import Row
from comas.run.validation import GREEDY, SAMPLED
from comas.utils.model_folder import CARD, may_be_hub_name

TEMPLATE = Path(__file__).with_name("model_card.md")
RECIPE = (
    *("seed", "society", "interaction", "reward", "rollout", "policy"),
    *("algorithm", "optimization", "training"),
)
"""Sections of the configuration shown as the recipe."""
OWN_LICENCE = {"license": "mit"}
"""For the quick-start's models, which this code makes from scratch."""
LICENCE_KEYS = ("license", "license_name", "license_link")
QUESTION = "What is 48 + 23?"


def write_model_cards(
    folder: Path, prepared: Prepared, *, rows: Sequence[Row], num_steps: int
) -> None:
    """Write ``folder/agent_<i>/README.md`` for every trained agent.

    ``rows`` are the run's metrics, with validations before and after training. Local folders are
    shown by the last part of their path.
    """
    config, process, datasets = prepared.config, describe_process(), _datasets(prepared)
    installed = process["packages"]
    versions = ", ".join(f"{name} {version_of(name, installed)}" for name in PACKAGES)
    for agent, policy in enumerate(config.policy_of_agent):
        if policy not in config.trained_policies:
            continue
        base = config.models[policy]
        is_own = base.startswith(QUICKSTART_PREFIX)
        licence = OWN_LICENCE if is_own else licence_of(prepared.locations[base])
        data = ModelCardData(
            base_model=base if may_be_hub_name(base) and not Path(base).is_dir() else None,
            datasets=[each["dataset"] for each in datasets] or None,
            library_name="transformers" if config.policy.lora.rank is None else "peft",
            pipeline_tag="text-generation",
            tags=["comas", "multi-agent", "reinforcement-learning"],
            **(licence or {"license": "unknown"}),
        )
        facts = {
            "step": num_steps,
            "agent": agent,
            "base": _shown(base),
            "licence": _licence_in_words(licence),
            "sources": datasets,
            "code": f"CoMAS at commit {commit_of(process)}; {versions}.",
            "results": _results(rows, num_agents=config.society.num_agents),
            **_facts_of_run(prepared),
            **_facts_of_use(config, agent),
        }
        card = ModelCard.from_template(data, template_path=str(TEMPLATE), **facts)
        card.save(folder / f"agent_{agent}" / CARD)


def _facts_of_run(prepared: Prepared) -> dict[str, Any]:
    config, values = prepared.config, asdict(prepared.config)
    values["society"]["models"] = [_shown(name) for name in config.society.models]
    if (cold_start := config.society.cold_start) is not None:
        values["society"]["cold_start"] = _shown(cold_start)
    train, held_out = (
        Counter(question.domain for question in questions.questions)
        for questions in (prepared.train, prepared.validation)
    )
    return {
        "config": config,
        "data": [
            ("for training", _shown(config.data.train), train),
            ("held out", _shown(config.data.validation), held_out),
        ],
        "cold_start": values["society"]["cold_start"],
        "recipe": dump({name: values[name] for name in RECIPE}),
    }


def _facts_of_use(config: Config, agent: int) -> dict[str, Any]:
    """Return the variables of the card's example code."""
    told = config.chat_template_kwargs[config.policy_of_agent[agent]]
    body = {"chat_template_kwargs": told}
    messages = '{"role": "user", "content": PROMPT}'
    if config.rollout.system_prompt is not None:
        messages = f'{{"role": "system", "content": {config.rollout.system_prompt!r}}}, {messages}'
    wording = wording_of(config.interaction.prompts)
    prompt = fill(SOLUTION, "math", question=QUESTION, wording=wording)
    return {
        "prompt": prompt.replace("\\", "\\\\"),
        "messages": f"[{messages}]",
        "to_tokenizer": f", **{told!r}" if told else "",
        "to_server": f", extra_body={body!r}" if told else "",
        "max_tokens": for_agent(config.rollout.max_response_tokens, agent),
    }


def _shown(name: str) -> str:
    return Path(name).name if Path(name).exists() else name


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


def _licence_in_words(licence: Mapping[str, Any]) -> str:
    if not licence:
        return "It states no licence: find out which it has before you share this model."
    named = licence.get("license_name") or licence["license"]
    link = f" ({licence['license_link']})" if "license_link" in licence else ""
    return f"Its licence, and so that of this model: {named}{link}."


def _datasets(prepared: Prepared) -> list[dict[str, Any]]:
    """Return the datasets behind the training questions, if known."""
    train = prepared.config.data.train
    if train.startswith(HUB):
        return [{"dataset": source_of(train)}]
    path = Path(prepared.locations[train])
    built = Manifest.read(path.parent)
    return list(built[path.name].recipe["datasets"].values()) if built.is_built(path.name) else []


def _results(rows: Sequence[Row], *, num_agents: int) -> list[tuple[str, ...]]:
    """Return rows (what, greedy before and after, sampled before and after): the agents' mean, by
    domain, and each agent's. Missing values are "-"."""
    validations = [row for row in rows if row.get(f"{SAMPLED}/accuracy") is not None]
    ends = (validations[0], validations[-1])
    keys = {"all agents": f"{SAMPLED}/accuracy"}
    keys |= {
        f"all agents, {key.rpartition('/')[2]}": key
        for key in ends[0]
        if key.startswith(f"{SAMPLED}/accuracy/")
    }
    keys |= {f"agent {i}": f"agent_{i}/{SAMPLED}/accuracy" for i in range(num_agents)}
    heading = [f"{how}, at step {row['step']}" for how in ("greedy", "sampled") for row in ends]
    table = [("", *heading), ("---",) * 5]
    for what, key in keys.items():
        shares = [row.get(name) for name in (key.replace(SAMPLED, GREEDY, 1), key) for row in ends]
        table.append((what, *("-" if s is None else f"{100 * s:.1f}" for s in shares)))
    return table
