"""Validation on held-out questions: each agent answers alone, and all may discuss."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING

from comas.config.schema import Config
from comas.data import QuestionSet
from comas.interaction.held import outcome_of
from comas.interaction.prompts import SHIPPED, SOLUTION, Wording, fill
from comas.interaction.schedules import run_discussions
from comas.interaction.wording import wording_of
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.judge_probe import ask_probe
from comas.run.metrics.reward_effectiveness import false_accusations, reward_effectiveness
from comas.run.metrics.step import accuracies, accuracy_metrics
from comas.run.prepared import Prepared
from comas.run.records import Record
from comas.types import Discussion, Domain, Generate, Generation, Metrics, Question, Request
from comas.utils.concurrency import run_all
from comas.utils.interrupts import run
from comas.utils.progress import counted, progress_bar
from comas.utils.seeds import sampling_seed
from comas.verification import Verifier
from comas.verification.forms import Verdict
from comas.verification.solutions import Verdicts, verify_solutions

if TYPE_CHECKING:  # imports Ray
    from comas.engines.cluster.agents import Agents

SAMPLED, GREEDY = "validation", "validation/greedy"
"""Prefixes of the metrics of agents' own answers, at ``validation.temperature`` and at 0."""
Known = dict[tuple[str, str], Generation | None]
"""Answers of agents that are not trained, by their turns, from one validation to the next."""
DISCUSSIONS = "validation/discussion"
"""Prefix of the metrics of held-out discussions."""


def validate_agents(
    prepared: Prepared,
    agents: "Agents",
    verifier: Verifier,
    *,
    known: Known,
    keep: Callable[[Sequence[Record]], object] = lambda records: None,
) -> Metrics:
    """Return metrics of held-out questions and the probe, and the time. ``keep`` gets answers;
    what ``known`` has of an earlier validation is not asked again."""
    started = time.monotonic()
    config, held_out = prepared.config, prepared.validation
    temperature = config.validation.temperature
    num_agents, num_questions = config.society.num_agents, len(held_out.questions)
    num_answers = (1 + bool(temperature)) * num_agents * num_questions
    what = f"validation ({num_questions} questions, {num_agents} agents"
    what += f", greedy and at temperature {temperature:g})" if temperature else ")"
    with progress_bar(what, unit="answer", total=num_answers) as bar:
        every = config.update_every
        frozen = {agent for agent, policy in enumerate(config.policy_of_agent) if not every[policy]}
        alone = counted(remembering(agents.generate, known, frozen), bar)
        sample = at_temperature(alone, temperature)
        ways = {SAMPLED: sample} | ({GREEDY: at_temperature(alone, 0.0)} if temperature else {})
        metrics, records = validate(held_out, config, generate=ways, verifier=verifier)
        keep(records)
        if prepared.probe:
            metrics |= ask_probe(prepared.probe, config, generate=sample)
        if config.validation.discussions:
            sample = at_temperature(counted(agents.generate, bar), temperature)
            metrics |= validate_discussions(held_out, config, generate=sample, verifier=verifier)
    return metrics | {"time/validation_s": time.monotonic() - started}


def at_temperature(generate: Generate, temperature: float) -> Generate:
    return lambda request: generate(request._replace(temperature=temperature))


def remembering(generate: Generate, known: Known, frozen: Collection[int]) -> Generate:
    """Wrap ``generate`` to ask ``frozen`` agents, whose weights stay, for each turn once."""

    async def ask(request: Request) -> Generation | None:
        if request.agent_index not in frozen:
            return await generate(request)
        if request.turn not in known:
            known[request.turn] = await generate(request)
        return known[request.turn]

    return ask


