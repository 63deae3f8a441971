"""CoMAS in one file: two agents discuss sums, and learn from the scores that they give each other.

    python -m comas.minimal         half a minute on 2 CPU cores

This is the method in plain PyTorch and one process, without any other module of ``comas``. Names
are those of the whole implementation, where vLLM samples, DeepSpeed trains and Ray connects them;
``tests/test_minimal.py`` compares rewards, advantages, losses and gradients. Equations are those of
the paper, arXiv 2510.08529.

The agents start with a bad habit, and with the skills to name it and to check what is named, so
there is something to learn. This world is made up, and says nothing about large models.
"""

import copy
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

NUM_AGENTS, NUM_ROUNDS, HORIZON = 2, 2, 1
"""l, m and kappa in the paper: agents, rounds of a discussion, earlier rounds in the history."""
BATCH_SIZE, NUM_STEPS, NUM_TEACHING_STEPS, SEED = 64, 30, 400, 0
LEARNING_RATE, CLIP_EPSILON, KL_COEF = 5e-4, 0.2, 0.05

# ---------------------------------------------------------------------------- words

PROBLEM, SOLUTION, EVALUATION = "# Problem", "# Solution", "# Evaluation"
ASKED = {"solution": "Solve it:", "evaluation": "Find mistakes:", "scoring": "Score it:"}
"""Role -> the end of its prompts."""
END = "<end>"
STRUCTURE = (PROBLEM, SOLUTION, EVALUATION, *ASKED.values(), END)
"""Words that structure prompts. Trap: agents can say them, and would forge structure if they were
quoted with them, such as an evaluation of their own solution."""
WAYS: dict[str, Callable[[int, int], int]] = {
    "I add:": lambda left, right: left + right,
    "I subtract:": lambda left, right: abs(left - right),
    "I take the first:": lambda left, right: left,
}
"""First word of a solution -> function to the number in its box. Only the first is right."""
APPROVAL = "No mistakes."
ACCUSATIONS = {"I subtract:": "Mistake: subtracted.", "I take the first:": "Mistake: one left out."}
REMARKS = [APPROVAL, *ACCUSATIONS.values()]
SCORES = [f"<score>{score}</score>" for score in (1, 2, 3)]
BOXES = [f"\\boxed{{{number}}}" for number in range(11)]
VOCABULARY = [*STRUCTURE, "+", *map(str, range(6)), *WAYS, *BOXES, *REMARKS, *SCORES]
"""Each word is a token."""
TOKEN_IDS = {word: token_id for token_id, word in enumerate(VOCABULARY)}
MAX_RESPONSE_TOKENS, MAX_TOKENS = 4, 32

Question = tuple[int, int]
"""Two digits to add."""


@dataclass
class Turn:
    """One agent speaking once: its prompt, its response and its reward."""

    role: str
    agent_index: int
    prompt: list[str]
    response: list[str]
    logprobs: list[float]
    """log pi_old of each response token."""
    reward: float = 0.0

    @property
    def is_truncated(self) -> bool:
        """True if the response was cut off by the limit; such a turn is not trained."""
        return self.response[-1] != END

    @property
    def quoted(self) -> list[str]:
        """The response as others read it, without structure."""
        return [word for word in self.response if word not in STRUCTURE]


@dataclass
class Discussion:
    """The turns about one question: in each round a solution, its evaluation and its scoring."""

    question: Question
    turns: list[Turn] = field(default_factory=list)


# ---------------------------------------------------------------------------- the model


class Policy(nn.Module):
    """One agent's weights: a transformer of two layers."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(len(VOCABULARY), width)
        self.places = nn.Embedding(MAX_TOKENS, width)
        layer = nn.TransformerEncoderLayer(
            width, 2, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(width)
        self.body = nn.TransformerEncoder(layer, 2, norm=norm, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(VOCABULARY), bias=False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return log-probs [B, L, V] of the token after each of ``token_ids`` [B, L]."""
        length = token_ids.shape[1]
        hidden = self.words(token_ids) + self.places(torch.arange(length))
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.body(hidden, mask=causal, is_causal=True)).log_softmax(dim=-1)


