"""The discussions of a run as threads of the page, and their prompts and responses by token."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from comas.config.schema import Config
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.run.checkpoints import steps_in
from comas.run.metrics.reward_effectiveness import PREDICTS_CORRECT
from comas.run.pages.page import Details, PageTurn, Thread
from comas.run.records import DISCUSSIONS, TOKENS, Record, parse, read_tokens
from comas.run.seals import read_inputs
from comas.utils.files import FileError, read_lines
from comas.utils.model_folder import description_of
from comas.verification.science import RELATIVE_TOLERANCE, is_exact

APPROVALS, ACCUSATIONS = (3, "correct"), (1, "incorrect")
"""Scores, or judgments if nobody scores."""
UNREADABLE = "unreadable"
"""Sign in place of a missing score."""

MAX_FEATURED = 5
"""Discussions in which rewards and verdicts disagree that a report shows."""
NEAR = f"within {RELATIVE_TOLERANCE * 100:g} %"
"""Sign of a solution that is correct only within the tolerance for decimal numbers."""


def discussion_files(run: Path) -> dict[int, Path]:
    """Return step -> file of its discussions, in order."""
    return dict(steps_in(run / DISCUSSIONS))


def read_threads(step: int, path: Path) -> list[Thread]:
    records = read_lines(path, parse, remedy="Delete the line to see the others")
    try:
        # Of the step, not of each discussion, whose scorings may all have been left out.
        is_scored = any("score" in turn for record in records for turn in record["turns"])
        return [thread_of(record, step=step, is_scored=is_scored) for record in records]
    except (LookupError, TypeError) as error:
        raise FileError(f"{path} is of another version ({error!r}): move it away") from error


def thread_of(record: Record, *, step: int, is_scored: bool = True) -> Thread:
    """Convert the record of a discussion. If it ``is_scored``, only scorings decide; otherwise the
    judgments or ratings in its evaluations. A program's requests stand in their order, side by
    side."""
    program = record.get("program", {})
    asked = program.get("asked", {})
    places = {turn_id: place for place, turn_id in enumerate(asked)}
    turns: Sequence[Record] = sorted(
        record["turns"], key=lambda turn: places.get(turn["turn_id"], len(places))
    )
    roles = {} if is_scored else record.get("roles", {}) | {"evaluation": "judges"}
    judgments = {t["turn_id"] for t in turns if roles.get(t["role"]) == "judges"} - {*asked}
    scores = {t["turn_id"]: _own_score(t, is_judgment=t["turn_id"] in judgments) for t in turns}
    verdicts = {turn["turn_id"]: turn["verdict"] for turn in turns if "verdict" in turn}

    def page_turn(turn: Record) -> PageTurn:
        this = about = turn["turn_id"]
        while about and about not in verdicts:  # ``r0.s1.e0.t0`` is about ``r0.s1``
            about = about.rpartition(".")[0]
        verdict = verdicts.get(about)
        below = (score for name, score in scores.items() if f"{name}.".startswith(f"{this}."))
        return PageTurn(
            id=this,
            parent=None if this in (*asked, program.get("answer")) else turn["parent_turn_id"],
            role=turn["role"],
            agent=turn["agent"],
            round=None if this in asked else turn["round"],
            text=turn["response"],
            reward=turn["reward"],
            verdict=verdict,
            scores=tuple(score for score in below if score is not None),
            finish=turn["finish_reason"],
            num_prompt_tokens=turn["num_prompt_tokens"],
            num_response_tokens=turn["num_response_tokens"],
            thinking=turn.get("thinking", ""),
            signs=_signs(turn, verdict, decided=scores[this], record=record),
            is_solution="verdict" in turn,
            asked=asked.get(this),
        )

    ended = {name: program.get(name) for name in ("answer", "returned", "error")}
    how = "failed" if ended["error"] else "answered"
    return Thread(
        id=record["discussion_id"],
        step=step,
        question_key=record["question"],
        question=record["question"],
        domain=record["domain"],
        labels={"program": f"program {how}"} if program else {},
        chunk=str(step),
        turns=tuple(map(page_turn, turns)),
        gold=record.get("gold", ""),
        program=ended if program else None,
    )


def disagreements(run: Path) -> list[Thread]:
    """Return the latest discussions in which the reward of a solution contradicts its verdict, at
    most one per question."""
    found: dict[str, Thread] = {}
    for step, path in reversed(discussion_files(run).items()):
        for thread in read_threads(step, path):
            if any(map(_is_contradicted, thread.turns)):
                found.setdefault(thread.question_key, thread)
        if len(found) >= MAX_FEATURED:
            break
    return list(found.values())[:MAX_FEATURED]


def _is_contradicted(turn: PageTurn) -> bool:
    if not turn.is_solution or turn.reward is None or turn.verdict not in ("correct", "wrong"):
        return False
    return (turn.reward >= min(PREDICTS_CORRECT.values())) != (turn.verdict == "correct")


def _own_score(turn: Record, *, is_judgment: bool) -> int | str | None:
    """Return a turn's score, judgment or rating; None if it decides nothing."""
    if "score" in turn:
        return turn["score"] or UNREADABLE
    if is_judgment:
        rating = parse_rating(turn["response"])  # shown as "4 of 5", unlike a score of 1 to 3
        decided = parse_judgment(turn["response"]) if rating is None else f"{rating} of 5"
        return decided or UNREADABLE
    return None


