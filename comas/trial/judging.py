"""How well judges, rewards, votes and the solver itself tell right solutions from wrong ones."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from comas.interaction.criticism import Outcome
from comas.reward_formulation.interaction_reward import parse_score, rewards_of_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.majority_reward import Weigh, hold_votes, one_vote
from comas.reward_formulation.self_rewarding import GREATEST_RATING, parse_rating
from comas.types import Discussion, RewardedDiscussion, Turn, TurnKey
from comas.verification.latex import spelled_answer
from comas.verification.solutions import Verdicts

NUM_RESAMPLES = 10_000
MIN_QUESTIONS = 5
"""Minimum of questions with right, and with wrong solutions; fewer give too narrow an interval."""


class Estimate(NamedTuple):
    """A value with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Opinion(NamedTuple):
    """The value that a judge, or another source, gives to a solution."""

    solution: TurnKey
    question_id: str
    value: float | None
    """Higher is better; None if it cannot be read."""
    is_right: bool | None
    """The verdict on the solution; None if the verifier failed."""


@dataclass(frozen=True)
class Source:
    """A source of opinions, and how well they tell right from wrong."""

    name: str
    opinions: Sequence[Opinion]
    """Opinions that have a value, on solutions with a verdict."""
    auc: Estimate | None = None
    untold: str = ""
    """Why the AUC is unknown, if it is."""

    @property
    def detectable(self) -> float:
        """The AUC that a 95 % interval of this width tells from chance in 80 % of trials: 0.5 plus
        1.96 + 0.84 standard errors. Example: [0.5, 0.696] gives 0.5 + 2.8 * 0.05 = 0.64."""
        assert self.auc is not None
        return min(0.5 + 2.8 * (self.auc.high - self.auc.low) / (2 * 1.96), 1.0)

    @property
    def sees(self) -> bool:
        """True if it certainly tells right from wrong."""
        return self.auc is not None and self.auc.low > 0.5


def find_sources(
    rewarded: Sequence[RewardedDiscussion],
    judges: Mapping[int, Sequence[Opinion]],
    verdicts: Verdicts,
    *,
    seed: int,
    within: bool,
) -> dict[str, Source]:
    """Return how well each agent's and all agents' opinions (``judges``) tell right from wrong, and
    the reward; for comparison also a vote, a vote weighed by the judges, and the mean log-prob of a
    solution's tokens. ``within`` is as in ``auc``."""
    discussions = [item.discussion for item in rewarded]
    source = partial(assess, seed=seed, within=within)
    found = {
        f"agent {agent}": source(f"agent {agent} as a judge", said)
        for agent, said in sorted(judges.items())
    }
    every = [opinion for said in judges.values() for opinion in said]
    if judges:
        found["judges"] = source("all judges", every)

    def each(value: Callable[[Discussion, Turn], float | None]) -> list[Opinion]:
        return [
            opinion_on(discussion, turn, value(discussion, turn), verdicts)
            for discussion in discussions
            for turn in discussion.solutions()
            if not turn.is_given
        ]

    paid = {
        (item.discussion.discussion_id, turn.turn_id): reward
        for item in rewarded
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
    }
    rewards = each(lambda d, turn: paid[d.discussion_id, turn.turn_id])
    found["reward"] = source("the reward as paid", rewards)
    votes: dict[str, tuple[str, Weigh]] = {"vote": ("majority vote, math", one_vote)}
    if judges:
        values: defaultdict[TurnKey, list[float]] = defaultdict(list)
        for of in every:
            if of.value is not None:
                values[of.solution].append(of.value)
        weights = {solution: fmean(given) for solution, given in values.items()}
        name = "vote weighed by judges, math"
        votes["weighed vote"] = name, lambda d, turn: weights.get((d.discussion_id, turn.turn_id))
    for key, (name, weigh) in votes.items():
        agrees = partial(_agrees, elect(discussions, weigh))
        found[key] = source(name, each(agrees), nothing="no answer is elected (boxed, of math)")
    likelihoods = each(
        lambda _, turn: fmean(logprobs) if (logprobs := turn.generation.rollout_logprobs) else None
    )
    found["likelihood"] = source("likelihood", likelihoods)
    return found


def assess(
    name: str, opinions: Iterable[Opinion], *, seed: int, within: bool = False, nothing: str = ""
) -> Source:
    """Return how well ``opinions`` tell right from wrong, if there are enough. ``nothing`` says why
    there may be none."""
    known = [of for of in opinions if of.value is not None and of.is_right is not None]
    right, wrong = ({of.question_id for of in known if of.is_right is k} for k in (True, False))
    if min(map(len, (right & wrong,) if within else (right, wrong))) < MIN_QUESTIONS:
        counts = f"{len(right)} questions with right and {len(wrong)} with wrong solutions"
        counts += f", {len(right & wrong)} of them with both," * within
        nothing = nothing or "nothing can be read"
        return Source(name, known, untold=f"{counts} are too few" if known else nothing)
    return Source(name, known, auc(known, seed=seed, within=within))


