"""The keys of the paper's released code, which is built on MARTI, and ours that stand for them.

``.venv/bin/python -m comas.config.released`` prints them.
"""

import sys
from typing import NamedTuple

SECTIONS = ("default_agent", "agents", "workflow_args", "reward_alloc")
"""Where its keys stand, apart from those at the top."""


class Here(NamedTuple):
    """What stands for a key of the released code."""

    key: str | None
    """Ours; None: there is none."""
    differs: str = ""
    """What is different about it, or why there is none."""


RELEASED: dict[str, Here] = {
    "agents": Here("society.num_agents", "a number; their models are in society.models"),
    "pretrain": Here("society.models", "a list: one model for all, or one for each policy"),
    "shared_agents": Here("society.policy_of_agent", "[0, 0, 0, 0] lets four agents share one"),
    "is_tuning": Here("society.update_every", "0 freezes a policy"),
    "role": Here(None, "every agent takes every role"),
    "prompt_data": Here("data.train", "one file or hub:..., not json@folder"),
    "extra_eval_dir": Here("data.validation", "benchmarks are for scripts/evaluate_model.sh"),
    "extra_eval_tasks": Here("data.validation", "benchmarks are for scripts/evaluate_model.sh"),
    "verify_task": Here("data.domain", "of questions that name none"),
    "input_key": Here("data.columns.prompt"),
    "label_key": Here("data.columns.answer"),
    "chat_template": Here("interaction.prompts", "a file of prompts, by role and domain"),
    "add_prompt_suffix": Here("interaction.prompts", "a file of prompts, by role and domain"),
    "apply_chat_template": Here(None, "the tokenizer's chat template is always used"),
    "num_rounds": Here("interaction.num_rounds", "what a round is, interaction.schedule says"),
    "n_samples_per_prompt": Here("interaction.prompt_reuse", "independent discussions"),
    "rollout_batch_size": Here("rollout.batch_size", "questions of a step"),
    "micro_rollout_batch_size": Here(
        None, "vLLM batches by itself; rollout.max_num_seqs limits it"
    ),
    "prompt_max_len": Here("rollout.max_prompt_tokens"),
    "generate_max_len": Here("rollout.max_response_tokens"),
    "max_len": Here(None, "rollout.max_prompt_tokens and rollout.max_response_tokens add up to it"),
    "temperature": Here("rollout.temperature", "in validations: validation.temperature"),
    "eval_temperature": Here("validation.temperature"),
    "top_p": Here(None, "1: what is sampled is the policy's own distribution"),
    "reward_alloc.name": Here("reward.scheme", "maporl_quality, maporl_margin and others"),
    "use_ttrl": Here("reward.scheme", "majority"),
    "advantage_estimator": Here("algorithm.name", "reinforce is reinforce_pp here"),
    "gamma": Here(None, "it is 1"),
    "lambd": Here(None, "without a critic it has no effect"),
    "init_kl_coef": Here("algorithm.kl_coef"),
    "use_kl_loss": Here(None, "the estimator says whether the KL is a penalty or in the loss"),
    "eps_clip": Here("algorithm.clip_epsilon"),
    "mask_truncated_completions": Here("algorithm.mask_truncated"),
    "train_batch_size": Here("optimization.train_batch_size"),
    "max_epochs": Here("optimization.epochs_per_buffer"),
    "actor_learning_rate": Here("optimization.learning_rate"),
    "lr_warmup_steps": Here("optimization.warmup_steps"),
    "lr_warmup_ratio": Here("optimization.warmup_steps", "optimiser steps, not a share"),
    "adam_betas": Here("optimization.betas"),
    "l2": Here("optimization.weight_decay"),
    "max_norm": Here("optimization.max_grad_norm"),
    "num_episodes": Here("training.num_epochs"),
    "save_steps": Here("training.save_every"),
    "eval_steps": Here("training.validate_every"),
    "max_ckpt_num": Here("training.keep_checkpoints"),
    "save_path": Here("saves", "the folder of all runs"),
    "ckpt_path": Here("saves", "the folder of all runs"),
    "load_checkpoint": Here("resume", "the folder of a run"),
    "zero_stage": Here("policy.zero_stage", "null: the cheapest that fits"),
    "adam_offload": Here("policy.adam_offload", "null: where nothing else fits"),
    "gradient_checkpointing": Here("policy.gradient_checkpointing", "null: of long samples only"),
    "bf16": Here("policy.dtype", "bfloat16; of rollouts: rollout.dtype"),
    "flash_attn": Here("policy.attn_implementation", "flash_attention_2"),
    "packing_samples": Here(None, "samples are always packed"),
    "micro_train_batch_size": Here("policy.micro_batch_tokens", "tokens, not samples"),
    "lora_rank": Here("policy.lora.rank", "null instead of 0"),
    "lora_alpha": Here("policy.lora.alpha"),
    "target_modules": Here("policy.lora.target_modules", "null instead of all-linear"),
    "actor_num_gpus_per_node": Here("policy.ranks_per_policy"),
    "vllm_num_engines": Here("rollout.engines_per_policy"),
    "vllm_tensor_parallel_size": Here("rollout.tensor_parallel"),
    "vllm_gpu_memory_utilization": Here("rollout.gpu_memory_utilization"),
    "vllm_enable_sleep": Here(None, "colocated engines sleep during updates"),
    "deepspeed_enable_sleep": Here(None, "colocated trainers leave the GPU during rollouts"),
    "colocate_all_models": Here("cluster.placement", "colocated or disaggregated"),
    "seed": Here("seed"),
    "use_wandb": Here("logging.trackers", "[wandb], after wandb login"),
    "wandb_project": Here(None, "set WANDB_PROJECT in the environment"),
    "wandb_run_name": Here("name"),
    "use_tensorboard": Here("logging.trackers", "[tensorboard]; the folder is the run's"),
}


def hint(name: str) -> str | None:
    """What to write instead of a key of the released code; None: it is none.

    Example: for ``agents.0.agent-0.pretrain`` it is ``society.models``.
    """
    if "." in name and name.partition(".")[0] not in SECTIONS:
        return None
    here = RELEASED.get(name) or RELEASED.get(name.rpartition(".")[2])
    if here is None:
        return None
    said = f"write {here.key}" if here.key else "leave it out"
    return f"a key of the paper's released code: here {said}{here.differs and f' ({here.differs})'}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}: {hint(name)}\n" for name in RELEASED)
