"""Every number of ``comas/one-discussion.md``, computed by the functions that the page names.

``golden/one_discussion.json`` holds what was said, as the run's discussion log has it. The page's
tables and fenced blocks are compared line by line with those made here; its prose has no digits.
"""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev, pvariance
from typing import NamedTuple

import pytest
import torch

import comas
from comas.config.keys import keys_of
from comas.config.schema import Config, Interaction
from comas.interaction import open_discussions, parallel
from comas.interaction.criticism import Critics
from comas.interaction.discussion import OpenDiscussion
from comas.metrics.step import accuracy_metrics, rollout_metrics
from comas.policy_optimization.advantages.inputs import AdvantageInputs
from comas.policy_optimization.advantages.reinforce_pp import reinforce_pp, token_returns
from comas.policy_optimization.batching import response_mask
from comas.policy_optimization.losses import StepTotals, clipped_surrogate
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation.interaction_reward import interaction_reward, rewards_of_score
from comas.reward_formulation.score_parsing import parse_score
from comas.run_directory.discussion_log import discussion_record
from comas.seeds import sampling_seed
from comas.types import Discussion, Generation, Question, Turn, TurnKey
from comas.verification.math import verify_math

PAGE = Path(comas.__file__).parent / "one-discussion.md"
GOLDEN = json.loads((Path(__file__).parent / "golden/one_discussion.json").read_text())
SETTINGS, RECORD = GOLDEN["settings"], GOLDEN["discussion"]
SYMBOLS = {
    "society.num_agents": "l",
    "interaction.num_rounds": "m",
    "interaction.num_evaluations": "n",
    "interaction.horizon": "kappa",
    "optimization.discount": "gamma",
    "optimization.kl_coef": "beta",
    "optimization.clip_epsilon": "epsilon",
}
UNREADABLE = "<score>3</score> or rather <score>1</score>"
HYPOTHETICAL_RATIOS = (1.3, 0.7)

Table = list[list[str]]
Contents = tuple[list[Table], list[str]]
"""The tables of a section, and its fenced blocks."""


def replay() -> tuple[Discussion, dict[str, int]]:
    """The discussion and its seeds: the agents say what they said, the code does all the rest."""
    question = Question(RECORD["question_id"], RECORD["domain"], RECORD["question"])
    said = {turn["turn_id"]: turn for turn in RECORD["turns"]}
    seeds: dict[str, int] = {}

    async def repeat(agent_index: int, prompt: str, *, turn: TurnKey, seed: int) -> Generation:
        record = said[turn[1]]
        seeds[turn[1]] = seed
        of_prompt, of_response = record["num_prompt_tokens"], record["num_response_tokens"]
        tokens = ((0,) * of_prompt, (0,) * of_response, record["response"], (0.0,) * of_response)
        return Generation(*tokens, record["finish_reason"], record["policy_version"])

    rules = Interaction(
        **{k.split(".")[1]: v for k, v in SETTINGS.items() if k.startswith("interaction.")}
    )
    [opening] = open_discussions(
        [question], prompt_reuse=1, seed=SETTINGS["seed"], step=GOLDEN["step"]
    )
    # They were dealt over the whole batch, whose other discussions are not recorded.
    critics = {
        tuple(int(index) for index in re.findall(r"\d+", turn_id)): Critics(
            turn["agent"], said[f"{turn_id}.t0"]["agent"]
        )
        for turn_id, turn in said.items()
        if turn["role"] == "evaluation"
    }
    discussion = OpenDiscussion(opening, generate=repeat, rules=rules)
    num_agents = SETTINGS["society.num_agents"]
    discussing = parallel._discuss(discussion, critics, opening.random(), num_agents=num_agents)
    return asyncio.run(discussing), seeds


DISCUSSION, SEEDS = replay()
TURNS = {turn.turn_id: turn for turn in DISCUSSION.turns}
SOLUTIONS = DISCUSSION.children(None, "solution")
REWARDS = interaction_reward([DISCUSSION])
REWARD_OF = dict(zip(TURNS, REWARDS.discussions[0].rewards, strict=True))
VERDICTS = {s.turn_id: verify_math(s.text, GOLDEN["answer"]) for s in SOLUTIONS}
BUFFERS = collect_samples(
    REWARDS.discussions,
    policy_of_agent=range(SETTINGS["society.num_agents"]),
    mask_truncated=True,
)


