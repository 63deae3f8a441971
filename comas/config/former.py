"""Keys that this repository had before, and what became of them."""

from comas.config.released import hint

RENAMED = {
    "optimization.estimator": "algorithm.name (of others: algorithm.estimator under name=custom)",
    "optimization.loss": "algorithm.name (of others: algorithm.loss under name=custom)",
    "optimization.group_by": "algorithm.group_by",
    "optimization.role_weights": "algorithm.role_weights",
    "optimization.kl_coef": "algorithm.kl_coef (dpo: algorithm.beta)",
    "optimization.kl_weight": "algorithm.kl_coef",
    "optimization.clip_epsilon": "algorithm.clip_epsilon",
    "optimization.clip_epsilon_high": "algorithm.clip_epsilon_high",
    "optimization.loss_aggregation": "algorithm.loss_aggregation",
    "optimization.mask_truncated": "algorithm.mask_truncated",
    "optimization.rollout_correction": "algorithm.rollout_correction",
    "optimization.old_logprobs": "algorithm.rollout_correction=ratio",
    "optimization.gradient_clip": "optimization.max_grad_norm",
    "policy.attention": "policy.attn_implementation",
    "rollout.gpu_memory_share": "rollout.gpu_memory_utilization",
    "rollout.max_concurrent_requests": "rollout.max_num_seqs",
    "training.eval_every": "training.validate_every",
    "logging.tensorboard": "logging.trackers=[tensorboard]",
    "logging.wandb": "logging.trackers=[wandb]",
    "verification.math": "verification.verifiers.math",
    "verification.science": "verification.verifiers.science",
    "verification.coding": "verification.verifiers.coding",
    "verification.choice": "verification.verifiers.choice",
    "verification.reasoning": "verification.verifiers.reasoning",
}
"""Former key -> what to write instead."""

_LAST = "the tag v0.14.0 is the last version that has it"
GONE = {
    "society.scorer_weights": _LAST,
    "society.scorer_lag": _LAST,
    "interaction.max_chain_tokens": _LAST,
    "interaction.num_scorings": "it is 1, as in the paper",
    "interaction.scorers": "any agent may score, as in the paper",
    "interaction.overlong_prompts": "the oldest history is left out",
    "data.shuffle": "each epoch has an order of its own, drawn from the seed",
    "data.reasoning_gym.seed": "a task may have a seed among its options",
    "data.reasoning_gym.validation_size": "50 questions of each task are held out",
    "data.reasoning_gym.version": "comas/data/reasoning_gym.py says which is needed",
    "policy.micro_batch_size": "policy.micro_batch_tokens divides by tokens",
    "cluster.gpus_per_policy": "it follows from policy.ranks_per_policy, "
    "rollout.engines_per_policy, rollout.tensor_parallel and cluster.placement",
    "cluster.ray_address": "set RAY_ADDRESS in the environment, such as RAY_ADDRESS=auto",
    "logging.trackio": "a tracker is a plug-in of logging.trackers",
    "logging.trackio_project": "a tracker is a plug-in of logging.trackers",
    "optimization.discount": "it is 1, as in the paper",
    "optimization.dual_clip": "a loss of your own may have one (algorithm.name=custom)",
    "optimization.overlong_buffer_tokens": "a reward of your own may weigh lengths",
    "optimization.rollout_ratio_bounds": "algorithm.rollout_correction says which they are",
    "optimization.mismatch_warning": "it is 0.1, and 0.01 where all is computed in float32",
    "optimization.final_lr_ratio": "cosine and linear fall to a tenth",
    "training.patience": "training.stop_when ends a run, by any metric",
    "logging.tokens": "they are always written",
    "logging.wandb_project": "set WANDB_PROJECT in the environment",
    "interaction.quote_reasoning": "what a model thinks is trained, and read by nobody else",
    "rollout.thinking_marks": "they are those of the model's tokenizer or chat template",
    "validation.greedy": "greedy answers are asked for as well, unless validation.temperature is 0",
    "cluster.start_timeout_s": "it is half an hour, or cluster.call_timeout_s where that is less",
    "cluster.max_recoveries": "it is 3",
}
"""Former key -> why there is nothing to write."""


def former(key: str) -> tuple[str, str] | None:
    """What is wrong with a key that was there before, or is one of the paper's released code, and
    what to do; None: it is none of these."""
    for name in (key, key.rpartition(".")[0]):  # an entry of a mapping
        if name in RENAMED:
            return f"{name} was renamed {RENAMED[name]}", f"write {RENAMED[name]} instead"
        if name in GONE:
            return f"is no key any more: {GONE[name]}", "leave it out"
    remedy = hint(key)
    return None if remedy is None else ("is not a known key", remedy)
