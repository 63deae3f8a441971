"""Executable evaluations: an evaluator of a program writes a test, and running it pays both."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.types import Discussion, RewardedDiscussion, Rewards, Turn
from comas.verification.forms import Verdict

RunTests = Callable[[Sequence[tuple[str, str]]], list[Verdict]]
"""(response with a program, evaluation with a test) -> correct where the program passes it, failed
where there is no test that can be run, else wrong or unanswered."""
NO_TEST_REWARD = -1.0
Passes = Mapping[tuple[str, str], bool]
"""(turn id of a solution, of an evaluation) -> whether the one passes the test of the other."""


def executable_reward(discussions: Sequence[Discussion], *, run_tests: RunTests) -> Rewards:
    """The paper's rewards outside of coding. In a discussion of a coding question, where e is an
    evaluation that holds a test, with p(s, e) = 1 if s passes it, else 0::

        r(s) = mean of p(s, e) over the evaluations e of other agents
        r(e) = mean of v(s) over the solutions s that pass - mean of v(s) over those that do not
        v(s) = mean of p(s, e') over the other evaluations e' of other agents
        r(e) = -1 when it holds no test that can be run

    Every test is run on all solutions of other agents in the discussion, so nobody tests himself.
    r(e) is 0 where all pass or all fail, or where no other test says what a solution is worth. A
    solution that no test was run on, and an evaluation that has only its own agent's solutions to
    test, keep the paper's reward, as do scorings. No reference answer is read.

    Source: CURE (arXiv 2506.03136), which rewards programs and tests by running each with each, and
    knows which programs are right; that the other tests say so (v) is our choice.

    Example: of agent 0's test both solutions of agent 1 were run: the first passes it and every
    other test, the second none. Then r(e) = 1 - 0 = 1.
    """
    paid = interaction_reward(discussions)
    runs = [(d, s, e) for d in discussions if d.question.domain == "coding" for s, e in _pairs(d)]
    verdicts = run_tests([(s.text, e.text) for _, s, e in runs])
    ran: dict[str, dict[tuple[str, str], Verdict]] = {}
    for (d, s, e), verdict in zip(runs, verdicts, strict=True):
        ran.setdefault(d.discussion_id, {})[s.turn_id, e.turn_id] = verdict
    passed = [verdict == "correct" for verdict in verdicts if verdict != "failed"]
    metrics = {
        "tests/runnable_rate": len(passed) / len(verdicts) if verdicts else None,
        "tests/pass_rate": fmean(passed) if passed else None,
    }
    rewarded = [
        _paid(item, ran.get(item.discussion.discussion_id, {})) for item in paid.discussions
    ]
    return Rewards(rewarded, paid.metrics | metrics)


def _pairs(discussion: Discussion) -> list[tuple[Turn, Turn]]:
    """Every solution with every evaluation that somebody else gave in the discussion."""
    said = [turn for turn in discussion.turns if turn.role == "evaluation" and not turn.is_given]
    solutions = discussion.children(None, "solution")
    return [(s, e) for s in solutions for e in said if s.agent_index != e.agent_index]


def _paid(
    item: RewardedDiscussion, verdicts: Mapping[tuple[str, str], Verdict]
) -> RewardedDiscussion:
    passes = {pair: said == "correct" for pair, said in verdicts.items() if said != "failed"}
    tested = {evaluation for _, evaluation in verdicts}
    rewards: list[float | None] = []
    for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
        of_solution = [passed for (s, _), passed in passes.items() if s == turn.turn_id]
        if turn.role == "solution" and of_solution:
            rewards.append(fmean(of_solution))
        elif turn.turn_id in tested:
            rewards.append(_worth_of_test(turn.turn_id, passes))
        else:
            rewards.append(reward)
    return RewardedDiscussion(item.discussion, tuple(rewards))


def _worth_of_test(test: str, passes: Passes) -> float:
    """r(e) of an evaluation that was to be run."""
    results = {s: passed for (s, e), passed in passes.items() if e == test}
    if not results:
        return NO_TEST_REWARD
    worth = {
        s: [passed for (other, e), passed in passes.items() if other == s and e != test]
        for s in results
    }
    passing, failing = (
        [fmean(worth[s]) for s, passed in results.items() if passed is which and worth[s]]
        for which in (True, False)
    )
    return fmean(passing) - fmean(failing) if passing and failing else 0.0
