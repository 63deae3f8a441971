"""What a dry run says: needs, placement, sizes, and that nothing is made."""

from small_runs import FAMILIES, REPOSITORY, record, write_records
from tiny_models import save_tiny_model

from comas.__main__ import main
from comas.preflight.configuration import load_config
from comas.preflight.needs import faults_of, table
from comas.preflight.survey import survey_run
from comas.utils.terminal import EXIT_FAULT


def test_a_dry_run_says_everything_and_makes_nothing(tmp_path, caplog):
    model = save_tiny_model(tmp_path / FAMILIES[0], FAMILIES[0])
    questions = write_records(tmp_path / "questions.jsonl", [record(i) for i in range(5)])
    held_out = write_records(tmp_path / "held_out.jsonl", [record(i) for i in range(5, 8)])
    arguments = [
        "--dry-run",
        str(REPOSITORY / "configs/quickstart.yaml"),
        f"saves={tmp_path / 'saves'}",
        f"society.models=[{model}]",
        f"data.train={questions}",
        f"data.validation={held_out}",
        "rollout.batch_size=2",
        "cluster.device=cpu",
    ]
    assert main(arguments) == 0
    said = ["needed", "a step: 2 questions x 1 copies"]
    assert all(words in caplog.text for words in said)
    assert "dry run: no faults, no doubts; no run was started or written" in caplog.text
    caplog.clear()
    faulty = ["data.validation=nowhere.jsonl", "rollout.batch_size=6"]
    faulty += ["rollout.max_response_tokens=100000", f"society.models=[{model},./nowhere]"]
    assert main([*arguments, *faulty, "cluster.device=cuda"]) == EXIT_FAULT
    said = ["nowhere.jsonl cannot", "5 questions, fewer than", "max_response_tokens=100000"]
    said += ["'./nowhere', which is neither", "cluster.device=cuda: ", "dry run: 5 faults, "]
    assert [words for words in said if words not in caplog.text] == []
    caplog.clear()
    assert main([*arguments, f"data.validation={questions}"]) == 0
    assert "doubt: data.validation: 5 of 5 questions are among those of data.train" in caplog.text
    assert "dry run: no faults, 1 doubt;" in caplog.text
    assert not (tmp_path / "saves").exists()


def test_a_society_that_is_still_to_be_built_is_not_built_by_a_dry_run(tmp_path, caplog):
    config = load_config(REPOSITORY / "configs/quickstart.yaml", [f"saves={tmp_path}"])
    found = survey_run(config)
    assert not found.inputs.is_built and faults_of(found.needs) == []
    assert "built at the start" in "\n".join(table(found.needs))
    config.data.validation = config.data.train
    [doubt] = [need.doubt for need in survey_run(config).needs if need.doubt is not None]
    assert "2400 of 2400 questions are among those of data.train" in doubt
    assert found.sizes is not None and found.sizes.num_questions == 2400
    assert not list(tmp_path.iterdir())
    typo = load_config(
        REPOSITORY / "configs/quickstart.yaml",
        [f"saves={tmp_path}", "society.models=[quickstart/models/gpt]"],
    )
    [fault] = faults_of(survey_run(typo).needs)
    assert "choose one of quickstart/models/qwen2, quickstart/models/llama" in fault


def test_memory_is_planned_before_model_data_and_gpus_are_there(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    paper = str(REPOSITORY / "configs/comas_7b.yaml")
    missing = [f"data.train={tmp_path}/none.jsonl", f"saves={tmp_path / 'saves'}"]
    assert main(["--dry-run", paper, *missing]) == EXIT_FAULT
    said = ["none.jsonl cannot be read", "GPU memory, update", "GPU memory, sampling"]
    said += ["Qwen/Qwen2.5-7B-Instruct", "update: ZeRO-3, Adam's states in host memory"]
    assert [words for words in said if words not in caplog.text] == []
