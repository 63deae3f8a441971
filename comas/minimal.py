"""CoMAS in one file: two agents discuss sums, and learn from the scores that they give each other.

    python -m comas.minimal         some seconds on a CPU

This is the method without the machinery: plain PyTorch in one process, and no other module of
``comas``. The names are those of the whole implementation, where vLLM samples, DeepSpeed trains
and Ray connects the two; ``tests/test_minimal.py`` compares their rewards, advantages, losses and
gradients. Equations are those of the paper, arXiv 2510.08529.

The agents are taught to speak with a bad habit, to name it and to check what is named, so that
there is something to learn; this world is made up, and says nothing about large models.
"""

import copy
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

# ---------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Settings:
    """One training run; in brackets the paper's symbols."""

    num_agents: int = 2
    """Agents [l], each with weights of its own."""
    num_rounds: int = 2
    """Rounds of a discussion [m], each of one solution with one evaluation and its scoring."""
    horizon: int = 1
    """Earlier rounds that solver and evaluator are shown [kappa]."""
    batch_size: int = 64
    """Discussions per step."""
    num_steps: int = 30
    learning_rate: float = 5e-4
    clip_epsilon: float = 0.2
    """Bounds of the probability ratio [epsilon]."""
    kl_coef: float = 0.05
    """Weight of the KL penalty [beta]."""
    num_teaching_steps: int = 400
    seed: int = 0


# ---------------------------------------------------------------------------- words

PROBLEM, SOLUTION, EVALUATION = "# Problem", "# Solution", "# Evaluation"
ASKED = {"solution": "Solve it:", "evaluation": "Find mistakes:", "scoring": "Score it:"}
"""How a prompt ends, by the role that is asked."""
END = "<end>"
STRUCTURE = (PROBLEM, SOLUTION, EVALUATION, *ASKED.values(), END)
"""Words of which prompts are built. Trap: an agent can say them, and one that is quoted with them
would write a prompt's structure, such as an evaluation of its own solution."""

WAYS: dict[str, Callable[[int, int], int]] = {
    "I add:": lambda left, right: left + right,
    "I subtract:": lambda left, right: abs(left - right),
    "I take the first:": lambda left, right: left,
}
"""What a solution begins with, and what then is in its box. Only the first way is right."""
APPROVAL = "No mistakes."
ACCUSATIONS = {"I subtract:": "Mistake: subtracted.", "I take the first:": "Mistake: one left out."}
"""What there is to be said of the wrong ways."""
REMARKS = [APPROVAL, *ACCUSATIONS.values()]
SCORES = [f"<score>{score}</score>" for score in (1, 2, 3)]
DIGITS = [str(digit) for digit in range(6)]
BOXES = [f"\\boxed{{{number}}}" for number in range(11)]
VOCABULARY = [*STRUCTURE, "+", *DIGITS, *WAYS, *BOXES, *REMARKS, *SCORES]
"""A word is a token."""
TOKEN_IDS = {word: token_id for token_id, word in enumerate(VOCABULARY)}

MAX_RESPONSE_TOKENS = 4
MAX_TOKENS = 32

Question = tuple[int, int]
"""Two digits to be added."""


@dataclass
class Turn:
    """One agent speaking once: what it read, what it said, and what it gets for it."""

    role: str
    agent_index: int
    prompt: list[str]
    response: list[str]
    logprobs: list[float]
    """log pi_old of each response token."""
    reward: float = 0.0

    @property
    def is_truncated(self) -> bool:
        """Whether the response reached its limit before its end; such a turn is not trained."""
        return self.response[-1] != END

    @property
    def quoted(self) -> list[str]:
        """What others read of it: words, never structure."""
        return [word for word in self.response if word not in STRUCTURE]


@dataclass
class Discussion:
    """Everything said about one question: in each round a solution, its evaluation, its scoring."""

    question: Question
    turns: list[Turn] = field(default_factory=list)

    def rounds(self) -> list[tuple[Turn, Turn, Turn]]:
        """(solution, evaluation, scoring) of each round so far."""
        return list(zip(self.turns[0::3], self.turns[1::3], self.turns[2::3], strict=True))


# ---------------------------------------------------------------------------- the model


class Policy(nn.Module):
    """A transformer of two layers: one agent's weights."""

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
        """Log-probs [B, L, V] of the token after each of ``token_ids`` [B, L]."""
        length = token_ids.shape[1]
        hidden = self.words(token_ids) + self.places(torch.arange(length))
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.body(hidden, mask=causal, is_causal=True)).log_softmax(dim=-1)


