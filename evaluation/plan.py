"""The plan of an evaluation, checked before anything is started."""

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from comas.config.plugins import blaming_plugins
from comas.preflight.machine import settle_isolation
from comas.types import Chat, Message
from comas.utils.chat import ChatEncoder, template_error, with_system_prompt
from comas.utils.client import RequestOptions
from comas.utils.interrupts import run
from comas.utils.model_folder import load_tokenizer
from comas.verification.sandbox import Isolation
from comas.verification.verifiers import SANDBOXED
from evaluation.benchmarks import BENCHMARKS
from evaluation.config import Command, EvaluationConfig
from evaluation.models import CONTEXT_SHARE_OF_REPLY, LocalModel, Target, find_remote, find_target
from evaluation.results import (
    SAMPLING,
    SETUP_FILES,
    TASKS,
    TITLE,
    Column,
    Identity,
    check_identity,
    fingerprint,
)
from evaluation.setups import SETUPS
from evaluation.setups.discussion import NUM_AGENTS_OF_ONE_MODEL
from evaluation.setups.program import PROGRAM, program_of
from evaluation.tasks import DRAW_SEED, HELD_OUT, benchmark_tasks, choose_benchmarks, held_out_tasks
from evaluation.types import Ask, BenchmarkTask, Call, Setup

SHORT_CONTEXT = 4096
"""Minimum context of a server, if the model has it: vLLM on a CPU always computes with as many."""
REPLY = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Marks replies in a rehearsal, to count those quoted in a prompt."""


@dataclass(frozen=True)
class EvaluationPlan:
    """A whole evaluation."""

    folder: Path
    """results/NAME"""
    config: EvaluationConfig
    target: Target
    tasks: Mapping[str, Sequence[BenchmarkTask]]
    """Benchmark -> its tasks."""
    setups: Mapping[str, Setup]
    """Name (as in the columns of the results) -> setup."""
    seeds: tuple[int, ...]
    requests: RequestOptions
    identity: Identity
    isolation: Isolation | None
    """How model-written programs are isolated; None if no task needs one."""
    notes: tuple[str, ...]
    """Deviations from the command, and why."""

    def columns_of(self, subject: str) -> list[Column]:
        """Return a subject's columns; a society leaves setups with one speaker to its agents."""
        return [
            Column(name, benchmark)
            for name, setup in self.setups.items()
            for benchmark in self.tasks
            if setup.num_speakers > 1 or subject != "society"
        ]

    @property
    def cells(self) -> list[tuple[str, Column]]:
        """Each subject with each of its columns."""
        return [(s, column) for s in self.target.subjects for column in self.columns_of(s)]

    def answers_folder(self, subject: str, column: Column) -> Path:
        """Return the folder of a subject's answers in a column."""
        return column.folder(self.folder / subject)


def make_plan(command: Command) -> EvaluationPlan:
    """Make the plan of a command. Raises ValueError or OSError when something is missing or does
    not fit together, or the results folder holds results of another model."""
    config = command.config
    kwargs = config.chat_template_kwargs
    if config.base_url is not None:
        target = find_remote(
            config.base_url,
            model=config.model,
            template_kwargs=kwargs,
            extra_body=config.extra_body,
        )
    else:
        assert command.path is not None
        target = find_target(command.path, weights=config.weights, template_kwargs=kwargs)
    if target.subjects.get("society") == (0,) * NUM_AGENTS_OF_ONE_MODEL:  # what agent_0 is asked
        target = replace(target, subjects={"agent_0": (0,)})
    tasks = _all_tasks(config, target)
    requests = RequestOptions(
        temperature=config.temperature,
        max_tokens=target.max_tokens(config.max_tokens),
        concurrency=config.concurrency,
        timeout_s=config.timeout_s,
        system_prompt=target.system_prompt,
    )
    runs_programs = any(task.form in SANDBOXED for drawn in tasks.values() for task in drawn)
    setups = setups_of(config.setups or list(SETUPS), target)
    plan = EvaluationPlan(
        folder=Path(config.results) / command.name,
        config=config,
        target=target,
        tasks=tasks,
        setups=setups,
        seeds=tuple(range(config.seeds)),
        requests=requests,
        identity=_identity(target, tasks, setups, config=config, requests=requests),
        isolation=settle_isolation(config.sandbox, key="sandbox") if runs_programs else None,
        notes=_notes(config, requests, target, tasks),
    )
    check_identity(plan.folder, plan.identity)
    _check_templates(plan)
    target = with_needed_context(target, setups.values(), tasks.values(), requests)
    return replace(plan, target=target)


