"""Two tiny transformers with random weights: Qwen2 with tied embeddings, Llama with untied."""

from torch.nn.init import zeros_
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from comas.quickstart.tokenizers import MAX_LENGTH

_ARCHITECTURES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, True),
    "llama": (LlamaConfig, LlamaForCausalLM, False),
}


def build_model(architecture: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """About 0.2 million parameters in float32, drawn from torch's global generator.

    Heads are 32 wide, the least that vLLM takes on CPU. The wide initialisation matters: at the
    usual 0.02 so small a model takes several times as long to learn. Every layer begins as the
    identity, its projections back to the residual stream being zero: that saves steps, too.
    """
    config_class, model_class, is_tied = _ARCHITECTURES[architecture]
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=256,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.1,
        tie_word_embeddings=is_tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = model_class(config)
    for layer in model.model.layers:
        zeros_(layer.self_attn.o_proj.weight)
        zeros_(layer.mlp.down_proj.weight)
    return model
