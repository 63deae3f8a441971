"""Settings under which a run would learn nothing, and those that are warned of."""

from small_runs import QUICKSTART, tiny_settings
from tables import cases

from comas.preflight.configuration import load_config
from comas.preflight.learning import check_learning
from comas.preflight.preparation import check_run
from comas.preflight.sizes import derive_sizes

SILENT = "algorithm.role_weights={solution: 0, evaluation: 0, scoring: 0}"
ONCE = [f"interaction.{each}" for each in ("schedule=sequential", "num_rounds=1", "prompt_reuse=1")]
"""One solution of each question, one evaluation, one scoring."""
GROUPS = "algorithm.group_by=[discussion_id, role, round_index]"
ALONE = ["interaction.criticism=none", "reward.scheme=majority"]


def said(*settings: str) -> tuple[list[str], list[str]]:
    """Errors and warnings of the quick-start with these settings, in a run of 60 steps."""
    config = load_config(QUICKSTART, ["cluster.device=cpu", *settings])
    checks = check_learning(config, derive_sizes(config, num_questions=2400))
    return [n.error for n in checks if n.error], [n.warning for n in checks if n.warning]


@cases(
    "settings, error",
    ([SILENT], "(solution, evaluation, scoring) weighs 0"),
    (["algorithm.name=grpo", *ONCE], "grpo compares responses by question_id, role,"),
    (["algorithm.name=grpo", GROUPS, ONCE[0], "interaction.prompt_reuse=8"], "alone in its"),
    (["rollout.batch_size=1", *ONCE, *ALONE], "reinforce_pp compares responses, and each is alone"),
)
def test_settings_that_teach_nothing_are_errors(settings, error):
    [found], _ = said(*settings)
    assert error in found


@cases("settings, warning")
def test_settings_that_are_hardly_meant_are_warned_of(settings, warning):
    errors, [found] = said(*settings)
    assert errors == [] and warning in found


def test_a_dry_run_looks_for_the_adapted_layers(tmp_path):
    settings = tiny_settings(tmp_path, "policy.lora.rank=4", "policy.lora.target_modules=[q_prj]")
    checks = check_run(load_config(QUICKSTART, settings)).checks
    [error] = [check.error for check in checks if check.error]
    assert "policy.lora.target_modules: q_prj is no linear layer of" in error and "q_proj" in error
