"""Two tokenizers, learned from the worked discussions: Qwen2-style and Llama-3-style.

Both are byte-level BPE with single digits. Each constant text of the prompt templates, and between
the digits of worked discussions, is one token, so that the long prompts of real models take about
twenty tokens.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from comas.interaction.prompts import (
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    RATING,
    SCORING,
    SCORING_ALONE,
    SHIPPED,
    SOLUTION,
)
from comas.interaction.setup_prompts import (
    DEBATE_AGENTS,
    aggregation,
    debate_opening,
    debate_reply,
    to_assistant,
)
from comas.quickstart.examples import NUM_AGGREGATED, discussion_examples
from comas.quickstart.questions import draw_problem
from comas.quickstart.world import HABITS, Mixture
from comas.types import DOMAINS, Message

MAX_LENGTH = 1024
_NUM_SAMPLED_DISCUSSIONS = 1500
_MARK = "\0"

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA_HEADERS = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)


@dataclass(frozen=True)
class ChatFormat:
    """The special tokens, chat template and vocabulary size of a model family."""

    chat_template: str
    wrapping: tuple[str, ...]
    """The template's own text between special tokens."""
    bos_token: str | None
    eos_token: str
    """Ends a turn."""
    pad_token: str
    other_special_tokens: tuple[str, ...]
    num_bpe_tokens: int
    """Size of the BPE vocabulary: special tokens, bytes and merges."""

    @property
    def special_tokens(self) -> list[str]:
        named = (self.bos_token, self.pad_token, self.eos_token, *self.other_special_tokens)
        return [token for token in named if token is not None]


CHAT_FORMATS = {
    "qwen2": ChatFormat(
        chat_template=_CHATML,
        wrapping=("system\n", "user\n", "assistant\n", "\n"),
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        other_special_tokens=("<|im_start|>",),
        num_bpe_tokens=400,
    ),
    "llama": ChatFormat(
        chat_template=_LLAMA_HEADERS,
        wrapping=("system", "user", "assistant", "\n\n"),
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        pad_token="<|end_of_text|>",
        other_special_tokens=("<|start_header_id|>", "<|end_header_id|>"),
        num_bpe_tokens=320,
    ),
}


def build_tokenizer(chat_format: ChatFormat) -> PreTrainedTokenizerFast:
    """Learn a small BPE for any text, and add the constant texts as tokens."""
    phrases = list(dict.fromkeys([*template_pieces(), *_constant_phrases(), *chat_format.wrapping]))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_learn_bpe(chat_format, phrases),
        bos_token=chat_format.bos_token,
        eos_token=chat_format.eos_token,
        pad_token=chat_format.pad_token,
        extra_special_tokens=list(chat_format.other_special_tokens),
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_format.chat_template
    tokenizer.add_tokens(
        [AddedToken(phrase, normalized=False) for phrase in phrases if len(phrase) > 1]
    )
    return tokenizer


def template_pieces() -> list[str]:
    """Return the distinct constant texts between the placeholders of all prompt templates."""
    pieces = chain.from_iterable(map(_constant_pieces, _templates()))
    of_setups = chain.from_iterable(text.split(_MARK) for text in _setup_texts(_MARK, _MARK))
    # The first item of a discussion has no blank line before it.
    history = SHIPPED["history"]
    items = (history["item"], history["own_item"])
    first_items = [_constant_pieces(item.lstrip("\n"))[0] for item in items]
    return list(dict.fromkeys([*pieces, *first_items, history["empty"], *filter(None, of_setups)]))


def solution_openers() -> list[str]:
    """Return the template pieces after which a prompt quotes a solution."""
    prompts = (template.format_map(defaultdict(str, solution=_MARK)) for template in _templates())
    filled = "\n".join([*prompts, *_setup_texts("", _MARK)])
    return [piece for piece in template_pieces() if piece + _MARK in filled]


def encode_prompts(
    tokenizer: PreTrainedTokenizerFast, conversations: Sequence[Sequence[Message]]
) -> list[list[int]]:
    """Return token ids of each conversation, with the generation prompt."""
    texts = tokenizer.apply_chat_template(
        list(map(list, conversations)), tokenize=False, add_generation_prompt=True
    )
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


def _templates() -> list[str]:
    roles = (SOLUTION, EVALUATION, SCORING, EVALUATION_WITH_JUDGMENT, SCORING_ALONE, RATING)
    # The agents know only these domains.
    prompts = [
        SHIPPED[role][domain] for role in roles for domain in SHIPPED[role] if domain in DOMAINS
    ]
    return [*prompts, SHIPPED["history"]["item"], SHIPPED["history"]["own_item"]]


def _setup_texts(query: str, solution: str) -> list[str]:
    aggregated = (aggregation(query, [solution] * count) for count in NUM_AGGREGATED)
    others = [solution] * (DEBATE_AGENTS - 1)
    messages = [
        *chain.from_iterable(aggregated),
        *debate_opening(query),
        *debate_reply(query, solution, others=others),
        *to_assistant([]),
    ]
    return [message["content"] for message in messages]


def _constant_pieces(template: str) -> list[str]:
    marked = template.format_map(defaultdict(lambda: _MARK))
    return [piece for piece in marked.split(_MARK) if piece]


def _constant_phrases() -> list[str]:
    """Return the texts between the digits in questions and responses of worked discussions."""
    rng = Random(0)
    texts: list[str] = []
    for _ in range(_NUM_SAMPLED_DISCUSSIONS):
        problem = draw_problem(rng, domain=rng.choice(DOMAINS), held_out=False)
        responses = [
            example.response
            for model in HABITS
            for example in discussion_examples(rng, Mixture(), model)
        ]
        texts += [problem.text, *responses]
    return sorted(set(chain.from_iterable(re.split(r"\d+", text) for text in texts)) - {""})


def _learn_bpe(chat_format: ChatFormat, texts: Sequence[str]) -> Tokenizer:
    bpe = Tokenizer(models.BPE())
    # transformers loads the tokenizer of any qwen2 model with this normaliser and this splitting
    # regex (single digits among others), whatever tokenizer.json says.
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=chat_format.num_bpe_tokens,
        special_tokens=chat_format.special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if chat_format.bos_token is not None:
        bos = chat_format.bos_token
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, bpe.token_to_id(bos))]
        )
    return bpe
