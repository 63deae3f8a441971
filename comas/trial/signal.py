"""The report on whether there is a signal to learn from."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from scipy.stats import binomtest

from comas.config.schema import Algorithm, Config, Dpo
from comas.interaction.criticism import CRITICISMS
from comas.policy_optimization.advantages import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.preferences import preference_pairs
from comas.policy_optimization.update_stats import UpdateStats
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import example_of, lost_signals
from comas.run.metrics.step import NO_ADVANTAGE, step_metrics
from comas.trial.judging import Opinion, Source, find_sources, judgments
from comas.types import Rewards, TrainingSample, Turn
from comas.utils.terminal import in_columns
from comas.verification.forms import Verdict
from comas.verification.solutions import Verdicts

BLIND = 0.6
"""A reward is blind if the interval of its AUC lies below this and includes 0.5."""
TOO_HARD, TOO_EASY = 0.05, 0.95
"""Outside these shares of right solutions there is too little to tell apart."""
WORTH = 0.7
"""The AUC that a source needs to teach; not enough. Over all pairs, SmolLM2 lost with 0.65,
the quick-start gains with 0.73; within questions, SmolLM2 also lost with 0.70 to 0.72
(configs/studies/judging.yaml)."""
READABLE, LEARNABLE = 0.8, 0.1
"""Minimum shares of readable judgments, and of groups with an advantage."""


class Batch(NamedTuple):
    """A batch of discussions of the trial."""

    rewards: Rewards
    rollout_s: float
    """Seconds until the rewards were known."""
    verdicts: Verdicts


class Update(NamedTuple):
    batch: Batch
    buffers: Mapping[int, Sequence[TrainingSample]]
    """Policy -> the samples of ``batch`` that it was trained on."""
    stats: Mapping[int, UpdateStats]
    update_s: float
    sync_s: float


class Check(NamedTuple):
    """A condition for a run to be worth its time."""

    name: str
    found: str
    wants: str
    passes: bool | None
    """True if the condition holds; None if the trial leaves it open."""


def describe_signal(batches: Sequence[Batch], update: Update, *, config: Config) -> list[str]:
    """Return the report on ``batches`` and the ``update``."""
    rewarded = [item for batch in batches for item in batch.rewards.discussions]
    discussions = [item.discussion for item in rewarded]
    verdicts = {key: of for batch in batches for key, of in batch.verdicts.items()}
    judges = judgments(discussions, verdicts, CRITICISMS[config.interaction.criticism].outcome)
    judges_pay = REWARD_SCHEMES[config.reward.scheme].reads is not None
    keys = group_keys(config.algorithm)
    within = "question_id" in keys
    found = find_sources(rewarded, judges, verdicts, seed=config.seed, within=within)
    spoken = [
        (turn, verdicts.get((discussion.discussion_id, turn.turn_id)))
        for discussion in discussions
        for turn in discussion.turns
        if not turn.is_given
    ]
    said = [of.value is not None for own in judges.values() for of in own if judges_pay]
    learnt = learnable(update.buffers, update.stats, config.algorithm)
    groups = f"by {', '.join(keys)}" if keys else "policies"
    right = [of == "correct" for of in verdicts.values() if of != "failed"]
    checks = gate(found["reward"], right=right, readable=said, learnt=learnt, is_all=not keys)
    last = update.batch
    metrics = step_metrics(last.rewards, update.stats, last.verdicts, config=config)
    cause = [f"cause: {s.says}{example_of(s, rewarded)}; {s.remedy}" for s in lost_signals(metrics)]
    num_questions = len({discussion.question.question_id for discussion in discussions})
    return [
        f"is there a signal? {len(discussions)} discussions of {num_questions} questions",
        *in_columns(shares(spoken, judges, num_agents=config.society.num_agents)),
        "",
        *in_columns(table(found.values(), within=within)),
        "",
        f"is it worth training by this reward? (groups are {groups})",
        *in_columns([[f"  {of.name}", of.found, of.wants, PASSES[of.passes]] for of in checks]),
        *vote_over_one(found["vote"].opinions),
        f"verdict on reward.scheme={config.reward.scheme}: {verdict(found['reward'], checks)}",
        *cause[:1],
    ]


def shares(
    spoken: Sequence[tuple[Turn, Verdict | None]],
    judges: Mapping[int, Sequence[Opinion]],
    *,
    num_agents: int,
) -> list[list[str]]:
    """Return a table of shares, for all agents together and for each of several. ``spoken`` has the
    verdicts on solutions."""
    roles = list(dict.fromkeys(turn.role for turn, _ in spoken))
    names = ["right solutions", "solutions without an answer", "readable as a judge"]
    columns = [
        ["", *(f"  {name}" for name in (*names, *(f"{r}s: tokens, cut off" for r in roles)))]
    ]
    alone = [(f"agent {agent}", [agent]) for agent in range(num_agents)] if num_agents > 1 else []
    for heading, agents in [("all", list(range(num_agents))), *alone]:
        turns = [(turn, of) for turn, of in spoken if turn.agent_index in agents]
        known = [of for _, of in turns if of not in (None, "failed")]
        cells = [
            share(of == "correct" for of in known),
            share(of == "unanswered" for of in known),
            share(of.value is not None for agent in agents for of in judges.get(agent, ())),
        ]
        for role in roles:
            its = [turn.generation for turn, _ in turns if turn.role == role]
            length = fmean([len(of.response_token_ids) for of in its] or [0])
            cells.append(f"{length:.1f}, {share(of.finish_reason == 'length' for of in its)}")
        columns.append([heading, *cells])
    return [list(row) for row in zip(*columns, strict=True)]


def table(found: Iterable[Source], *, within: bool) -> list[list[str]]:
    """Return a table of how well each source tells right solutions from wrong ones."""
    question = f"  who tells right from wrong{' among solutions of one question' * within}?"
    rows = [[question, "AUC [95 %]", f"solutions  {WORTH} or more"]]
    for of in found:
        told = f"cannot be said: {of.untold}" if of.auc is None else str(of.auc)
        num = len({opinion.solution for opinion in of.opinions})
        rows.append([f"  {of.name}", told, f"{num:9}  {PASSES[teaches(of)]}" if of.auc else ""])
    return rows


def teaches(source: Source) -> bool | None:
    """Return whether the source's AUC reaches ``WORTH``, and certainly more than chance; None if it
    may do so."""
    if source.auc is None:
        return None
    passes = source.sees and source.auc.value >= WORTH
    return passes or (None if source.auc.high >= WORTH else False)


def group_keys(algorithm: Algorithm) -> Sequence[str]:
    """Return the fields of a sample that define its group; without any, groups are policies."""
    if isinstance(algorithm, Dpo):
        return "agent_index", "question_id", "prompt_token_ids"
    estimator = ADVANTAGE_ESTIMATORS[algorithm.estimator]
    return estimator.group_by if algorithm.group_by is None else algorithm.group_by


def learnable(
    buffers: Mapping[int, Sequence[TrainingSample]],
    stats: Mapping[int, UpdateStats],
    algorithm: Algorithm,
) -> list[bool]:
    """Return for each group whether some response has an advantage, or is the better of a pair."""
    learnt: dict[Hashable, bool] = {}
    keys = group_keys(algorithm)
    for policy, samples in buffers.items():
        if isinstance(algorithm, Dpo):
            pairs = {id(chosen) for chosen, _ in preference_pairs(samples)}
            has = [id(s) in pairs for s in samples]
        else:
            advantages = stats[policy].advantages
            has = [max(map(abs, row), default=0.0) > NO_ADVANTAGE for row in advantages]
        for s, is_better in zip(samples, has, strict=True):
            group = policy, str([getattr(s, key) for key in keys])  # token ids may be a list
            learnt[group] = learnt.get(group, False) or is_better
    return list(learnt.values())


PASSES = {True: "passes", False: "fails", None: "open"}


def gate(
    paid: Source,
    *,
    right: Sequence[bool],
    readable: Sequence[bool],
    learnt: Sequence[bool],
    is_all: bool,
) -> list[Check]:
    """Return the conditions for a run to be worth its time. ``paid`` is the reward, ``readable`` is
    empty if judges do not pay, and ``is_all`` is True if a run has no other groups."""
    few, most, needed = f"{TOO_HARD:.0%}", f"{TOO_EASY:.0%}", f"{LEARNABLE:.0%} or more"
    ends = [reaches(right, TOO_HARD), reaches([not of for of in right], round(1 - TOO_EASY, 9))]
    is_between = False if False in ends else None if None in ends else True
    groups = f"{share(learnt)} of {len(learnt)}"
    learns = any(learnt) if is_all else reaches(learnt, LEARNABLE)
    checks = [
        Check("right solutions", share(right), f"{few} to {most}", is_between),
        Check("groups with something to learn", groups, needed, learns),
    ]
    if readable:
        wants = f"{READABLE:.0%} or more"
        passes = reaches(readable, READABLE)
        checks.append(Check("readable judgments", share(readable), wants, passes))
    estimate = "cannot be said" if paid.auc is None else str(paid.auc)
    return [*checks, Check(f"AUC, {paid.name}", estimate, f"{WORTH} or more", teaches(paid))]


def reaches(holds: Sequence[bool], least: float) -> bool | None:
    """Return whether a share reaches ``least``; None if only its 95 % interval (Clopper-Pearson)
    does, or there is nothing to count."""
    if holds and fmean(holds) >= least:
        return True
    could_be = not holds or binomtest(sum(holds), len(holds)).proportion_ci().high >= least
    return None if could_be else False


def verdict(paid: Source, checks: Sequence[Check]) -> str:
    """Return whether a run is worth its time, with the reason."""
    failed, is_open = ([c.name for c in checks if c.passes is passes] for passes in (False, None))
    worth = "worth training"
    if failed:
        worth = f"not worth training ({', '.join(failed)})"
    elif is_open:
        worth = f"left open ({', '.join(is_open)}; a longer --trial=TIME may settle it)"
    return f"{worth}; {sight(paid)}"


def sight(paid: Source) -> str:
    """Return whether the reward can tell right from wrong."""
    if paid.auc is None:
        return f"whether {paid.name} can tell right from wrong cannot be said: {paid.untold}"
    found = f"this sample can detect an AUC of {paid.detectable:.2f} or more"
    says = f"may or may not tell right from wrong ({found})"
    if paid.sees:
        says = "tells right from wrong" + f", but with less than {WORTH}" * (paid.auc.value < WORTH)
    elif paid.auc.high < 0.5:
        says = "will take wrong for right"
    elif paid.auc.high <= BLIND:
        says = "cannot tell right from wrong"
    return f"{paid.name}: {says}, AUC {paid.auc}"


def vote_over_one(opinions: Sequence[Opinion]) -> list[str]:
    """Return a line that compares a majority vote, if there was any, to a single answer. An opinion
    is 1 on solutions with the elected answer, and 0 on others of the same questions."""
    elected = {of.question_id: bool(of.is_right) for of in opinions if of.value}
    answers: dict[str, list[bool]] = {}
    for of in opinions:
        answers.setdefault(of.question_id, []).append(bool(of.is_right))
    one = f"{fmean(map(fmean, answers.values())):.0%}" if answers else "-"
    said = f"{share(elected.values())} of {len(elected)} questions, a single answer in {one}"
    return [f"a majority vote would be right in {said}"] if elected else []


def share(holds: Iterable[bool]) -> str:
    """Return the share of true values as text, "-" if there is nothing to count."""
    known = list(holds)
    return f"{fmean(known):.0%}" if known else "-"