def validate(
    held_out: QuestionSet, config: Config, *, generate: Mapping[str, Generate], verifier: Verifier
) -> tuple[Metrics, list[Record]]:
    """Return the accuracy of all agents and of each, and records of every answer. ``generate`` maps
    a prefix of metrics to the way of sampling their answers."""
    questions = held_out.questions
    ask = partial(
        answer_alone,
        questions,
        num_agents=config.society.num_agents,
        seed=config.seed,
        wording=wording_of(config.interaction.prompts),
    )
    answers = run(run_all(ask(generate=way, label=prefix) for prefix, way in generate.items()))
    asked = list(product(range(config.society.num_agents), questions))
    metrics: Metrics = {}
    records: list[Record] = []
    for prefix, texts in zip(generate, answers, strict=True):
        solutions = [
            (question.domain, text, held_out.answers[question.question_id])
            for (_, question), text in zip(asked, texts, strict=True)
        ]
        verdicts = verifier.submit(solutions).result()
        judged: dict[int, list[tuple[Domain, Verdict]]] = defaultdict(list)
        for (agent, question), text, verdict in zip(asked, texts, verdicts, strict=True):
            judged[agent].append((question.domain, verdict))
            record = {"sampling": prefix, "agent": agent, "question_id": question.question_id}
            records.append(record | {"response": text, "verdict": verdict})
        metrics |= accuracy_metrics(prefix, list(chain(*judged.values())))
        for agent, its in judged.items():
            metrics |= accuracies(f"agent_{agent}/{prefix}", its)
    return metrics, records


def validate_discussions(
    held_out: QuestionSet, config: Config, *, generate: Generate, verifier: Verifier
) -> Metrics:
    """Hold one discussion of every question, as the released code does at its validations. Returns
    the accuracy of the last round's solutions, and reward effectiveness over all solutions."""
    scheme = REWARD_SCHEMES[config.reward.scheme]
    discussions = run_discussions(
        held_out.questions,
        generate=generate,
        num_agents=config.society.num_agents,
        rules=replace(config.interaction, prompt_reuse=1),
        seed=config.seed,
        # No training step, so the seeds are the same at each validation.
        step=0,
    )
    wait_for_verdicts = verify_solutions(verifier, discussions, answers=held_out.answers)
    rewarded = scheme(discussions, wait_for_verdicts, seed=config.seed, step=0).discussions
    verdicts = wait_for_verdicts()
    judges = {
        **reward_effectiveness(rewarded, verdicts=verdicts, sees_verdicts=scheme.sees_verdicts),
        **false_accusations(discussions, verdicts=verdicts),
    }
    return {
        **accuracy_metrics(DISCUSSIONS, last_solutions(discussions, verdicts)),
        **{f"{DISCUSSIONS}/{name}": value for name, value in judges.items()},
    }


def last_solutions(
    discussions: Sequence[Discussion], verdicts: Verdicts
) -> list[tuple[Domain, Verdict]]:
    """Return (domain, verdict) of every solution of the last round. Solutions that are missing, as
    their prompts were over the limit, are unanswered, so that all discussions count alike."""
    solutions = [discussion.solutions() for discussion in discussions]
    last_round = max((turn.round_index for turns in solutions for turn in turns), default=0)
    last = [[turn for turn in turns if turn.round_index == last_round] for turns in solutions]
    held = (outcome_of(discussion) is not None for discussion in discussions)
    num_asked = max([*map(len, last), *held], default=0)  # a program owes one answer
    judged: list[tuple[Domain, Verdict]] = []
    for discussion, turns in zip(discussions, last, strict=True):
        domain = discussion.question.domain
        judged += [(domain, verdicts[discussion.discussion_id, turn.turn_id]) for turn in turns]
        judged += [(domain, "unanswered")] * (num_asked - len(turns))
    return judged


async def answer_alone(
    questions: Sequence[Question],
    *,
    generate: Generate,
    num_agents: int,
    seed: int,
    label: str = SAMPLED,
    wording: Wording = SHIPPED,
) -> list[str]:
    """Ask every agent every question once; returns the response texts, agent by agent, "" for
    prompts over the limit.

    Seeds do not depend on the step, so two validations differ by the weights alone. ``label``
    begins the turns' names.
    """

    async def answer(agent: int, question: Question) -> str:
        request = Request(
            agent,
            fill(SOLUTION, question.domain, question=question.text, wording=wording),
            turn=(f"{label}/{question.question_id}", f"agent_{agent}"),
            role="solution",
            seed=sampling_seed(seed, "validation", question.question_id, agent),
        )
        generation = await generate(request)
        return "" if generation is None else generation.response_text

    return await run_all(answer(*asked) for asked in product(range(num_agents), questions))