def setups_of(names: Sequence[str], target: Target) -> dict[str, Setup]:
    """Return label -> setup. Raises ValueError for the program of what has none."""
    setups = {SETUPS.label(name): SETUPS[name] for name in names if name != PROGRAM}
    if PROGRAM in names:
        own = None if target.run is None else program_of(target.run)
        if own is None:
            raise ValueError(
                f"setups=[{PROGRAM}] is the program of a run (interaction.program), and "
                f"{target.title} has none: name a function of yours, such as "
                f"setups=[{PROGRAM}:my_team.py:solve]"
            )
        setups[PROGRAM] = own
    return setups


def describe(plan: EvaluationPlan) -> str:
    """Describe the plan in one line."""
    subjects = [name for name in plan.target.subjects if name != "."]
    what = f"{plan.target.title} ({', '.join(subjects)})" if subjects else plan.target.title
    sizes = ", ".join(f"{name} ({len(tasks)} tasks)" for name, tasks in plan.tasks.items())
    num_answers = sum(len(plan.tasks[c.benchmark]) for _, c in plan.cells) * len(plan.seeds)
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    return (
        f"Evaluating {what} on {sizes} with {', '.join(plan.setups)}; {seeds}: {num_answers} "
        f"answers into {plan.folder}"
    )


@dataclass
class _Rehearsal(Ask):
    """Answers each call with its label and ``REPLY``, and records the chats."""

    num_models: int
    chats: list[tuple[int, Sequence[Message]]] = field(default_factory=list)

    async def answer(self, chat: Chat, *, label: str, speaker: int) -> Call:
        self.chats.append((speaker % self.num_models, chat.messages))
        return Call(label, speaker, tuple(chat.messages), label + REPLY, "stop", 0, 0)


def rehearse(
    setup: Setup, task: BenchmarkTask, *, num_models: int
) -> list[tuple[int, Sequence[Message]]]:
    """Return all calls (model index, chat) of a setup for a task whose conversations do not end
    early; none of a program."""
    if setup.program:
        return []
    rehearsal = _Rehearsal(num_models)
    with blaming_plugins():
        answering: Any = setup.flow(task, rehearsal)
        if not isinstance(answering, Coroutine):
            raise ValueError(
                f"setups: the flow of {setup} returned {type(answering).__name__}, which cannot be "
                "awaited; begin it with async def"
            )
        said = run(answering)
        if not isinstance(said, str):
            raise ValueError(f"setups: the flow of {setup} returned {said!r}; return the answer")
    return rehearsal.chats


def _check_templates(plan: EvaluationPlan) -> None:
    """Raise ValueError when a local model's chat template refuses the chats of a setup."""
    task, tokenizer_of = next(iter(plan.tasks.values()))[0], cache(load_tokenizer)

    def errors_of(setup: Setup) -> Iterator[str]:
        for indices in plan.target.subjects.values():
            for speaker, chat in rehearse(setup, task, num_models=len(indices)):
                model = plan.target.models[indices[speaker]]
                if isinstance(model, LocalModel):
                    told = with_system_prompt(chat, plan.target.system_prompt)
                    tokenizer, kwargs = tokenizer_of(model.folder), model.template_kwargs
                    if (error := template_error(tokenizer, told, kwargs)) is not None:
                        yield f"{model.folder}: {error}"

    found = {label: next(errors_of(setup), None) for label, setup in plan.setups.items()}
    if reasons := [f"{label} (of {error})" for label, error in found.items() if error is not None]:
        others = ",".join(label for label, error in found.items() if error is None)
        remedy = f"Choose setups=[{others}] or another model" if others else "Choose another model"
        raise ValueError(f"setups: a chat template cannot express {'; '.join(reasons)}. {remedy}")


