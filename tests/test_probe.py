"""What the probe counts, by hand: one right and one wrong solution, asked of two agents."""

import json

import pytest
from tables import cases

from comas.data.probe import ProbeItem, load_probe
from comas.data.rows import DataError
from comas.quickstart.probe import NUM_PROBE_ITEMS, probe_records
from comas.run.probe import ask_probe
from comas.types import Generation, Request

LINE = {
    "id": "wrong",
    "task": "math",
    "prompt": "What is 48 + 23?",
    "solution": "8+3=11, 4+2=6. \\boxed{61}",
    "mistake": "carry lost",
    "true_accusation": "a carry is lost",
    "false_accusation": "the tens are left out",
}
WRONG = ProbeItem(**LINE)
RIGHT = ProbeItem("right", "math", "What is 1 + 1?", "\\boxed{2}", None, None, "a carry is lost")

SAYS = {
    0: {
        ("right", "evaluation"): "No mistakes.",
        ("right", "scoringfalse_accusation"): "<score>3</score>",
        ("wrong", "evaluation"): "Mistake: a carry is lost.",
        ("wrong", "scoringtrue_accusation"): "<score>1</score>",
        ("wrong", "scoringapproval"): "<score>2</score>",
    },
    1: {
        ("right", "evaluation"): "Mistake: the tens are left out.",
        ("right", "scoringfalse_accusation"): "<score>1</score>",
        ("wrong", "evaluation"): "No mistakes.",
        ("wrong", "scoringtrue_accusation"): "no score",
        ("wrong", "scoringapproval"): "<score>1</score>",
    },
}


def probe(*, overlong: str = "") -> tuple[dict[str, float | None], list[tuple[str, int]]]:
    asked = []

    async def generate(request: Request) -> Generation | None:
        item, role = request.turn[0].removeprefix("probe/"), request.turn[1].rpartition("/")[0]
        asked.append((request.prompt, request.seed))
        if item == overlong:
            return None
        text = SAYS[request.agent_index][item, role]
        return Generation((1,), (2,), text, (-0.5,), "stop", policy_version=0)

    return ask_probe([RIGHT, WRONG], generate=generate, num_agents=2, seed=7), asked


def test_every_measure_is_a_share_of_what_could_show_it():
    metrics, _ = probe()
    of_all = {k: v for k, v in metrics.items() if not k.startswith("agent")}
    assert of_all == {
        "probe/names": 0.5,
        "probe/names/math/carry lost": 0.5,
        "probe/overlooks": 0.5,
        "probe/accuses": 0.5,
        "probe/accepts_true": 1.0,  # of the one scoring that has a score
        "probe/accepts_true/math/carry lost": 1.0,
        "probe/accepts_false": 0.5,
        "probe/accepts_approval": 0.5,
    }
    assert metrics["agent_0/probe/names"] == 1 and metrics["agent_1/probe/names"] == 0
    assert metrics["agent_0/probe/accepts_false"] == 0
    assert metrics["agent_1/probe/accepts_approval"] == 0


def test_each_judge_is_asked_five_times_with_what_it_is_to_weigh():
    _, asked = probe()
    prompts = [prompt for prompt, _ in asked]
    assert len(asked) == 10 and len({seed for _, seed in asked}) == 10
    weighed = [text.rpartition("# Evaluation\n")[2] for text in prompts if "# Evaluation\n" in text]
    assert sorted(weighed[:3]) == ["No mistakes.", "a carry is lost", "a carry is lost"]


def test_the_same_is_asked_at_every_validation():
    assert probe() == probe()


def test_a_prompt_over_the_limit_names_nothing():
    metrics, _ = probe(overlong="wrong")
    assert metrics["probe/names"] == 0 and "probe/accepts_true" not in metrics


@cases(
    "change, said",
    ({"mistake": None}, "both null"),
    ({"true_accusation": None}, "both null"),
    ({"task": "poetry"}, "task"),
    ({"solution": " "}, "solution"),
)
def test_a_faulty_line_is_named_with_its_place(tmp_path, change, said):
    path = tmp_path / "probe.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + json.dumps(LINE | {"id": "b"} | change) + "\n")
    with pytest.raises(DataError, match=f"line 2.*{said}"):
        load_probe(path)


def test_the_quick_starts_probe_is_of_held_out_questions_and_every_kind(tmp_path):
    path = tmp_path / "probe.jsonl"
    path.write_text("\n".join(map(json.dumps, probe_records(seed=3))))
    items = load_probe(path)
    assert len(items) == NUM_PROBE_ITEMS
    kinds = {(item.task, item.mistake) for item in items}
    assert len(kinds) == 3 * (1 + 7 + 1)
    for item in items:
        assert item.true_accusation != item.false_accusation
    assert probe_records(seed=3) == probe_records(seed=3) != probe_records(seed=4)