def padded(texts: Sequence[Sequence[str]]) -> torch.Tensor:
    """Token ids [B, L] of texts, filled up on the right, where no earlier token sees it."""
    rows = [torch.tensor([TOKEN_IDS[word] for word in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=TOKEN_IDS[END])


@torch.no_grad()
def sample(
    policy: Policy, prompts: Sequence[list[str]], *, rng: torch.Generator, is_greedy: bool = False
) -> list[tuple[list[str], list[float]]]:
    """A response to each prompt, with the log-prob of each of its tokens."""
    said: list[tuple[list[str], list[float]]] = [([], []) for _ in prompts]
    for _ in range(MAX_RESPONSE_TOKENS):
        going = [i for i, (words, _) in enumerate(said) if not words or words[-1] != END]
        if not going:
            break
        texts = [prompts[i] + said[i][0] for i in going]
        last = torch.tensor([len(text) - 1 for text in texts])
        logprobs = policy(padded(texts))[torch.arange(len(texts)), last]
        drawn = torch.multinomial(logprobs.exp(), 1, generator=rng)[:, 0]
        chosen = logprobs.argmax(dim=1) if is_greedy else drawn
        for i, row, token_id in zip(going, logprobs, chosen.tolist(), strict=True):
            said[i][0].append(VOCABULARY[token_id])
            said[i][1].append(row[token_id].item())
    return said


# ---------------------------------------------------------------------------- the discussion


def prompt_of(role: str, discussion: Discussion, *, horizon: int) -> list[str]:
    """What the next speaker of a discussion reads (section 3 of the paper).

    A solution is s = u(q, h_q), an evaluation e = u(q, h_q, s), a scoring t = u(q, s, e): it sees
    no history h_q, and never becomes part of it.
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
    """[solver, evaluator, scorer] of each round, all drawn uniformly before anybody speaks."""
    return [[rng.randrange(num_agents) for _ in ASKED] for _ in range(num_rounds)]


def discuss(
    questions: Sequence[Question], policies: Sequence[Policy], settings: Settings, *, step: int
) -> list[Discussion]:
    """Discuss every question of a batch: ``num_rounds`` times a solution, an evaluation of it, and
    a scoring of that; all discussions take the same turn at once."""
    discussions = [Discussion(question) for question in questions]
    speakers = [
        draw_speakers(
            random.Random(f"{settings.seed}/{step}/{place}"),
            num_agents=settings.num_agents,
            num_rounds=settings.num_rounds,
        )
        for place in range(len(questions))
    ]
    rng = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    for round_index in range(settings.num_rounds):
        for place, role in enumerate(ASKED):
            asked = [drawn[round_index][place] for drawn in speakers]
            ask_all(role, discussions, asked, policies, horizon=settings.horizon, rng=rng)
    return discussions


def ask_all(
    role: str,
    discussions: Sequence[Discussion],
    speakers: Sequence[int],
    policies: Sequence[Policy],
    *,
    horizon: int,
    rng: torch.Generator,
) -> None:
    """Add one turn of ``role`` to each discussion, by the agent that ``speakers`` names for it."""
    for agent_index, policy in enumerate(policies):
        own = [one for one, i in zip(discussions, speakers, strict=True) if i == agent_index]
        prompts = [prompt_of(role, discussion, horizon=horizon) for discussion in own]
        answers = sample(policy, prompts, rng=rng)
        for discussion, prompt, (response, logprobs) in zip(own, prompts, answers, strict=True):
            discussion.turns.append(Turn(role, agent_index, prompt, response, logprobs))


# ---------------------------------------------------------------------------- the rewards


def parse_score(text: str) -> int | None:
    """The score 1, 2 or 3 in a scoring; None where it holds none, or several that differ."""
    scores = set(re.findall(r"<score>(.*?)</score>", text))
    return int(scores.pop()) if len(scores) == 1 and scores <= {"1", "2", "3"} else None


def reward(discussion: Discussion) -> None:
    """Give every turn its reward, from the extracted score alone (equations 7 and 8)::

        r(s) = (score - 1) / 2      r(e) = 1 - r(s)      r(t) = 0
        r(s) = 0                    r(e) = 0             r(t) = -1      without a score

    Nobody looks at the right answer: solver and evaluator divide one point as the scorer says.
    """
    for solution, evaluation, scoring in discussion.rounds():
        score = parse_score(" ".join(scoring.response))
        if score is None:
            solution.reward, evaluation.reward, scoring.reward = 0.0, 0.0, -1.0
        else:
            solution.reward = (score - 1) / 2
            evaluation.reward, scoring.reward = 1.0 - solution.reward, 0.0


# ---------------------------------------------------------------------------- the update


def response_logprobs(policy: Policy, buffer: Sequence[Turn]) -> torch.Tensor:
    """log pi of each response token [N, T], 0 where padded."""
    logprobs = policy(padded([turn.prompt + turn.response for turn in buffer]))
    rows = []
    for row, turn in zip(logprobs, buffer, strict=True):
        first, num_tokens = len(turn.prompt) - 1, len(turn.response)  # logits predict the next one
        token_ids = torch.tensor([TOKEN_IDS[word] for word in turn.response])
        rows.append(row[first : first + num_tokens].gather(1, token_ids[:, None])[:, 0])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def rollout_logprobs(buffer: Sequence[Turn]) -> torch.Tensor:
    """log pi_old of each response token [N, T], as it was sampled, 0 where padded."""
    rows = [torch.tensor(turn.logprobs) for turn in buffer]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def response_mask(buffer: Sequence[Turn]) -> torch.Tensor:
    """[N, T] bool: True = response token."""
    lengths = torch.tensor([len(turn.response) for turn in buffer])
    return torch.arange(int(lengths.max())) < lengths[:, None]


def advantages(
    rewards: torch.Tensor, log_ratios: torch.Tensor, mask: torch.Tensor, *, kl_coef: float
) -> torch.Tensor:
    """Advantages [N, T] of REINFORCE++, from rewards [N] and log(pi_theta / pi_ref) [N, T].

    Equation 9, the return of token t with discount 1: what the response was worth, less what its
    tokens from t on differ from the reference model::

        A_t = r(o) - beta * sum_{u >= t} log(pi_theta / pi_ref)_u

    Equation 10: normalised over all response tokens of the agent's buffer.
    """
    penalties = (log_ratios * mask).flip(1).cumsum(1).flip(1)
    returns = rewards[:, None] - kl_coef * penalties
    values = returns[mask].double()
    deviation = values.var(unbiased=False).clamp(min=1e-8).sqrt()
    return ((returns - values.mean()) / deviation * mask).float()


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_epsilon: float,
) -> torch.Tensor:
    """The clipped surrogate (equation 11) as a loss, its mean over all response tokens::

    -min(rho * A, clip(rho, 1 - eps, 1 + eps) * A)        rho = pi_theta / pi_old
    """
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - clip_epsilon, 1 + clip_epsilon)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    return -gain[mask].mean()


def update(
    policy: Policy,
    reference: Policy,
    optimizer: torch.optim.Optimizer,
    buffer: Sequence[Turn],
    settings: Settings,
) -> float:
    """One optimiser step on all that one agent said in a step, in any role; returns the loss."""
    mask = response_mask(buffer)
    logprobs = response_logprobs(policy, buffer)
    with torch.no_grad():
        log_ratios = logprobs - response_logprobs(reference, buffer)
    gains = advantages(
        torch.tensor([turn.reward for turn in buffer]), log_ratios, mask, kl_coef=settings.kl_coef
    )
    loss = clipped_surrogate(
        logprobs, rollout_logprobs(buffer), gains, mask, clip_epsilon=settings.clip_epsilon
    )
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def co_evolve(
    policies: Sequence[Policy], questions: Sequence[Question], settings: Settings
) -> Iterator[list[Discussion]]:
    """CoMAS: discuss, reward, update each agent on its own buffer D_k; yields each step's
    discussions."""
    reference = copy.deepcopy(policies[0])  # all agents begin as the same model
    optimizers = [
        torch.optim.AdamW(p.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95))
        for p in policies
    ]
    for step in range(1, settings.num_steps + 1):
        rng = random.Random(f"{settings.seed}/{step}")
        batch = rng.choices(questions, k=settings.batch_size)
        discussions = discuss(batch, policies, settings, step=step)
        for discussion in discussions:
            reward(discussion)
        said = [turn for discussion in discussions for turn in discussion.turns]
        for agent_index, policy in enumerate(policies):
            buffer = [t for t in said if t.agent_index == agent_index and not t.is_truncated]
            update(policy, reference, optimizers[agent_index], buffer, settings)
        yield discussions


# ---------------------------------------------------------------------------- the world

HABITS = {"I add:": 0.3, "I subtract:": 0.55, "I take the first:": 0.15}
"""How often an untrained agent goes which way: what there is to unlearn."""
SLIPS = 0.1
"""Share of evaluations and scorings that say anything at all."""


def solve(question: Question, way: str) -> list[str]:
    """The solution of ``question`` by that way."""
    return [way, BOXES[WAYS[way](*question)]]


def evaluate(way: str, rng: random.Random) -> str:
    """How an untrained agent evaluates a solution: it names the mistake, with slips."""
    return rng.choice(REMARKS) if rng.random() < SLIPS else ACCUSATIONS.get(way, APPROVAL)


def score(way: str, evaluation: str, rng: random.Random) -> str:
    """How it scores: it checks the accusation, and believes every approval."""
    if rng.random() < SLIPS:
        return rng.choice(SCORES)
    return SCORES[0] if evaluation == ACCUSATIONS.get(way) else SCORES[2]


def demonstration(rng: random.Random) -> Turn:
    """A turn of a made-up discussion, from which a model learns to speak. Critics are shown right
    and wrong solutions, and true and false evaluations, equally often."""
    discussion = Discussion((rng.randrange(6), rng.randrange(6)))
    for _ in range(rng.choice((1, 2))):
        way, remark = rng.choice(list(WAYS)), rng.choice(REMARKS)
        for response in (solve(discussion.question, way), [remark], [score(way, remark, rng)]):
            role = list(ASKED)[len(discussion.turns) % 3]
            prompt = prompt_of(role, discussion, horizon=1)
            discussion.turns.append(Turn(role, 0, prompt, [*response, END], []))
    turn = rng.choice(discussion.turns[-3:])
    if turn.role == "solution":
        [way] = rng.choices(list(HABITS), list(HABITS.values()))
        turn.response = [*solve(discussion.question, way), END]
    elif turn.role == "evaluation":
        turn.response = [evaluate(way, rng), END]
    return turn


def teach(settings: Settings) -> Policy:
    """A model that has learnt to speak, with these habits: plain next-token prediction."""
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(settings.num_teaching_steps):
        buffer = [demonstration(rng) for _ in range(64)]
        loss = -response_logprobs(policy, buffer)[response_mask(buffer)].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


NUM_SAMPLES = 10


def accuracy(policy: Policy, questions: Sequence[Question], *, is_greedy: bool) -> float:
    """Share of right answers that one agent gives alone, ``NUM_SAMPLES`` times to each question."""
    questions = list(questions) * NUM_SAMPLES
    prompts = [prompt_of("solution", Discussion(question), horizon=0) for question in questions]
    rng = torch.Generator().manual_seed(0)
    answers = sample(policy, prompts, rng=rng, is_greedy=is_greedy)
    right = [
        BOXES[sum(question)] in words
        for question, (words, _) in zip(questions, answers, strict=True)
    ]
    return sum(right) / len(right)


def report(
    step: int,
    policies: Sequence[Policy],
    held_out: Sequence[Question],
    discussions: Sequence[Discussion] = (),
) -> float:
    """Print a line about a step; returns the greedy accuracy, mean over agents."""
    greedy, sampled = (
        sum(accuracy(policy, held_out, is_greedy=how) for policy in policies) / len(policies)
        for how in (True, False)
    )
    line = f"step {step:2}  held-out accuracy {greedy:.2f} greedy, {sampled:.2f} sampled"
    for role in ASKED if discussions else ():
        rewards = [t.reward for one in discussions for t in one.turns if t.role == role]
        line += f"  {role} {sum(rewards) / len(rewards):+.2f}"
    print(line)
    return greedy


def main(settings: Settings) -> tuple[float, float]:
    """Teach, co-evolve and report; returns the greedy held-out accuracy before and after."""
    pairs = [(left, right) for left in range(6) for right in range(1, 6)]
    random.Random(settings.seed).shuffle(pairs)
    held_out, questions = pairs[:10], pairs[10:]
    print("teaching a tiny model to discuss sums, with bad habits ...")
    taught = teach(settings)
    policies = [copy.deepcopy(taught) for _ in range(settings.num_agents)]
    before = after = report(0, policies, held_out)
    for step, discussions in enumerate(co_evolve(policies, questions, settings), start=1):
        if step % 5 == 0 or step == settings.num_steps:
            after = report(step, policies, held_out, discussions)
    print("the last discussion: what each agent read and said, and its reward")
    for turn in discussions[-1].turns:
        said = " ".join([*turn.prompt, "->", *turn.response])
        print(f"  agent {turn.agent_index}  {turn.reward:+.1f}  {said}")
    return before, after


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Settings())