def with_needed_context(
    target: Target,
    setups: Iterable[Setup],
    tasks: Iterable[Sequence[BenchmarkTask]],
    requests: RequestOptions,
) -> Target:
    """Limit the context of ``target``'s models to the longest prompt of these setups plus its
    reply, with all replies at maximum length: the KV cache of a model's whole context may not fit.
    A program may need all of it."""
    setups, tasks, needed = [*setups], [*tasks], SHORT_CONTEXT
    models = [model for model in target.models if isinstance(model, LocalModel)]
    if any(setup.program for setup in setups) or len(models) < len(target.models):
        return target
    for index, model in enumerate(models):
        if model.context_length <= needed:
            continue
        tokenizer, kwargs = load_tokenizer(model.folder), model.template_kwargs
        chats = ChatEncoder(tokenizer, folder=model.folder, template_kwargs=kwargs)
        longest = [max(drawn, key=lambda t: len(tokenizer.encode(t.query))) for drawn in tasks]
        sizes = {len(indices) for indices in target.subjects.values() if index in indices}
        for chat in (
            with_system_prompt(chat, target.system_prompt)
            for setup in setups
            for task in longest
            for num_models in sizes
            for _, chat in rehearse(setup, task, num_models=num_models)
        ):
            prompt = chats.encode(chat)
            num_replies = 1 + sum(message["content"].count(REPLY) for message in chat)
            needed = max(needed, len(prompt) + num_replies * requests.max_tokens)
    limited = (replace(m, context_length=min(m.context_length, needed)) for m in models)
    return replace(target, models=tuple(limited))


def _all_tasks(config: EvaluationConfig, target: Target) -> dict[str, list[BenchmarkTask]]:
    data, tasks = Path(config.data), {}
    for name in choose_benchmarks(config.benchmarks, target, data=data):
        if name == HELD_OUT:
            assert target.held_out is not None
            tasks[name] = held_out_tasks(
                target.held_out, target.held_out_rules, limit=config.limit, prompts=target.prompts
            )
        else:
            tasks[BENCHMARKS[name].name] = benchmark_tasks(name, data=data, limit=config.limit)
    return tasks


def _notes(
    config: EvaluationConfig, requests: RequestOptions, target: Target, tasks: Collection[str]
) -> tuple[str, ...]:
    notes = []
    if target.prompts is not None and HELD_OUT in tasks:
        notes.append(
            "the held-out questions are asked with the run's own prompts, but the prompts of the "
            "setups are those that are shipped"
        )
    if target.verifiers and HELD_OUT in tasks:
        names = ", ".join(f"{name} of {domain}" for domain, name in target.verifiers.items())
        notes.append(
            "the held-out questions are judged by the shipped graders, not by the run's own "
            f"verifiers ({names}) as its validations were"
        )
    if requests.max_tokens != config.max_tokens:
        notes.append(
            f"replies are limited to {requests.max_tokens} tokens instead of {config.max_tokens}: "
            f"a reply gets at most 1/{CONTEXT_SHARE_OF_REPLY} of the models' context"
        )
    if requests.system_prompt is not None:
        notes.append(f"chats begin with the system prompt of the run: {requests.system_prompt!r}")
    alike = " and ".join(n for n in ("consistency", "debate") if n in (config.setups or SETUPS))
    if config.extra_body.get("temperature", config.temperature) == 0 and alike:
        notes.append(f"at temperature 0, the independent answers of a model in {alike} are equal")
    told = [dict(model.template_kwargs) for model in target.models]
    if any(told):
        notes.append(f"chat templates are told {'; '.join(map(str, told))}")
    return tuple(notes)


def _identity(
    target: Target,
    tasks: Mapping[str, Sequence[BenchmarkTask]],
    setups: Mapping[str, Setup],
    *,
    config: EvaluationConfig,
    requests: RequestOptions,
) -> Identity:
    named = [name for name in config.setups or SETUPS if name != PROGRAM]
    sources = {SETUPS.label(name): SETUPS.source_of(name) for name in named}
    digests = {label: source.digest for label, source in sources.items() if source}
    return {
        TITLE: target.title,
        SETUP_FILES: {label: s.program for label, s in setups.items() if s.program} | digests,
        "models": [model.identity for model in target.models],
        "subjects": dict(target.subjects),
        SAMPLING: {
            "temperature": config.temperature,
            "generation_config": config.generation_config if config.base_url is None else None,
            "max_tokens": requests.max_tokens,
            "system_prompt": requests.system_prompt,
            **config.extra_body,
        },
        "limit": config.limit,
        "draw_seed": DRAW_SEED,
        TASKS: {
            name: fingerprint([astuple(task) for task in drawn]) for name, drawn in tasks.items()
        },
    }
