"""Small run folders, as training writes them, for tests of pages."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.pages.live import LiveRun
from comas.run.pages.server import LiveServer
from comas.types import Discussion, Generation, Question, RewardedDiscussion, Turn, TurnKey

WORDS = ("What", "is", "48", "+", "23", "?", "71", "61", "Right.", "Wrong.", "3", "1", "</s>")
QUESTION = Question("math/17", "math", "What is 48 + 23 ?")


def generation(prompt: str, response: str) -> Generation:
    """A generation with the log-probs -0.25, -0.5, -0.75, ..."""
    prompt_ids = tuple(WORDS.index(word) for word in prompt.split())
    response_ids = tuple(WORDS.index(word) for word in response.split())
    logprobs = tuple(-0.25 * (i + 1) for i in range(len(response_ids)))
    return Generation(prompt_ids, response_ids, response, logprobs, "stop", 1)


def discussion(step, *, answer="71", score="3", question=QUESTION, thinking=""):
    """Agent 0 answers, after ``thinking``; agent 1 evaluates, agent 0 scores."""
    is_approved = score == "3"
    said = replace(generation("What is 48 + 23", answer), thinking_text=thinking)
    solution = Turn("r0.s0", None, 0, "solution", 0, "", said)
    said = generation("Wrong. ?", "Right." if is_approved else "Wrong.")
    evaluation = Turn("r0.s0.e0", "r0.s0", 0, "evaluation", 1, "", said)
    said = Generation((1, 2), (10,), f"<score>{score}</score>", (-0.1,), "stop", 1)
    scoring = Turn("r0.s0.e0.t0", "r0.s0.e0", 0, "scoring", 0, "", said)
    name = f"step{step}/{question.question_id}/copy0"
    whole = Discussion(name, question, (solution, evaluation, scoring))
    return RewardedDiscussion(whole, (1.0, 0.0, 0.0) if is_approved else (0.0, 1.0, 0.0))


def verdicts_of(*items: RewardedDiscussion) -> dict[TurnKey, str]:
    return {
        (item.discussion.discussion_id, turn.turn_id): "correct" if "71" in turn.text else "wrong"
        for item in items
        for turn in item.discussion.turns
        if turn.role == "solution"
    }


def row(step: int) -> dict[str, float | None]:
    """Metrics of a step that the page shows."""
    numbers = random.Random(step)
    per_agent = ("response_length", "policy/entropy", "validation/accuracy", "reward/solution")
    return {
        "train/accuracy": numbers.random(),
        "validation/accuracy": numbers.random(),
        "tokens/prompt": 100,
        "tokens/response": 20,
        "time/rollout_s": 2.0,
        "time/update_s": 1.0,
        "time/sync_s": 0.5,
        "time/step_s": 3.5,
        **{f"agent_{agent}/{key}": numbers.random() for agent in (0, 1) for key in per_agent},
    }


def write_run(saves: Path, name: str, steps: dict[int, list[RewardedDiscussion]], *more: str):
    """Write a run with these discussions, whose solutions have the advantage 1.5 on their first
    token; returns its folder."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = str(saves / "tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(model)
    settings = [f"saves={saves}", f"name={name}", "society.num_agents=2"]
    settings += [f"society.models=[{model}]", *more]
    with RunDirectory.create(load_config(None, settings)) as run:
        run.keep_settings({model: model})
        for step, items in steps.items():
            run.save_discussions(step, items, verdicts=verdicts_of(*items))
            discussions = [item.discussion for item in items]
            advantages = {(d.discussion_id, "r0.s0"): (1.5,) for d in discussions}
            run.save_tokens(step, discussions, advantages=advantages)
            run.log_metrics(step, row(step))
    return run.path


def add_step(directory: RunDirectory, step: int, *, question: Question = QUESTION) -> None:
    """Record a step of a run of four steps."""
    item = discussion(step, question=question)
    directory.note_num_steps(4)
    directory.save_discussions(step, [item], verdicts=verdicts_of(item))
    directory.save_tokens(step, [item.discussion], advantages={})
    directory.log_metrics(step, row(step))


@contextmanager
def served(run: Path) -> Iterator[LiveServer]:
    server = LiveServer([LiveRun(run)])
    thread = threading.Thread(target=server.run, args=([server.socket],))
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()
