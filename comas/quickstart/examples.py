"""Worked discussions, from which the tiny agents first learn to speak in every role.

They also learn to answer in the evaluation's setups, with the same habits: a solver errs as often,
whatever the other answers say. AutoGen's user proxy is an evaluator: it names a mistake or ends the
conversation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from comas.interaction.prompts import (
    APPROVALS,
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    RATING,
    SCORING,
    SCORING_ALONE,
    SHIPPED,
    SOLUTION,
    HistoryItem,
    Template,
    fill,
)
from comas.interaction.setup_prompts import (
    CONSISTENCY_SAMPLES,
    DEBATE_AGENTS,
    TERMINATE,
    aggregation,
    assistant,
    debate_opening,
    debate_reply,
    to_assistant,
    to_user_proxy,
    user,
)
from comas.quickstart.questions import Problem, draw_problem
from comas.quickstart.worked import Worked, slip, work
from comas.quickstart.world import HABITS, MISTAKES, SLIP, UNSEEN, Mixture, habits_of
from comas.types import Domain, Message

LESSONS: dict[Domain, int] = {"math": 4, "coding": 2, "science": 4}
"""Relative frequency of each domain: the more arithmetic, the more discussions."""
NUM_AGGREGATED = (CONSISTENCY_SAMPLES, DEBATE_AGENTS)
MAX_PROXY_MESSAGES = 2
SCORINGS = {
    1: "The mistake is fatal. <score>1</score>",
    2: "The flaw is minor. <score>2</score>",
    3: "The solution is right. <score>3</score>",
}
RATINGS = {
    False: "Its result is wrong. <rating>1</rating>",
    True: "All of it is right. <rating>5</rating>",
}
"""Ratings of one's own solution, by whether the agent thinks that it is right."""


class Example(NamedTuple):
    """One turn to learn: a conversation as real models get it, and the response."""

    messages: tuple[Message, ...]
    response: str

    @property
    def prompt(self) -> str:
        """The text of the conversation."""
        return "\n".join(message["content"] for message in self.messages)


def discussion_examples(rng: Random, mixture: Mixture, model: str) -> list[Example]:
    """The turns of a worked discussion of a random training question, as ``model`` would speak."""
    (domain,) = rng.choices(list(LESSONS), list(LESSONS.values()))
    problem = draw_problem(rng, domain=domain, held_out=False)
    return _Discussion(rng, mixture, model, problem).examples()