def padded(texts: Sequence[Sequence[str]]) -> torch.Tensor:
    """Return the token ids [B, L] of texts, padded on the right, which causal attention ignores."""
    rows = [torch.tensor([TOKEN_IDS[word] for word in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=TOKEN_IDS[END])


@torch.no_grad()
def sample(
    policy: Policy, prompts: Sequence[list[str]], *, rng: torch.Generator
) -> list[tuple[list[str], list[float]]]:
    """Sample a response to each prompt; return its words and their log-probs."""
    said: list[tuple[list[str], list[float]]] = [([], []) for _ in prompts]
    for _ in range(MAX_RESPONSE_TOKENS):
        going = [i for i, (words, _) in enumerate(said) if not words or words[-1] != END]
        if not going:
            break
        texts = [prompts[i] + said[i][0] for i in going]
        last = torch.tensor([len(text) - 1 for text in texts])
        logprobs = policy(padded(texts))[torch.arange(len(texts)), last]
        drawn = torch.multinomial(logprobs.exp(), 1, generator=rng)[:, 0]
        for i, row, token_id in zip(going, logprobs, drawn.tolist(), strict=True):
            said[i][0].append(VOCABULARY[token_id])
            said[i][1].append(row[token_id].item())
    return said


# ---------------------------------------------------------------------------- the method


def prompt_of(role: str, discussion: Discussion, *, horizon: int = HORIZON) -> list[str]:
    """Return the prompt of the next speaker of a discussion (section 3 of the paper).

    A solution is s = u(q, h_q), an evaluation e = u(q, h_q, s), a scoring t = u(q, s, e). Scorings
    do not see the history h_q, and are not part of it.
    """
    left, right = discussion.question
    prompt = [PROBLEM, str(left), "+", str(right)]
    num_finished = len(discussion.turns) // 3 * 3
    past, now = discussion.turns[:num_finished], discussion.turns[num_finished:]
    if role != "scoring":
        for start in range(max(0, len(past) - 3 * horizon), len(past), 3):
            prompt += [SOLUTION, *past[start].quoted, EVALUATION, *past[start + 1].quoted]
    for mark, turn in zip((SOLUTION, EVALUATION), now, strict=False):
        prompt += [mark, *turn.quoted]
    return [*prompt, ASKED[role]]


def draw_speakers(rng: random.Random, *, num_agents: int, num_rounds: int) -> list[list[int]]:
    """Draw [solver, evaluator, scorer] of each round uniformly."""
    return [[rng.randrange(num_agents) for _ in ASKED] for _ in range(num_rounds)]


def discuss(
    questions: Sequence[Question], policies: Sequence[Policy], *, step: int
) -> list[Discussion]:
    """Discuss a batch of questions for ``NUM_ROUNDS`` rounds of a solution, an evaluation and a
    scoring; all discussions take the same turn at once."""
    discussions = [Discussion(question) for question in questions]
    seeds = [random.Random(f"{SEED}/{step}/{place}") for place in range(len(questions))]
    sizes = {"num_agents": NUM_AGENTS, "num_rounds": NUM_ROUNDS}
    speakers = [draw_speakers(seed, **sizes) for seed in seeds]
    rng = torch.Generator().manual_seed(SEED * 1_000_003 + step)
    for round_index in range(NUM_ROUNDS):
        for place, role in enumerate(ASKED):
            for agent, policy in enumerate(policies):
                drawn = [speaker[round_index][place] for speaker in speakers]
                asked = [d for d, who in zip(discussions, drawn, strict=True) if who == agent]
                prompts = [prompt_of(role, discussion) for discussion in asked]
                answers = sample(policy, prompts, rng=rng)
                for discussion, prompt, answer in zip(asked, prompts, answers, strict=True):
                    discussion.turns.append(Turn(role, agent, prompt, *answer))
    return discussions


def parse_score(text: str) -> int | None:
    """Return the score 1, 2 or 3 in a scoring; None if there is none or several that differ."""
    scores = set(re.findall(r"<score>(.*?)</score>", text))
    return int(scores.pop()) if len(scores) == 1 and scores <= {"1", "2", "3"} else None


def reward(discussion: Discussion) -> None:
    """Reward every turn by the extracted score alone (equations 7 and 8)::

        r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
        r(s) = 0                    r(e) = 0             r(t) = -1      without a score

    The right answer plays no part: solver and evaluator share one point as the scorer decides.
    """
    turns = iter(discussion.turns)
    for solution, evaluation, scoring in zip(turns, turns, turns, strict=True):
        score = parse_score(" ".join(scoring.response))
        if score is None:
            solution.reward, evaluation.reward, scoring.reward = 0.0, 0.0, -1.0
        else:
            solution.reward = (score - 1) / 2
            evaluation.reward, scoring.reward = 1.0 - solution.reward, 0.0


def response_logprobs(policy: Policy, buffer: Sequence[Turn]) -> torch.Tensor:
    """Return log pi of each response token [N, T], 0 for padding."""
    logprobs = policy(padded([turn.prompt + turn.response for turn in buffer]))
    rows = []
    for row, turn in zip(logprobs, buffer, strict=True):
        first, num_tokens = len(turn.prompt) - 1, len(turn.response)  # logits predict the next one
        token_ids = torch.tensor([TOKEN_IDS[word] for word in turn.response])
        rows.append(row[first : first + num_tokens].gather(1, token_ids[:, None])[:, 0])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def rollout_logprobs(buffer: Sequence[Turn]) -> torch.Tensor:
    """Return log pi_old of each response token [N, T], as sampled, 0 for padding."""
    rows = [torch.tensor(turn.logprobs) for turn in buffer]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def response_mask(buffer: Sequence[Turn]) -> torch.Tensor:
    """Return the mask [N, T] of response tokens (True)."""
    lengths = torch.tensor([len(turn.response) for turn in buffer])
    return torch.arange(int(lengths.max())) < lengths[:, None]


def advantages(
    rewards: torch.Tensor, log_ratios: torch.Tensor, mask: torch.Tensor, *, kl_coef: float = KL_COEF
) -> torch.Tensor:
    """Return the advantages [N, T] of REINFORCE++, from rewards [N] and log(pi_theta / pi_ref)
    [N, T]: the returns of equation 9 with discount 1::

        A_t = r(o) - beta * sum_{u >= t} log(pi_theta / pi_ref)_u

    normalised over all response tokens of the agent's buffer (equation 10).
    """
    penalties = (log_ratios * mask).flip(1).cumsum(1).flip(1)
    returns = rewards[:, None] - kl_coef * penalties
    values = returns[mask].double()
    deviation = values.var(unbiased=False).clamp(min=1e-8).sqrt()
    return ((returns - values.mean()) / deviation * mask).float()


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Return the clipped surrogate loss (equation 11), the mean over all response tokens of::

    -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)        rho = pi_theta / pi_old
    """
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - CLIP_EPSILON, 1 + CLIP_EPSILON)
    return -torch.minimum(ratio * advantages, clipped * advantages)[mask].mean()


def co_evolve(
    policies: Sequence[Policy], questions: Sequence[Question]
) -> Iterator[list[Discussion]]:
    """Run CoMAS: discuss, reward, and update each agent on its buffer D_k, which is everything that
    it said in any role. Yields each step's discussions."""
    reference = copy.deepcopy(policies[0])  # all agents start as the same model
    adamw = partial(torch.optim.AdamW, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    optimizers = [adamw(policy.parameters()) for policy in policies]
    for step in range(1, NUM_STEPS + 1):
        batch = random.Random(f"{SEED}/{step}").choices(questions, k=BATCH_SIZE)
        discussions = discuss(batch, policies, step=step)
        for discussion in discussions:
            reward(discussion)
        said = [turn for discussion in discussions for turn in discussion.turns]
        for agent, (policy, optimizer) in enumerate(zip(policies, optimizers, strict=True)):
            buffer = [turn for turn in said if turn.agent_index == agent and not turn.is_truncated]
            mask, logprobs = response_mask(buffer), response_logprobs(policy, buffer)
            rewards = torch.tensor([turn.reward for turn in buffer])
            with torch.no_grad():
                log_ratios = logprobs - response_logprobs(reference, buffer)
            gains = advantages(rewards, log_ratios, mask)
            loss = clipped_surrogate(logprobs, rollout_logprobs(buffer), gains, mask)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        yield discussions


# ---------------------------------------------------------------------------- the world

HABITS = {"I add:": 0.3, "I subtract:": 0.55, "I take the first:": 0.15}
"""How often an untrained agent chooses each way: what there is to unlearn."""
SLIPS = 0.1
"""Share of evaluations and scorings that say anything at all."""


def demonstration(rng: random.Random) -> Turn:
    """Make up a turn of a discussion, from which a model learns to speak. Critics see solutions and
    evaluations that are right or wrong equally often; an evaluator names the mistake, and a scorer
    checks accusations and believes approvals."""
    discussion = Discussion((rng.randrange(6), rng.randrange(6)))
    for _ in range(rng.choice((1, 2))):
        way, remark = rng.choice(list(WAYS)), rng.choice(REMARKS)
        verdict = SCORES[0] if remark == ACCUSATIONS.get(way) else SCORES[2]
        verdict = rng.choice(SCORES) if rng.random() < SLIPS else verdict
        solution = [way, BOXES[WAYS[way](*discussion.question)]]
        for role, response in zip(ASKED, (solution, [remark], [verdict]), strict=True):
            prompt = prompt_of(role, discussion)
            discussion.turns.append(Turn(role, 0, prompt, [*response, END], []))
    turn = rng.choice(discussion.turns[-3:])
    if turn.role == "solution":
        [way] = rng.choices(list(HABITS), list(HABITS.values()))
        turn.response = [way, BOXES[WAYS[way](*discussion.question)], END]
    elif turn.role == "evaluation":
        slips = rng.random() < SLIPS
        turn.response = [rng.choice(REMARKS) if slips else ACCUSATIONS.get(way, APPROVAL), END]
    return turn


def teach() -> Policy:
    """Teach a model to speak with these habits, by next-token prediction."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(NUM_TEACHING_STEPS):
        buffer = [demonstration(rng) for _ in range(64)]
        loss = -response_logprobs(policy, buffer)[response_mask(buffer)].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


def accuracy(policies: Sequence[Policy], questions: Sequence[Question]) -> float:
    """Return the share of right answers when agents answer alone, ten times each question."""
    asked = [*questions] * 10
    prompts = [prompt_of("solution", Discussion(question)) for question in asked]
    rng = torch.Generator().manual_seed(0)
    right = [
        [word for word in words if word in BOXES][-1:] == [BOXES[sum(question)]]
        for policy in policies
        for question, (words, _) in zip(asked, sample(policy, prompts, rng=rng), strict=True)
    ]
    return sum(right) / len(right)


def main() -> None:
    """Teach a model, let two copies co-evolve, and report."""
    pairs = [(left, right) for left in range(6) for right in range(1, 6)]
    random.Random(SEED).shuffle(pairs)
    held_out, questions = pairs[:10], pairs[10:]
    print("teaching a tiny model to discuss sums, with bad habits ...")
    taught = teach()
    policies = [copy.deepcopy(taught) for _ in range(NUM_AGENTS)]
    print(f"step  0  held-out accuracy {accuracy(policies, held_out):.2f}")
    for step, discussions in enumerate(co_evolve(policies, questions), start=1):
        last = discussions[-1]
        if step % 5 == 0:
            print(f"step {step:2}  held-out accuracy {accuracy(policies, held_out):.2f}")
    print("the last discussion: what each agent read and said, and its reward")
    for turn in last.turns:
        said = " ".join([*turn.prompt, "->", *turn.response])
        print(f"  agent {turn.agent_index}  {turn.reward:+.1f}  {said}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
