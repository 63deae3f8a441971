"""Who is asked what under which seed stays the same, to the last digit, while code moves.

``golden/discussions.json`` holds what they were at the last change that was meant to draw or ask
differently. The next one records it anew, and says so.
"""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from comas.config.schema import Interaction
from comas.interaction.schedules import run_discussions
from comas.run.validation import answer_alone
from comas.types import Generation, Question, Request
from comas.utils.seeds import sampling_seed
from evaluation.setups.discussion import answer
from evaluation.types import BenchmarkTask, Call

GOLDEN = json.loads((Path(__file__).parent / "golden/discussions.json").read_text())
QUESTIONS = [
    Question("sums/1", "math", "What is 48 + 23?"),
    Question("code/2", "coding", "Write last()."),
]


def fingerprint(prompt: str) -> str:
    return hashlib.blake2b(prompt.encode(), digest_size=6).hexdigest()


async def say_the_seed(request: Request) -> Generation:
    """So later prompts, which quote it, depend on the seeds as well."""
    text = f"agent {request.agent_index} says {request.seed}"
    return Generation((1,), (2,), text, (-0.5,), "stop", policy_version=0)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_both_schedules_ask_as_they_always_did(schedule):
    rules = Interaction(
        schedule=schedule, num_rounds=3, num_evaluations=2, horizon=2, prompt_reuse=2
    )
    discussions = run_discussions(
        QUESTIONS, generate=say_the_seed, num_agents=3, rules=rules, seed=7, step=5
    )
    assert GOLDEN[schedule] == {
        d.discussion_id: [
            f"{t.turn_id} agent {t.agent_index} seed {t.text.rpartition(' ')[2]} "
            f"prompt {fingerprint(t.prompt)}"
            for t in d.turns
        ]
        for d in discussions
    }


def test_validation_samples_under_the_seeds_it_always_had():
    answers = asyncio.run(answer_alone(QUESTIONS, generate=say_the_seed, num_agents=2, seed=7))
    assert answers == [text for of_agent in GOLDEN["validation"] for text in of_agent]


def test_the_evaluation_asks_as_it_always_did():
    task = BenchmarkTask("gsm8k/17", "math", "What is 48 + 23?", "What is 48 + 23? Box it.", "71")
    calls = []

    class Ask:
        num_models = 3

        async def answer(self, chat, *, label, speaker):
            calls.append(f"{label} by {speaker} prompt {fingerprint(chat.messages[0]['content'])}")
            said = f"{label} of {speaker} <score>{1 + len(label) % 3}</score>"
            return Call(label, speaker, (), said, "stop", 1, 1)

    assert asyncio.run(answer(task, Ask())) == GOLDEN["evaluation"]["response"]
    assert sorted(calls) == sorted(GOLDEN["evaluation"]["calls"])
    assert sampling_seed(3, "gsm8k/17", "sample 2") == GOLDEN["evaluation"]["seed of sample 2"]