class Spoken(NamedTuple):
    """A response in its agent's buffer; all its tokens have the same return and advantage."""

    turn: Turn
    num_tokens: int
    reward: float
    of_return: float
    advantage: float


def buffer(agent: int) -> list[Spoken]:
    samples = BUFFERS[agent]
    mask = response_mask(samples)
    inputs = AdvantageInputs(
        rewards=torch.tensor([sample.reward for sample in samples]),
        mask=mask,
        k1=torch.zeros(mask.shape),
        groups=[sample.role for sample in samples],
        discount=SETTINGS["optimization.discount"],
        kl_coef=SETTINGS["optimization.kl_coef"],
    )
    returns, advantages = token_returns(inputs), reinforce_pp(inputs)
    for values in (returns, advantages):
        assert torch.equal(values * mask, values[:, :1] * mask)
    of_responses = zip(
        (turn for turn in DISCUSSION.turns if turn.agent_index == agent),
        mask.sum(dim=1).tolist(),
        (sample.reward for sample in samples),
        returns[:, 0].tolist(),
        advantages[:, 0].tolist(),
        strict=True,
    )
    return [Spoken(*of_response) for of_response in of_responses]


def surrogate(agent: int, ratios: dict[str, float]) -> tuple[float, float, list[float]]:
    """Loss, share of clipped tokens, and each response's derivative by the log-prob of a token;
    the ratio of a turn that is not in ``ratios`` is 1."""
    spoken, mask = buffer(agent), response_mask(BUFFERS[agent])
    rho = torch.tensor([ratios.get(s.turn.turn_id, 1.0) for s in spoken])[:, None]
    logprobs = rho.log().expand(mask.shape).clone().requires_grad_()
    loss, num_clipped, *_ = clipped_surrogate(
        logprobs,
        old_logprobs=torch.zeros(mask.shape),
        advantages=torch.tensor([s.advantage for s in spoken])[:, None] * mask,
        mask=mask,
        clip_epsilon=SETTINGS["optimization.clip_epsilon"],
        aggregation=SETTINGS["optimization.loss_aggregation"],
        totals=StepTotals(
            num_tokens=int(mask.sum()),
            num_samples=len(spoken),
            max_response_tokens=mask.shape[1],
            num_ranks=1,
        ),
    )
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return loss.item(), num_clipped.item() / int(mask.sum()), gradient[:, 0].tolist()


def digits(value: float) -> str:
    """Four decimals, and no minus before a zero."""
    return f"{round(value, 4) + 0.0:.4f}"


def signed(value: float) -> str:
    return f"({digits(value)})" if value < 0 else digits(value)


def code(text: str) -> str:
    return f"`{text}`"


def the_run() -> Contents:
    run, step = GOLDEN["run"], GOLDEN["step"]
    line = GOLDEN["position_in_batch"] + 1
    commands = [
        f"git checkout {run['commit'][:7]}",
        run["command"],
        f"sed -n {line}p saves/latest/discussions/step_{step:04d}.jsonl",
    ]
    head = [f"{code(name.split('.')[-1])} {SYMBOLS.get(name, '')}".strip() for name in SETTINGS]
    return [[head, [str(value) for value in SETTINGS.values()]]], ["\n".join(commands)]


def the_turns() -> Contents:
    head = ["turn", "answers", "role", "agent", "sampling seed", "tokens read, said", "response"]
    rows = [
        [
            turn.turn_id,
            turn.parent_turn_id or "the question",
            turn.role,
            str(turn.agent_index),
            str(SEEDS[turn.turn_id]),
            f"{len(turn.generation.prompt_token_ids)}, {len(turn.generation.response_token_ids)}",
            code(turn.text),
        ]
        for turn in DISCUSSION.turns
    ]
    first = SOLUTIONS[0].turn_id
    parts = (SETTINGS["seed"], GOLDEN["step"], RECORD["question_id"], 0, first)
    call = ", ".join(json.dumps(part) for part in parts)
    assert sampling_seed(*parts) == SEEDS[first]
    return [[head, *rows]], [f">>> sampling_seed({call})\n{sampling_seed(*parts)}"]


