"""Executable evaluations: an evaluator of a program writes a test, and running it pays both."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.forms import Verdict

RunTests = Callable[[Sequence[tuple[str, str]]], list[Verdict]]
"""Of each (solution, evaluation) what ``comas.verification.coding.verify_test`` says."""
Runs = Mapping[tuple[str, str], Verdict]
"""What it said, by the turn ids of solution and evaluation."""
NO_TEST_REWARD = -1.0


def executable_reward(discussions: Sequence[Discussion], *, run_tests: RunTests) -> Rewards:
    """The paper's rewards outside of coding. In a discussion of a coding question, where e is an
    evaluation that holds a test, with p(s, e) = 1 if the program in s passes it, else 0::

        r(s) = mean of p(s, e) over the evaluations e of other agents
        r(e) = mean of v(s) over the solutions s that pass - mean of v(s) over those that do not
        v(s) = mean of p(s, e') over the other evaluations e' of other agents
        r(e) = -1 when it holds no test that can be run

    Every test is run on all solutions of other agents in the discussion, so nobody tests himself.
    r(e) is 0 where all pass or all fail, or where no other test says what a solution is worth. What
    could not be run, as all solutions are the evaluator's own or the sandbox failed, keeps the
    paper's reward, as do scorings. No reference answer is read.

    Source: CURE (arXiv 2506.03136), which rewards programs and tests by running each with each, and
    knows which programs are right; that the other tests say so (v) is our choice.

    Example: of agent 0's test both solutions of agent 1 were run: the first passes it and every
    other test, the second none. Then r(e) = 1 - 0 = 1.
    """
    pairs = [(d, s, e) for d in discussions if d.question.domain == "coding" for s, e in _pairs(d)]
    verdicts = run_tests([(s.text, e.text) for _, s, e in pairs])
    runs: dict[str, dict[tuple[str, str], Verdict]] = {d.discussion_id: {} for d in discussions}
    for (d, s, e), verdict in zip(pairs, verdicts, strict=True):
        runs[d.discussion_id][s.turn_id, e.turn_id] = verdict
    passed = [verdict == "correct" for verdict in verdicts if verdict in ("correct", "wrong")]
    paid = interaction_reward(discussions)
    return Rewards(
        [_paid(item, runs[item.discussion.discussion_id]) for item in paid.discussions],
        paid.metrics
        | {"tests/run_rate": len(passed) / len(verdicts) if verdicts else None}
        | {"tests/pass_rate": fmean(passed) if passed else None},
    )


def _pairs(discussion: Discussion) -> list[tuple[Turn, Turn]]:
    """Every solution with every evaluation that somebody else gave in the discussion."""
    said = [turn for turn in discussion.turns if turn.role == "evaluation" and not turn.is_given]
    solutions = discussion.children(None, "solution")
    return [(s, e) for s in solutions for e in said if s.agent_index != e.agent_index]


def _paid(item: RewardedDiscussion, runs: Runs) -> RewardedDiscussion:
    passes = {pair: v == "correct" for pair, v in runs.items() if v in ("correct", "wrong")}
    of_solutions = {s: fmean(p for (t, _), p in passes.items() if t == s) for s, _ in passes}
    of_tests = {e: _worth_of_test(e, passes) for _, e in passes}
    without_test = {e: NO_TEST_REWARD for (_, e), v in runs.items() if v == "unanswered"}
    known = of_solutions | of_tests | without_test
    turns = zip(item.discussion.turns, item.rewards, strict=True)
    rewards = tuple(known.get(turn.turn_id, reward) for turn, reward in turns)
    return RewardedDiscussion(item.discussion, rewards)


def _worth_of_test(test: str, passes: Mapping[tuple[str, str], bool]) -> float:
    """r(e) of an evaluation whose test was run."""
    worth: dict[bool, list[float]] = {True: [], False: []}
    for (solution, _), passed in ((pair, p) for pair, p in passes.items() if pair[1] == test):
        others = [p for (s, e), p in passes.items() if s == solution and e != test]
        worth[passed] += [fmean(others)] if others else []
    return fmean(worth[True]) - fmean(worth[False]) if all(worth.values()) else 0.0