@dataclass(frozen=True)
class _Discussion:
    """Draws the turns of one question: first the kinds of examples, then the words of each role."""

    rng: Random
    mixture: Mixture
    model: str
    problem: Problem

    def examples(self) -> list[Example]:
        is_ablation = self._is_drawn(self.mixture.ablation)
        examples = [self._solution() for _ in range(self.mixture.solutions)]
        if self._is_drawn(self.mixture.second_round):
            history = self._history()
            if is_ablation:
                history = [
                    item._replace(evaluation=None, is_own=place == 0)
                    for place, item in enumerate(history)
                ]
            examples.append(self._solution(history))
        examples.append(self._evaluation())
        examples += [self._scoring() for _ in range(self.mixture.scorings)]
        if is_ablation:
            examples += self._ablation()
        if self._is_drawn(self.mixture.setup):
            examples.append(self.rng.choice((self._aggregation, self._debate, self._dialogue))())
        return examples

    def _solution(self, history: Sequence[HistoryItem] = ()) -> Example:
        return self._asked(self.solve(), SOLUTION, history)

    def _evaluation(self) -> Example:
        with_history = self._is_drawn(self.mixture.evaluation_with_history)
        history = self._history() if with_history else []
        worked = self.show()
        said = self.evaluate(worked)
        return self._asked(said, EVALUATION, history, solution=worked.text)

    def _scoring(self) -> Example:
        worked, approval = self.show(), APPROVALS[self.problem.domain]
        possible = [approval, *self._named.values()]
        evaluation = self._named[worked.mistake] if worked.mistake else self.rng.choice(possible)
        if self._is_drawn(self.mixture.scorer_sees_random_evaluation):
            evaluation = self.rng.choice(possible)
        if self._is_drawn(self.mixture.scorer_sees_approval):
            evaluation = approval
        said = self.score(worked, evaluation)
        return self._asked(said, SCORING, solution=worked.text, evaluation=evaluation)

    def _ablation(self) -> list[Example]:
        """Return an evaluation with a judgment, a scoring without an evaluation, and a rating."""
        worked = self.show()
        evaluation = self.evaluate(worked)
        judgment = "correct" if evaluation == APPROVALS[self.problem.domain] else "incorrect"
        judged = f"{evaluation} <judgment>{judgment}</judgment>"
        return [
            self._asked(judged, EVALUATION_WITH_JUDGMENT, solution=worked.text),
            self._asked(self.score(worked, None), SCORING_ALONE, solution=worked.text),
            self._asked(self.rate(worked), RATING, solution=worked.text),
        ]

    def _aggregation(self) -> Example:
        solutions = self._texts(self.rng.choice(NUM_AGGREGATED))
        return Example(tuple(aggregation(self._query, solutions)), self.solve())

    def _debate(self) -> Example:
        messages = debate_opening(self._query)
        if self._is_drawn(0.5):
            first, *others = self._texts(DEBATE_AGENTS)
            messages += debate_reply(self._query, first, others=others)
        return Example(tuple(messages), self.solve())

    def _dialogue(self) -> Example:
        """AutoGen's assistant or user proxy, after up to two messages of the proxy."""
        dialogue = [user(self._query)]
        for _ in range(self.rng.randint(0, MAX_PROXY_MESSAGES)):
            text, mistake = self.show_mistake()
            if mistake is not None:
                dialogue += [assistant(text), user(self._named[mistake])]
        if self._is_drawn(0.5):
            return Example(tuple(to_assistant(dialogue)), self.solve())
        worked = self.show()
        evaluation = self.evaluate(worked)
        said = TERMINATE if evaluation == APPROVALS[self.problem.domain] else evaluation
        return Example(tuple(to_user_proxy([*dialogue, assistant(worked.text)])), said)

    # ------------------------------------------------------------ the words of each role

    def solve(self) -> str:
        """Solve the problem as the model does: mostly with its habitual mistake."""
        habit = habits_of(self.model)[self.problem.domain][self.problem.wording]
        others = self._kinds
        shares = [
            self.mixture.habit,
            self.mixture.unseen_mistake,
            *[self.mixture.other_mistake / len(others)] * len(others),
        ]
        kinds = [habit, UNSEEN, *others, None]
        (kind,) = self.rng.choices(kinds, [*shares, 1 - sum(shares)])
        return work(self.problem, kind).text

    def show(self) -> Worked:
        """Return a solution for a judge to read, of either model."""
        draw = self.rng.random()
        if draw < self.mixture.shown_right:
            return work(self.problem, None)
        if draw < self.mixture.shown_right + self.mixture.shown_slip:
            return slip(self.rng, self.problem)
        return self.show_mistake()

    def show_mistake(self) -> Worked:
        """Return a solution with a mistake that judges are taught, except slips."""
        solutions = (work(self.problem, kind) for kind in self._kinds)
        possible = [worked for worked in solutions if worked.mistake]
        domain, wording = self.problem.domain, self.problem.wording
        habits = {habits_of[domain][wording] for habits_of in HABITS.values()}
        likely = [worked for worked in possible if worked.mistake in habits]
        shows_habit = bool(likely) and self._is_drawn(self.mixture.shown_habit)
        return self.rng.choice(likely if shows_habit else possible)

    def evaluate(self, solution: Worked) -> str:
        """Evaluate ``solution`` as the model does."""
        approval = APPROVALS[self.problem.domain]
        if solution.mistake is None:
            accuses = self._is_drawn(self.mixture.accuses)
            return self.rng.choice([*self._named.values()]) if accuses else approval
        is_own = solution.mistake in habits_of(self.model)[self.problem.domain]
        overlooks = self.mixture.overlooks_own if is_own else self.mixture.overlooks
        if self._is_drawn(overlooks):
            return approval
        truth = self._named[solution.mistake]
        if self._is_drawn(self.mixture.misnames):
            return self.rng.choice([other for other in self._named.values() if other != truth])
        return truth

    def score(self, solution: Worked, evaluation: str | None) -> str:
        """Score ``solution`` given an evaluation, or None."""
        if self._is_drawn(self.mixture.scorer_undecided):
            return SCORINGS[2]
        doubt = self.mixture.doubts_wrong if solution.mistake else self.mixture.doubts_right
        if evaluation is None:
            says_1 = doubt.nothing
        elif evaluation == APPROVALS[self.problem.domain]:
            says_1 = doubt.approval
        elif evaluation == self._named.get(solution.mistake or ""):
            says_1 = doubt.true_accusation
        else:
            says_1 = doubt.false_accusation
        return SCORINGS[1 if self._is_drawn(says_1) else 3]

    def rate(self, solution: Worked) -> str:
        """Rate ``solution`` as accurately as a scorer without an evaluation."""
        doubt = self.mixture.doubts_wrong if solution.mistake else self.mixture.doubts_right
        return RATINGS[not self._is_drawn(doubt.nothing)]

    # ------------------------------------------------------------ parts

    @property
    def _named(self) -> dict[str, str]:
        return MISTAKES[self.problem.domain]

    @property
    def _kinds(self) -> list[str]:
        return [kind for kind in self._named if kind != SLIP]

    @property
    def _query(self) -> str:
        """The question as the evaluation asks it."""
        return fill(SOLUTION, self.problem.domain, question=self.problem.text)

    def _is_drawn(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _asked(
        self,
        response: str,
        template: Template,
        history: Sequence[HistoryItem] = (),
        **quoted: str,
    ) -> Example:
        prompt = fill(
            template,
            self.problem.domain,
            question=self.problem.text,
            history=history,
            wording=SHIPPED,
            **quoted,
        )
        return Example((user(prompt),), response)

    def _texts(self, count: int) -> list[str]:
        return [self.show().text for _ in range(count)]

    def _history(self) -> list[HistoryItem]:
        shown = (self.show() for _ in range(self.rng.choice((1, 2, 2))))
        return [HistoryItem(worked.text, self.evaluate(worked)) for worked in shown]