def the_prompts() -> Contents:
    solution = SOLUTIONS[0]
    (evaluation,) = DISCUSSION.children(solution, "evaluation")
    (scoring,) = DISCUSSION.children(evaluation, "scoring")
    return [], [solution.prompt, evaluation.prompt, scoring.prompt]


def the_rewards() -> Contents:
    head = ["solution", "in truth", "evaluation", "scoring", "score", "r(s)", "r(e)", "r(t)"]
    rows = []
    for solution in SOLUTIONS:
        (evaluation,) = DISCUSSION.children(solution, "evaluation")
        (scoring,) = DISCUSSION.scorings(solution)
        score = parse_score(scoring.text)
        of_solution, of_evaluation, of_scoring = (
            REWARD_OF[turn.turn_id] for turn in (solution, evaluation, scoring)
        )
        rows.append(
            [
                solution.turn_id,
                VERDICTS[solution.turn_id],
                code(evaluation.text),
                code(scoring.text),
                str(score),
                f"({score} - 1) / 2 = {of_solution:g}",
                f"1 - {of_solution:g} = {of_evaluation:g}",
                f"{of_scoring:g}",
            ]
        )
    unreadable = [code(UNREADABLE), str(parse_score(UNREADABLE))]
    unreadable += [f"{reward:g}" for reward in rewards_of_score(parse_score(UNREADABLE))]
    return [[head, *rows], [["scoring", "score", "r(s)", "r(e)", "r(t)"], unreadable]], []


def the_buffers() -> Contents:
    head = ["agent", "turn", "role", "tokens", "r(o)", "return", "advantage", "derivative"]
    rows = [
        [str(agent), s.turn.turn_id, s.turn.role, str(s.num_tokens)]
        + [f"{value:g}" for value in (s.reward, s.of_return)]
        + [digits(value) for value in (s.advantage, derivative)]
        for agent in range(SETTINGS["society.num_agents"])
        for s, derivative in zip(buffer(agent), surrogate(agent, {})[2], strict=True)
    ]
    return [[head, *rows]], ["\n".join(whitening(buffer(1)))]


def whitening(spoken: list[Spoken]) -> list[str]:
    """Equation 10 by hand, which has to give what the estimator gave."""
    returns = [s.of_return for s in spoken for _ in range(s.num_tokens)]
    size, mean, std = len(returns), fmean(returns), pstdev(returns)
    assert [s.advantage for s in spoken] == pytest.approx(
        [(s.of_return - mean) / std for s in spoken], abs=1e-6
    )
    by_value = [(returns.count(value), value) for value in sorted(set(returns), reverse=True)]
    sum_of_returns = " + ".join(f"{n}*{v:g}" for n, v in by_value)
    squares = " + ".join(f"{n}*({v:g} - {digits(mean)})^2" for n, v in by_value)
    return [
        f"tokens    {' + '.join(str(s.num_tokens) for s in spoken)} = {size}",
        f"mean      ({sum_of_returns}) / {size} = {digits(mean)}",
        f"variance  ({squares}) / {size} = {digits(pvariance(returns))}",
        f"std       {digits(std)}",
        *(
            f"A         ({v:g} - {digits(mean)}) / {digits(std)} = {digits((v - mean) / std)}"
            for _, v in by_value
        ),
    ]