def auc(opinions: Sequence[Opinion], *, seed: int, within: bool = False) -> Estimate:
    """Return the AUC: the share of pairs of a right and a wrong solution in which the right one has
    the higher value, counting ties half (Mann-Whitney); ``within`` counts pairs of one question.

    The 95 % interval comes from a bootstrap over questions, as solutions of one question are alike,
    with the quantiles of the expanded percentile bootstrap (Hesterberg 2015, arXiv 1411.5279): for
    few questions n, plain ones are too narrow by sqrt((n - 1) / n) and by using the normal
    distribution in place of Student's t. n counts the questions with right or those with wrong
    solutions, whichever are fewer (``within``: those with both). The interval reaches at least 1.96
    standard errors of values that are independent of the verdicts (Mann-Whitney): few right
    solutions often share one value.

    Example: right ones with 1 and 0.5, wrong ones with 0.5 and 0: (0.5 + 1 + 1 + 1) / 4.
    """
    right, wrong = ({o.question_id for o in opinions if o.is_right is k} for k in (True, False))
    if within:
        right = wrong = right & wrong
        opinions = [o for o in opinions if o.question_id in right]
    num_compared = max(min(len(right), len(wrong)), 2)
    rows = {name: row for row, name in enumerate(dict.fromkeys(o.question_id for o in opinions))}
    places, values, is_right = map(
        np.array, zip(*((rows[o.question_id], o.value, o.is_right) for o in opinions), strict=True)
    )
    high, low = values[is_right][:, None], values[~is_right]
    num = len(rows)
    won, compared = np.zeros((2, num, num))  # [question of the right one, of the wrong one]
    pairs = np.ix_(places[is_right], places[~is_right])
    np.add.at(won, pairs, (high > low) + 0.5 * (high == low))
    np.add.at(compared, pairs, 1.0)

    def share(counts: np.ndarray) -> np.ndarray:
        """Return the AUC of each resample; ``counts`` of the questions are [B, num]."""
        wins, total = (
            counts @ table.diagonal() if within else ((counts @ table) * counts).sum(axis=1)
            for table in (won, compared)
        )
        return wins[total > 0] / total[total > 0]

    drawn = np.random.default_rng(seed).multinomial(num, np.full(num, 1 / num), NUM_RESAMPLES)
    tail = ndtr(stdtrit(num_compared - 1, 0.025) * sqrt(num_compared / (num_compared - 1)))
    below, above = np.quantile(share(drawn.astype(float)), [tail, 1 - tail])
    value = float(share(np.ones((1, num)))[0])
    reach = 1.96 * chance_error(values, is_right, places if within else 0 * places)
    low, high = max(0.0, min(below, value - reach)), min(1.0, max(above, value + reach))
    return Estimate(value, float(low), float(high))


def chance_error(values: np.ndarray, is_right: np.ndarray, strata: np.ndarray) -> float:
    """Return the standard error of the AUC of values that are independent of the verdicts, n of
    which t share each value: sqrt((n + 1 - sum(t^3 - t) / (n (n - 1))) / (12 * right * wrong)).
    Pairs are those of one stratum, whose variances add up.

    Example: 48 right, 48 wrong, without ties: sqrt(97 / (12 * 48 * 48)) = 0.0592.
    """
    variance, pairs = 0.0, 0
    for stratum in np.unique(strata):
        inside = strata == stratum
        num, num_right = inside.sum(), is_right[inside].sum()
        if product := num_right * (num - num_right):
            ties = np.unique(values[inside], return_counts=True)[1].astype(float)
            varied = num + 1 - (ties**3 - ties).sum() / (num * (num - 1))
            variance, pairs = variance + max(varied, 0.0) * product / 12, pairs + product
    return float(np.sqrt(variance) / pairs)


def judgments(
    discussions: Iterable[Discussion], verdicts: Verdicts, outcome: Outcome | None
) -> dict[int, list[Opinion]]:
    """Return each agent's opinions as a judge, from its scorings, judgments or ratings."""
    said: defaultdict[int, list[Opinion]] = defaultdict(list)
    if outcome is None:
        return said
    for discussion in discussions:
        for turn in discussion.turns_that("scores" if outcome == "scores" else "judges"):
            solution = discussion.solution_of(turn)
            if solution is not None and not turn.is_given:
                value = value_said(turn.text, outcome)
                said[turn.agent_index].append(opinion_on(discussion, solution, value, verdicts))
    return said


def opinion_on(
    discussion: Discussion, solution: Turn, value: float | None, verdicts: Verdicts
) -> Opinion:
    """Return the opinion that a solution has this ``value``."""
    key = discussion.discussion_id, solution.turn_id
    verdict = verdicts.get(key, "failed")
    is_right = None if verdict == "failed" else verdict == "correct"
    return Opinion(key, discussion.question.question_id, value, is_right)


def value_said(text: str, outcome: Outcome) -> float | None:
    """Return the value from 0 to 1 in a judge's response, or None if it cannot be read.

    Example: a score of 2 is 0.5, the judgment "correct" 1, a rating of 4 0.8.
    """
    if outcome == "scores":
        score = parse_score(text)
        return None if score is None else rewards_of_score(score).solution
    if outcome == "judgments":
        judgment = parse_judgment(text)
        return None if judgment is None else float(judgment == "correct")
    rating = parse_rating(text)
    return None if rating is None else rating / GREATEST_RATING


def elect(discussions: Sequence[Discussion], weigh: Weigh) -> dict[str, str]:
    """Return question id -> elected answer, for questions with at least two voting solutions."""
    voters = Counter(
        discussion.question.question_id
        for discussion in discussions
        for solution in discussion.solutions()
        if spelled_answer(solution.text) is not None
    )
    elected = hold_votes(discussions, weigh)
    return {question: answer for question, answer in elected.items() if voters[question] > 1}


def _agrees(elected: Mapping[str, str], discussion: Discussion, solution: Turn) -> float | None:
    """Return 1 for the elected answer, 0 for another, None without an elected answer."""
    answer = elected.get(discussion.question.question_id)
    return None if answer is None else float(spelled_answer(solution.text) == answer)
