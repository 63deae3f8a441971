"""Tiny random models with a byte tokenizer, for tests."""

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TURN = 2
OTHER_END = 7
"""A second stop token, only in generation_config.json, as in chat models."""

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

REFUSES_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
)

SHAPE = {
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "eos_token_id": END_OF_TURN,
    "pad_token_id": 0,
}


def byte_tokenizer(*, backwards: bool = False) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer with one token per byte; ids 0 to 2 are special. ``backwards`` gives the bytes
    other ids."""
    vocabulary = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=backwards)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[END_OF_TURN],
        pad_token=SPECIAL_TOKENS[0],
        chat_template=CHAT_TEMPLATE,
    )


def add_noise(model: torch.nn.Module) -> None:
    """Make the distributions of a small random model far from uniform."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def random_model(family: str, *, seed: int, **changes: int) -> transformers.PreTrainedModel:
    """A small model with distributions far from uniform: "tied" (Qwen2) or "untied" (Llama)."""
    torch.manual_seed(seed)
    shape = SHAPE | changes
    if family == "tied":
        config = transformers.Qwen2Config(tie_word_embeddings=True, **shape)
    else:
        config = transformers.LlamaConfig(tie_word_embeddings=False, **shape)
    model = transformers.AutoModelForCausalLM.from_config(config)
    add_noise(model)
    # Settings that would break every test if the engine sampled with them.
    model.generation_config = transformers.GenerationConfig(
        do_sample=True,
        temperature=0.1,
        top_k=1,
        top_p=0.1,
        repetition_penalty=3.0,
        eos_token_id=[END_OF_TURN, OTHER_END],
    )
    return model


def distributions(model, said, temperature: float = 1.0) -> torch.distributions.Categorical:
    """What each token of a response was drawn from, by transformers' code of one sequence.

    ``said`` has ``prompt_token_ids`` and ``response_token_ids``.
    """
    ids = torch.tensor([[*said.prompt_token_ids, *said.response_token_ids]])
    logits = model(input_ids=ids).logits[0, len(said.prompt_token_ids) - 1 : -1]
    return torch.distributions.Categorical(logits=logits / temperature)


def save_tiny_model(folder: Path, family: str, *, seed=0, backwards=False, **changes: int) -> str:
    """Write a random model, with ``changes`` of ``SHAPE``, and its tokenizer in Hugging Face
    format; return the folder."""
    random_model(family, seed=seed, **changes).save_pretrained(folder)
    byte_tokenizer(backwards=backwards).save_pretrained(folder)
    return str(folder)