def the_loss() -> Contents:
    epsilon, spoken = SETTINGS["optimization.clip_epsilon"], buffer(1)
    size = sum(s.num_tokens for s in spoken)
    total = " + ".join(f"{s.num_tokens}*{signed(s.advantage)}" for s in spoken)
    head = ["turn", "A", "rho", "rho * A", "clip(rho) * A", "loss", "clipped", "derivative"]
    rows = []
    for index, (turn, length, _, _, a) in enumerate(spoken):
        if turn.role != "solution":
            continue
        for rho in HYPOTHETICAL_RATIOS:
            clip = min(max(rho, 1 - epsilon), 1 + epsilon)
            smaller = min(rho * a, clip * a)
            loss, share, gradient = surrogate(1, {turn.turn_id: rho})
            assert loss == pytest.approx(-length * (smaller - a) / size, abs=1e-6)
            rows.append(
                [turn.turn_id, digits(a), f"{rho:g}"]
                + [f"{ratio:g}*{signed(a)} = {digits(ratio * a)}" for ratio in (rho, clip)]
                + [f"-{length}*({digits(smaller)} - {signed(a)}) / {size} = {digits(loss)}"]
                + [digits(share), digits(gradient[index])]
            )
    return [[head, *rows]], [f"-({total}) / {size} = {digits(surrogate(1, {})[0])}"]


def the_metrics() -> Contents:
    judged = [(DISCUSSION.question.domain, verdict) for verdict in VERDICTS.values()]
    metrics = {
        **rollout_metrics(REWARDS.discussions, num_agents=SETTINGS["society.num_agents"]),
        **REWARDS.metrics,
        **accuracy_metrics("train", judged),
    }
    shown = {name: None if v is None else round(v, 4) for name, v in metrics.items()}
    line = json.dumps({"step": GOLDEN["step"], **shown}, separators=(", ", ":"))
    return [], [textwrap.fill(line, width=112, break_long_words=False)]


SECTIONS: dict[str, Callable[[], Contents]] = {
    f"The question: {RECORD['question']}": the_run,
    "The turns": the_turns,
    "The prompts": the_prompts,
    "Scores and rewards (equations 7 and 8)": the_rewards,
    "The buffers (equations 9 and 10)": the_buffers,
    "The loss of agent 1 (equation 11)": the_loss,
    "The line of metrics": the_metrics,
}


class Page(NamedTuple):
    """The page taken apart."""

    sections: dict[str, Contents]
    prose: str
    """What is neither a table, nor fenced, nor a section's heading."""


def read_page() -> Page:
    parts = re.split(r"^```\w+\n(.*?)\n```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    sections: dict[str, Contents] = {"": ([], [])}
    prose: list[str] = []
    for index, part in enumerate(parts):
        tables, blocks = sections[list(sections)[-1]]
        if index % 2:
            blocks.append(part)
            continue
        is_table = False
        for line in part.splitlines():
            if heading := re.fullmatch("## (.*)", line):
                tables, blocks = sections[heading[1]] = ([], [])
            elif line.startswith("|"):
                if not is_table:
                    tables.append([])
                tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
            else:
                prose.append(line)
            is_table = line.startswith("|")
    return Page(sections, "\n".join(prose))


def ruled(table: Table) -> Table:
    """With the rule of dashes below the head."""
    head, *rows = table
    return [head, ["---"] * len(head), *rows]


def test_the_code_still_makes_of_what_was_said_the_recorded_discussion() -> None:
    verdicts = {(DISCUSSION.discussion_id, turn_id): v for turn_id, v in VERDICTS.items()}
    assert discussion_record(REWARDS.discussions[0], verdicts=verdicts) == RECORD


def test_the_settings_are_keys_of_a_configuration() -> None:
    assert SETTINGS.keys() <= keys_of(Config).keys()


def test_the_page_has_these_sections_in_this_order() -> None:
    assert list(read_page().sections) == ["", *SECTIONS]


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_shows_what_the_code_computes(heading: str) -> None:
    tables, blocks = SECTIONS[heading]()
    assert read_page().sections[heading] == ([ruled(table) for table in tables], blocks)


def test_no_number_stands_where_it_is_not_checked() -> None:
    page = read_page()
    assert page.sections[""] == ([], [])
    assert not re.findall(r".*\d.*", page.prose)


def test_what_the_page_links_is_there() -> None:
    links = re.findall(r"\[`(\w+)`\]\(([\w/.]+)\)", PAGE.read_text())
    assert links
    for name, path in links:
        source = (PAGE.parent / path).read_text()
        assert re.search(rf"^\s*(?:async def |def |class )?{name}\b", source, re.MULTILINE), name