def _signs(
    turn: Record, verdict: str | None, *, decided: int | str | None, record: Record
) -> tuple[str, ...]:
    """Return the signs of a turn of the discussion ``record``, by which readers filter."""
    is_unanswered = turn.get("verdict") == "unanswered"
    is_near = verdict == "correct" and record["domain"] == "science" and "verdict" in turn
    signs = {
        NEAR: is_near and not is_exact(turn["response"], record.get("gold", "")),
        "approved though wrong": decided in APPROVALS and verdict in ("wrong", "unanswered"),
        "accused though right": decided in ACCUSATIONS and verdict == "correct",
        "unparsable": decided == UNREADABLE or is_unanswered,
        "truncated": turn["finish_reason"] == "length",
        "special tokens": turn.get("spells_mark", False),
    }
    return tuple(sign for sign, holds in signs.items() if holds)


def read_details(
    run: Path, config: Config, threads: Iterable[Thread], *, steps: Iterable[int] | None = None
) -> dict[str, Details]:
    """Return the prompts and tokens of ``threads`` by step, read from ``tokens/`` for ``steps``
    (None: all), as far as the run wrote them.

    Raises ValueError when an agent's tokenizer is gone.
    """
    records = read_tokens(run / TOKENS, steps=steps)
    locations = read_inputs(run)
    bases = [config.models[policy] for policy in config.policy_of_agent]

    def tokenizer(agent: int) -> Any:
        """Load the tokenizer of the saved agent, or else of its base model."""
        saved = run / "models" / f"agent_{agent}"
        base = locations.get(bases[agent], bases[agent])
        return _load_tokenizer(saved if saved.is_dir() else description_of(base))

    @cache
    def text_of(agent: int, token_id: int) -> str:
        return str(tokenizer(agent).decode([token_id]))

    chunks: dict[str, Details] = {}
    for thread in threads:
        for turn in thread.turns:
            record = records.get((thread.id, turn.id), {})
            if turn.agent is None or "response_token_ids" not in record:
                continue
            chunks.setdefault(thread.chunk, {}).setdefault(thread.id, {})[turn.id] = {
                "prompt": tokenizer(turn.agent).decode(record["prompt_token_ids"]),
                "tokens": [text_of(turn.agent, each) for each in record["response_token_ids"]],
                **{name: record[name] for name in ("logprobs", "advantages") if name in record},
            }
    return chunks


@cache
def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # takes seconds

    return AutoTokenizer.from_pretrained(folder)
