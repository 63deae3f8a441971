"""From the responses to one prompt to a pair of which one is to become likelier than the other."""

from collections import defaultdict
from collections.abc import Sequence

from comas.types import TrainingSample


def preference_pairs(
    samples: Sequence[TrainingSample],
) -> list[tuple[TrainingSample, TrainingSample]]:
    """(chosen, rejected) of every prompt: an agent's responses with the highest and the lowest
    reward, the first said where several have it.

    Candidates are responses of one agent to the same prompt token ids, as the copies of a
    discussion have them in its first round. Equal rewards, and so a lone response, give no pair.
    The order is that of the prompts' first responses.

    Example: rewards 0.2, 0.8, 0.8, 0.4 of four answers to a question: the second and the first.
    """
    candidates: defaultdict[tuple[int, tuple[int, ...]], list[TrainingSample]] = defaultdict(list)
    for sample in samples:
        candidates[sample.agent_index, sample.prompt_token_ids].append(sample)
    pairs = (
        (max(of, key=lambda s: s.reward), min(of, key=lambda s: s.reward))
        for of in candidates.values()
    )
    return [(chosen, rejected) for chosen, rejected in pairs if chosen.reward > rejected.reward]
