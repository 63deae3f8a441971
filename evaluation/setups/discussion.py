"""Discussion: CoMAS at inference, answering with the solution of the highest score.

Prompts are the shipped ones (``comas.interaction``), schedule and rounds those of the released
code: in each of 2 rounds every agent solves, every solution is evaluated by one agent, and the
evaluation scored by another draw (6 l calls per task for l agents).
"""

from random import Random
from statistics import fmean

from comas.config.schema import Interaction
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.held import outcome_of
from comas.interaction.schedules import hold
from comas.interaction.setup_prompts import user
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Chat, Discussion, FinishReason, Generation, Question, Request, Turn
from comas.utils.client import RefusedPromptError, RequestError
from evaluation.types import Ask, BenchmarkTask, Setup

NUM_AGENTS_OF_ONE_MODEL = 4
"""As in the paper; the agents of a society discuss among themselves."""

RULES = Interaction(schedule="parallel", num_rounds=2, num_evaluations=1, horizon=2)


async def answer(
    task: BenchmarkTask,
    ask: Ask,
    *,
    rules: Interaction = RULES,
    num_agents: int = NUM_AGENTS_OF_ONE_MODEL,
) -> str:
    """Discuss the task by ``rules``, with ``num_agents`` if there is one model; return the best
    solution. Raises RequestError where a program fails."""
    num_agents = ask.num_models if ask.num_models > 1 else num_agents

    async def generate(request: Request) -> Generation | None:
        chat = request.chat or Chat([user(request.prompt)])
        try:
            call = await ask.answer(chat, label=request.turn[1], speaker=request.agent_index)
        except RefusedPromptError:
            return None
        # Without training, only the text is known, and how many tokens there are.
        tokens = range(call.prompt_tokens), range(call.completion_tokens)
        ended: FinishReason = "length" if call.finish_reason == "length" else "stop"
        return Generation(*tokens, call.response, (), ended, policy_version=0)

    opened = OpenDiscussion(
        # The prompts ask for the form of the answer themselves.
        Question(task.task_id, task.form, task.question),
        discussion_id=task.task_id,
        seed_text=task.task_id,
        rules=rules,
        generate=generate,
    )
    # Who evaluates and scores whom depends on the task, not on the seed.
    rng = Random(task.task_id)
    [discussion] = await hold([opened], num_agents=num_agents, rules=rules, rng=rng)
    if (outcome := outcome_of(discussion)) is not None and outcome.error:
        raise RequestError(f"the program failed: {outcome.error}")
    wants_scores = outcome is None and rules.criticism == "scored"
    is_scored = any(turn.role == "scoring" for turn in discussion.turns)
    if wants_scores and discussion.num_overlong_prompts and not is_scored:
        raise RefusedPromptError("no solution was scored: those prompts are too long, or refused")
    return best_solution(discussion)


def best_solution(discussion: Discussion) -> str:
    """Return the solution with the highest mean valid score (0 without any).

    Ties go to the latest round, whose solutions were written knowing the others, then to the first
    solution. Raises RefusedPromptError when there is no solution.
    """
    solutions = discussion.solutions()
    if not solutions:
        raise RefusedPromptError("the question is too long, or refused, even without history")

    def rank(solution: Turn) -> tuple[float, int]:
        parsed = [parse_score(scoring.text) for scoring in discussion.scorings(solution)]
        scores = [score for score in parsed if score is not None]
        return fmean(scores) if scores else 0.0, solution.round_index

    return max(solutions, key=rank).text


DISCUSSION = Setup(answer, num_speakers=NUM_AGENTS_OF_ONE_MODEL)
