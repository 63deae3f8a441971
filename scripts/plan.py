"""What the paper's run needs with other models, more agents and other numbers of GPUs: a table.

Arithmetic of the dry run (comas/preflight/memory.py, sharding.py, hours.py), confirmed by no GPU.
Each cell is configs/comas.yaml with so many agents l and 2 l rounds, one epoch of 2000 questions:
48,000 l responses (schedule=sequential, the paper's text), or 48,000 l^2 where all agents solve in
each round (schedule=parallel, the paper's cost table). Where whole models do not fit, it is
configs/comas_lora.yaml, another method: adapters over one base. Of all settings that fit, the row
has those of the fewest expected hours (comas/preflight/plans.py says what is searched over).

models: names of configs/models/, folders, or names on the hub; agents, gpus: numbers; all separated
by commas. out: a file to write the page to as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from comas.config.schema import Config
from comas.preflight.configuration import PAPER_CONFIG
from comas.preflight.hours import CHAINS, Assumptions
from comas.preflight.memory import GIB, ModelShape, model_shape
from comas.preflight.plans import (
    LORA_CONFIG,
    NODES_PER_POLICY,
    Candidate,
    Cell,
    kind_of,
    node_of,
    paper_run,
    plan_cell,
)
from comas.preflight.sharding import gib
from comas.utils.model_folder import description_of
from scripts.command import read_arguments, say

SHIPPED = Path("configs/models")


@dataclass
class Plans:
    """What to make the table of."""

    models: str = (
        "Qwen2.5-3B-Instruct,Qwen2.5-7B-Instruct,Qwen2.5-14B-Instruct,Qwen2.5-32B-Instruct"
    )
    agents: str = "2,4,8,64"
    gpus: str = "1,8,16,64"
    gpu_gib: float = 79.0
    host_gib: float = 2000.0
    schedule: str = "sequential"
    out: str = ""


def main(asked: Plans) -> None:
    """Print the page line by line, as its cells are found, and write it where asked."""
    lines = []
    for line in page_of(asked):
        say(line)
        lines.append(line)
    if asked.out:
        Path(asked.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def page_of(asked: Plans) -> Iterator[str]:
    """The lines of the page, in Markdown."""
    if asked.schedule not in CHAINS:
        raise ValueError(f"schedule={asked.schedule}: must be one of {', '.join(CHAINS)}")
    agents, gpus = numbers_in("agents", asked.agents), numbers_in("gpus", asked.gpus)
    yield from head_of(asked)
    runs = {
        number: [
            paper_run(path, number, schedule=asked.schedule) for path in (PAPER_CONFIG, LORA_CONFIG)
        ]
        for number in agents
    }
    for model in asked.models.split(","):
        shape = shape_of(model)
        yield f"\n## {model}, {shape.num_parameters / 1e9:.2f} billion parameters\n"
        yield "| agents | GPUs | plan | GiB of a GPU | GiB of a node | hours | sampling beside |"
        yield "|---|---|---|---|---|---|---|"
        for number in agents:
            for num_gpus in gpus:
                node = node_of(num_gpus, gpu_gib=asked.gpu_gib, host_gib=asked.host_gib)
                yield row_of(plan_cell(runs[number], shape, num_gpus, node))


def numbers_in(key: str, text: str) -> list[int]:
    """``"2,4" -> [2, 4]``; raises ValueError, which names the ``key``, for anything else."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{key}={text}: must be numbers of at least 1; write {key}=2,4")
    return [int(part) for part in parts]


def shape_of(model: str) -> ModelShape:
    """Of a model of ``configs/models/``, a folder or a name on the hub."""
    shipped = SHIPPED / model.rpartition("/")[2]
    return model_shape(str(shipped if shipped.is_dir() else description_of(model)))


