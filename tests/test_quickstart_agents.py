"""The tiny agents: their tokenizers, models and warm start."""

from functools import cache
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from comas.interaction.prompts import SCORING, SOLUTION, fill
from comas.interaction.setup_prompts import user
from comas.quickstart.examples import SCORINGS, Example, discussion_examples
from comas.quickstart.questions import draw_problem
from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer, encode_prompts
from comas.quickstart.warm_start import (
    Recipe,
    batch_loss,
    build_model,
    encode_lessons,
    pad_lessons,
    warm_start,
)
from comas.quickstart.worked import work
from comas.quickstart.world import MISTAKES, Mixture
from comas.types import DOMAINS

PROBLEMS = {domain: draw_problem(Random(0), domain=domain, held_out=True) for domain in DOMAINS}
RIGHT = {domain: work(problem, None).text for domain, problem in PROBLEMS.items()}
LONGEST_ACCUSATION = {domain: max(MISTAKES[domain].values(), key=len) for domain in DOMAINS}


@cache
def tokenizer_of(architecture: str) -> PreTrainedTokenizerFast:
    return build_tokenizer(CHAT_FORMATS[architecture])


@pytest.fixture(scope="module", params=CHAT_FORMATS)
def architecture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def tokenizer(architecture: str) -> PreTrainedTokenizerFast:
    return tokenizer_of(architecture)


def test_encoding_and_decoding_give_the_text_back(tokenizer):
    rng = Random(7)
    texts = [
        text
        for _ in range(10)
        for example in discussion_examples(rng, Mixture(), "qwen2")
        for text in (example.prompt, example.response)
    ]
    texts += ["", "  two  spaces \n\n", "3.14 Ångström → naïve?", "def f(x):\n\treturn {'a': x}"]
    for text in texts:
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(token_ids, skip_special_tokens=True) == text


def test_a_lesson_is_the_response_and_what_the_prompt_quotes(tokenizer):
    quoted = {"solution": RIGHT["science"], "evaluation": LONGEST_ACCUSATION["science"]}
    prompt = fill(SCORING, "science", question=PROBLEMS["science"].text, **quoted)
    plain = fill(SOLUTION, "math", question=PROBLEMS["math"].text)  # quotes none
    examples = [Example((user(prompt),), SCORINGS[1]), Example((user(plain),), RIGHT["math"])]
    lesson, other = encode_lessons(tokenizer, examples)
    text = {
        weight: tokenizer.decode([t for t, w in zip(*lesson, strict=True) if w == weight])
        for weight in (0.0, 1.0)
    }
    before, opener, after = prompt.partition("# Solution\n")
    assert text[0.0].endswith(before + opener)
    assert text[1.0].startswith(after) and after.startswith(RIGHT["science"])
    assert text[1.0].endswith(SCORINGS[1] + tokenizer.eos_token)
    assert tokenizer.decode(lesson.token_ids) == text[0.0] + text[1.0]
    (prompt_ids,) = encode_prompts(tokenizer, [[user(plain)]])
    num_learned = len(other.token_ids) - len(prompt_ids)
    assert other.weights == [0.0] * len(prompt_ids) + [1.0] * num_learned


def test_neither_padding_nor_neighbours_change_a_lessons_loss(architecture, tokenizer):
    torch.manual_seed(0)
    model = build_model(architecture, tokenizer)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    examples = discussion_examples(Random(9), Mixture(), "qwen2")
    lessons = encode_lessons(tokenizer, examples)
    assert len({len(lesson.token_ids) for lesson in lessons}) > 1
    alone = [batch_loss(model, pad_lessons([lesson], tokenizer.pad_token_id)) for lesson in lessons]
    shares = [sum(lesson.weights) for lesson in lessons]
    mean = sum(loss * share for loss, share in zip(alone, shares, strict=True)) / sum(shares)
    together = batch_loss(model, pad_lessons(lessons, tokenizer.pad_token_id))
    torch.testing.assert_close(together, mean)


@pytest.mark.stack
def test_the_seed_decides_the_weights(architecture):
    def weights(seed: int) -> dict[str, torch.Tensor]:
        model, _ = warm_start(architecture, seed=seed, recipe=Recipe(num_steps=3))
        return {name: weight for name, weight in model.state_dict().items() if weight.ndim == 2}

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_a_saved_agent_loads_as_any_model(architecture, tokenizer, tmp_path):
    """transformers loads some tokenizers as another class, which must give the same ids."""
    model = build_model(architecture, tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    rng = Random(8)
    asked = [
        example.messages
        for _ in range(20)
        for example in discussion_examples(rng, Mixture(), "qwen2")
    ]
    asked.append((user("Any other text, e.g. 3.14 → naïve?\n\n  def f(): pass"),))
    assert encode_prompts(loaded_tokenizer, asked) == encode_prompts(tokenizer, asked)
    assert loaded_tokenizer.chat_template == tokenizer.chat_template
    assert loaded.generation_config.eos_token_id == loaded_tokenizer.eos_token_id
    assert loaded_tokenizer.eos_token == tokenizer.eos_token
    assert all(
        torch.equal(weight, model.state_dict()[name])
        for name, weight in loaded.state_dict().items()
    )
