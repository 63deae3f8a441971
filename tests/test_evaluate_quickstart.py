"""Evaluating a run as users do: scripts/evaluate_model.sh and real vLLM servers."""

import os
import signal
from pathlib import Path

import pytest
from programs import assert_nothing_is_left, start
from small_runs import make_run

from evaluation.results import read_evaluation, read_failures

pytestmark = pytest.mark.stack

EVALUATE = ("bash", "scripts/evaluate_model.sh")


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two agents of a random model with a context of 512 bytes, asked three questions."""
    root = tmp_path_factory.mktemp("evaluation")
    shared = ("society.policy_of_agent=[0,0]", f"society.models=[{root / 'tied'}]")
    return [
        *("tiny", str(make_run(root, *shared, num_held_out=3)), "setups=[vanilla, debate]"),
        *(f"data={root}/data", f"results={root}/results", "cpu_kv_cache_mib=32"),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_evaluation_that_is_stopped_leaves_no_server_behind(arguments, number):
    process = start(*EVALUATE, *arguments)
    assert process.stdout is not None
    while "starting the server" not in (line := process.stdout.readline()):
        assert line, "the evaluation ended early"
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=300)
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert "Rerun the command to resume." in output
    assert_nothing_is_left()


def test_agents_are_evaluated_and_prompts_over_the_context_fail_the_societys_tasks_alone(arguments):
    """One byte per token: the second round of a debate quotes more than 512."""
    process = start(*EVALUATE, *arguments)
    output, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, output
    assert_nothing_is_left()
    folder = Path(arguments[-2].removeprefix("results=")) / "tiny"
    vanilla = read_evaluation(folder / "agent_0/held_out/vanilla/evaluation.json")
    assert (vanilla.num_asked, vanilla.num_done, vanilla.cost.calls) == (3, 3, 3)
    assert not (folder / "agent_1").exists()  # which has the same weights
    society = read_evaluation(folder / "society/held_out/debate/evaluation.json")
    assert (society.num_asked, society.num_done, society.num_failures) == (3, 0, 3)
    failures = read_failures(folder / "society/held_out/debate")
    assert all("context length" in error for error in failures.values())
    assert "tiny/society, debate, held_out" in output.split("## Missing")[1]