def head_of(asked: Plans) -> Iterator[str]:
    """What the page is about, and which runs its rows are."""
    given = Assumptions()
    nodes = " or ".join(map(str, NODES_PER_POLICY[1:]))
    total = "48,000 l" if asked.schedule == "sequential" else "48,000 l²"
    yield "# Plans past the paper's scale\n"
    yield (
        "**Arithmetic, not measurements: none of this was ever run on a GPU.** Made by "
        f"`bash scripts/plan.sh` with GPUs of {asked.gpu_gib:g} GiB, nodes of 8 with "
        f"{asked.host_gib:g} GiB of memory, and `interaction.schedule={asked.schedule}`.\n"
    )
    yield (
        f"A row is the run of `{PAPER_CONFIG}` with l agents of that model and 2 l rounds: one "
        f"epoch of 2000 questions, {total} responses. All else that is learnt from is the paper's, "
        "prompts of 28,672 tokens and responses of 4,096 included. Where whole models do not fit, "
        f"the row is that of `{LORA_CONFIG}`, which is another method: adapters of rank 32 over "
        "one base. Hours go from the best to the worst assumptions of "
        f"`comas/preflight/hours.py` (updates at {given.update_utilisation:.0%} to "
        f"{given.update_utilisation_at_worst:.0%} of an A100's peak, the slowest discussion "
        f"{given.slowest:g} to {given.slowest_at_worst:g} times the mean); the plan is that of the "
        "fewest hours among all that were searched (`comas/preflight/plans.py`), a policy being "
        f"on one node or on {nodes} whole ones, between which {given.network_gb_s:g} GB/s are "
        "assumed. GiB of a GPU: the peak of an update, of what tensors may fill; of a node: its "
        "memory for states that are offloaded, wait or are saved, of what may be filled. The last "
        "column is the best plan with `training.max_staleness=1`, where that is faster: it samples "
        "beside training, and learns from samples of the update before, which is another run.\n"
    )


def row_of(cell: Cell) -> str:
    """A line of the table."""
    start = f"| {cell.num_agents} | {cell.num_gpus} |"
    if cell.fit is None:
        return f"{start} **does not fit.** {cell.reason} | | | | |"
    fit = cell.fit
    least, most = fit.hours
    host = f"{fit.host / GIB:.0f} of {fit.update.host_free / GIB:.0f}"
    update = f"{gib(fit.update.gpu_peak)} of {gib(fit.update.gpu_free)}"
    return (
        f"{start} {plan_in_words(fit, cell.num_gpus)} | {update} | {host} | "
        f"{least:,.1f} to {most:,.1f} | {stale_in_words(cell.stale)} |"
    )


def stale_in_words(fit: Candidate | None) -> str:
    """``6 train, 2 sample: 3.1 to 4.0``; nothing where it does not save time."""
    if fit is None:
        return ""
    least, most = fit.hours
    return f"{split_in_words(fit.config)}: {least:,.1f} to {most:,.1f}"


def split_in_words(config: Config) -> str:
    """``6 train, 2 sample``"""
    ranks = config.policy.ranks_per_policy
    return f"{ranks} train, {config.cluster.gpus_per_policy - ranks} sample"


def plan_in_words(fit: Candidate, num_gpus: int) -> str:
    """``whole models, 2 GPUs each, colocated, ZeRO-2, an engine may fill 0.6 of a GPU``"""
    config, policy = fit.config, fit.config.policy
    on = config.cluster.gpus_per_policy
    whose = "in all" if policy.lora.rank is not None else "each"
    words = [kind_of(config), f"{on} GPU{'s' * (on > 1)} {whose}"]
    if config.cluster.nodes_per_policy > 1:
        words[1] += f" on {config.cluster.nodes_per_policy} nodes"
    if config.cluster.policies_per_gpu > 1 and len(config.families) > 1:
        words[1] += f" ({config.cluster.policies_per_gpu} policies share them)"
    if config.cluster.placement == "disaggregated":
        words.append(f"disaggregated ({split_in_words(config)})")
    else:
        words.append("colocated")
    words.append(f"ZeRO-{policy.zero_stage}{', Adam on the host' * bool(policy.adam_offload)}")
    if policy.gradient_checkpointing:
        words.append(f"checkpointing, micro batches of {policy.micro_batch_tokens} tokens")
    size = config.rollout.tensor_parallel
    engines = f"engines of {size} GPUs" if size > 1 else "engines"
    words.append(f"{engines} fill {config.rollout.gpu_memory_utilization:g}")
    if fit.gpus_used < num_gpus:
        words.append(f"{fit.gpus_used} of the {num_gpus} GPUs used")
    return ", ".join(words)


if __name__ == "__main__":
    try:
        main(read_arguments(Plans, about=__doc__ or ""))
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
