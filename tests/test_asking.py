"""Reward schemes that ask: what they yield is asked for at once, kept, counted and not trained."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import discuss, discussion, generation, turn
from page_runs import discussion as page_discussion
from scripted_agents import ScriptedAgents
from test_plugins import arguments_of, written

from comas import train as driver
from comas.__main__ import main
from comas.config.schema import Interaction
from comas.engines.cluster.recoveries import Recoveries
from comas.engines.cluster.supervision import LostEngineError
from comas.interaction.asking import Ask, Inquiry
from comas.interaction.prompts import SCORING, SOLUTION, HistoryItem, fill
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import load_config
from comas.preflight.sizes import derive_sizes, describe_sizes
from comas.preflight.survey import prepare
from comas.reward_formulation import REWARD_SCHEMES, RewardScheme
from comas.reward_formulation.improvement_reward import improvement_reward
from comas.run import RunDirectory
from comas.run.metrics.asked import asked_metrics
from comas.run.metrics.step import rollout_metrics
from comas.run.pages.discussions import thread_of
from comas.run.records import discussion_record, token_records
from comas.types import (
    Discussion,
    Generation,
    Question,
    RewardedDiscussion,
    Rewards,
    Turn,
    TurnKey,
)
from comas.utils.terminal import EXIT_FAULT

REPOSITORY = Path(__file__).parents[1]
EXPERIMENT = REPOSITORY / "configs/quickstart/improvement.yaml"
ONE, TWO, THREE, NONE = (f"<score>{score}</score>" for score in (1, 2, 3, "?"))


def criticised(score: str = ONE, *, name: str = "d") -> Discussion:
    """A solution of agent 0, evaluated by agent 1 and scored by agent 2."""
    solution, evaluation = turn("r0.s0", "71"), turn("r0.s0.e0", "A digit is wrong.", agent=1)
    return discussion(solution, evaluation, turn("r0.s0.e0.t0", score, agent=2), name=name)


def said(turn_id: str, text: str = "", *, parent: str, agent: int = 0) -> Turn:
    return replace(turn(turn_id, text, agent=agent), parent_turn_id=parent)


REVISION = said("r0.s0.e0.s0", "61", parent="r0.s0.e0")


def paid(asking, revisions: list[Turn | None], scorings: list[Turn | None]) -> Rewards:
    """What a scheme that asks twice pays for these answers."""
    next(asking)
    asking.send(revisions)
    with pytest.raises(StopIteration) as end:
        asking.send(scorings)
    return end.value.value


# ---------------------------------------------------------------- the reward


@pytest.mark.parametrize(
    ("before", "after", "rewards"),
    [
        (ONE, THREE, (0.0, 1.0, 0.0)),  # (3 - 1) / 2 - (1 - 1) / 2
        (ONE, TWO, (0.0, 0.5, 0.0)),
        (TWO, THREE, (0.5, 0.5, 0.0)),
        (ONE, ONE, (0.0, 0.0, 0.0)),  # accepted, and not repaired: CoMAS pays 1
        (THREE, THREE, (1.0, 0.0, 0.0)),
        (THREE, ONE, (1.0, 0.0, 0.0)),  # max(0, -1)
        (ONE, NONE, (0.0, 0.0, 0.0)),
        (NONE, THREE, (0.0, 0.0, -1.0)),
    ],
)
def test_an_evaluation_is_paid_what_the_revision_gains_and_the_others_as_in_the_paper(
    before, after, rewards
):
    again = said("r0.s0.e0.s0.t0", after, parent=REVISION.turn_id)
    [item] = paid(improvement_reward([criticised(before)]), [REVISION], [again]).discussions
    assert item.rewards == rewards


def test_an_evaluation_that_could_not_be_followed_so_far_is_not_trained():
    [item] = paid(improvement_reward([criticised()]), [None], []).discussions
    assert item.rewards == (0.0, None, 0.0)
    [item] = paid(improvement_reward([criticised()]), [REVISION], [None]).discussions
    assert item.rewards == (0.0, None, 0.0)


def test_of_several_scorers_each_weighs_both_versions_and_the_mean_pays():
    solution, evaluation, scoring = criticised(ONE).turns
    held = discussion(solution, evaluation, scoring, turn("r0.s0.e0.t1", TWO, agent=1))
    asking = improvement_reward([held])
    next(asking)
    assert [ask.agent for ask in asking.send([REVISION])] == [2, 1]
    again = [
        said(f"r0.s0.e0.s0.t{i}", text, parent=REVISION.turn_id)
        for i, text in enumerate((TWO, ONE))
    ]
    [item] = paid(improvement_reward([held]), [REVISION], again).discussions
    assert item.rewards == (0.25, 0.0, 0.0, 0.0)  # 0.5 and -0.5
    again[1] = None
    [item] = paid(improvement_reward([held]), [REVISION], again).discussions
    assert item.rewards == (0.25, 0.5, 0.0, 0.0)


def test_the_change_is_counted_with_its_sign():
    again = [said("r0.s0.e0.s0.t0", text, parent=REVISION.turn_id) for text in (THREE, ONE, NONE)]
    three = [
        criticised(score, name=name) for name, score in zip("abc", (ONE, TWO, ONE), strict=True)
    ]
    metrics = paid(improvement_reward(three), [REVISION] * 3, again).metrics
    assert metrics["improvement/change"] == 0.25  # of 1 and -0.5; the third has no second score
    assert metrics["improvement/paid_rate"] == 0.5
    assert metrics["scoring/invalid_rate"] == 0.0


def test_the_solver_is_shown_its_solution_with_the_evaluation_and_the_scorer_the_revision():
    held = criticised()
    asking = improvement_reward([held])
    [revise] = next(asking)
    assert (revise.role, revise.agent, revise.parent) == ("solution", 0, held.turns[1])
    assert (revise.template, revise.history) == (
        SOLUTION,
        [HistoryItem("71", "A digit is wrong.")],
    )
    [score] = asking.send([REVISION])
    assert (score.role, score.agent, score.parent) == ("scoring", 2, REVISION)


def test_nothing_is_asked_about_an_evaluation_that_nobody_gave_or_scored():
    solution, evaluation, scoring = criticised().turns
    nobodys = replace(evaluation, generation=replace(evaluation.generation, finish_reason="given"))
    for turns in ((solution, evaluation), (solution, nobodys, scoring)):
        assert next(improvement_reward([discussion(*turns)])) == []


# ---------------------------------------------------------------- asking


class Agents:
    """Who answer only when so many are asked at once, and note what they were asked."""

    def __init__(self, *, at_once: int = 1, longest: int = 10_000) -> None:
        self.asked: dict[TurnKey, tuple[int, str, int]] = {}
        self._at_once, self._longest = at_once, longest
        self._waiting: list[asyncio.Event] = []

    async def generate(
        self, agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        if len(prompt) > self._longest:
            return None
        self.asked[turn] = agent_index, prompt, seed
        self._waiting.append(asyncio.Event())
        own = self._waiting[-1]
        if len(self._waiting) == self._at_once:
            for event in reversed(self._waiting):
                event.set()
            self._waiting = []
        await asyncio.wait_for(own.wait(), timeout=10)
        return generation(THREE if turn[1].endswith("t0") else "61", num_tokens=3)


def inquiry(discussions: list[Discussion], agents: Agents, **options: Any) -> Inquiry:
    rules = Interaction()
    return Inquiry(
        discussions, generate=agents.generate, num_agents=3, rules=rules, seed=7, **options
    )


def test_all_that_is_asked_for_at_once_is_generated_at_once_and_kept_in_its_discussion():
    held = [criticised(name=f"step1/q/copy{copy}") for copy in range(5)]
    agents = Agents(at_once=5)  # who would wait forever for a sixth
    rewards = inquiry(held, agents).hear_out(improvement_reward(held))
    assert [item.rewards for item in rewards.discussions] == [(0.0, 1.0, 0.0)] * 5
    for before, item in zip(held, rewards.discussions, strict=True):
        assert item.discussion.turns == before.turns
        assert [t.turn_id for t in item.discussion.asked] == ["r0.s0.e0.s0", "r0.s0.e0.s0.t0"]
        assert [t.parent_turn_id for t in item.discussion.asked] == ["r0.s0.e0", "r0.s0.e0.s0"]
    item = HistoryItem("71", "A digit is wrong.")
    agent, prompt, _ = agents.asked["step1/q/copy0", "r0.s0.e0.s0"]
    assert (agent, prompt) == (0, fill(SOLUTION, "math", question="?", history=[item]))
    agent, prompt, _ = agents.asked["step1/q/copy0", "r0.s0.e0.s0.t0"]
    seen = {"solution": "61", "evaluation": "A digit is wrong."}
    assert (agent, prompt) == (2, fill(SCORING, "math", question="?", **seen))
    assert len({seed for _, _, seed in agents.asked.values()}) == 10


def test_a_step_that_is_repeated_asks_with_the_same_seeds_however_fast_the_answers_are():
    held = [criticised(name=f"step1/q/copy{copy}") for copy in range(2)]
    first, second = Agents(at_once=1), Agents(at_once=2)
    for agents in (first, second):
        inquiry(held, agents).hear_out(improvement_reward(held))
    assert first.asked == second.asked


def test_a_revision_is_not_asked_for_without_what_it_is_to_revise():
    held = criticised()
    alone = len(fill(SOLUTION, "math", question="?"))
    [item] = inquiry([held], Agents(longest=alone)).hear_out(improvement_reward([held])).discussions
    assert item.rewards == (0.0, None, 0.0)
    assert item.discussion.asked == ()


def test_second_opinions_are_numbered_after_what_is_there():
    held = criticised()

    def second_opinions(discussions):
        [d] = discussions
        asks = [Ask(d, "scoring", agent, SCORING, d.turns[1]) for agent in (0, 1)]
        opinions = yield asks
        assert [opinion.agent_index for opinion in opinions] == [0, 1]
        return Rewards([RewardedDiscussion(d, (1.0, None, None))])

    agents = Agents(at_once=2)
    [item] = inquiry([held], agents).hear_out(second_opinions([held])).discussions
    assert [t.turn_id for t in item.discussion.asked] == ["r0.s0.e0.t1", "r0.s0.e0.t2"]


def test_scorers_have_their_weights_and_the_others_theirs():
    held = criticised()
    served: list[bool] = []
    inquiry([held], Agents(), serve=served.append).hear_out(improvement_reward([held]))
    assert served == [False, True]

    def both(discussions):
        [d] = discussions
        s, e, _ = d.turns
        answers = yield [
            Ask(d, "scoring", 1, SCORING, e),
            Ask(d, "evaluation", 2, SOLUTION, s),
        ]
        assert [answer.role for answer in answers] == ["scoring", "evaluation"]
        return Rewards([RewardedDiscussion(d, (1.0, None, None))])

    inquiry([held], Agents(), serve=served.append).hear_out(both([held]))
    assert served == [False, True, False, True]


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("yielded", "fault"),
    [
        (lambda d: [1], "what it yields is no list of Ask"),
        (lambda d: None, "what it yields is no list of Ask"),
        (lambda d: [Ask(d, "scoring", 3, SCORING, d.turns[1])], "agent=3, where agents are 0 to 2"),
        (lambda d: [Ask(d, "judge", 0, SCORING, d.turns[1])], "role=judge is none of solution, ev"),
        (lambda d: [Ask(d, "scoring", 0, SCORING, REVISION)], "parent=r0.s0.e0.s0 is no turn of d"),
        (lambda d: [Ask(criticised(name="x"), "scoring", 0, SCORING, REVISION)], "x is none of"),
    ],
)
def test_what_nobody_can_be_asked_is_an_error_where_it_is_yielded(yielded, fault):
    held = criticised()

    def scheme(discussions):
        yield yielded(held)

    with pytest.raises(ValueError, match=f"nobody can be asked so: {fault}") as caught:
        inquiry([held], Agents()).hear_out(scheme([held]))
    assert caught.traceback[-1].name == "scheme"


def test_a_scheme_says_that_it_asks_and_is_not_used_where_nobody_can_be_asked():
    def asking(discussions):
        yield []

    with pytest.raises(ValueError, match=r'has needs=\("ask",\), and no other has'):
        RewardScheme(asking)
    with pytest.raises(ValueError, match=r'has needs=\("ask",\), and no other has'):
        RewardScheme(lambda discussions: Rewards([]), needs=("ask",))
    with pytest.raises(ValueError, match="the reward scheme needs ask, not to be had here"):
        REWARD_SCHEMES["improvement"]([], evidence={})
    with pytest.raises(ValueError, match="returned NoneType and no Rewards"):
        inquiry([], Agents()).hear_out(asking([]))


PLUGIN = """from comas.interaction.asking import Ask
from comas.interaction.prompts import SCORING_ALONE
from comas.types import RewardedDiscussion, Rewards


def second_opinion(discussions):
    solutions = [(d, s) for d in discussions for s in d.children(None, "solution")]
    yield [Ask(d, "scoring", AGENT, SCORING_ALONE, s) for d, s in solutions]
    return Rewards([RewardedDiscussion(d, (1.0,) * len(d.turns)) for d in discussions])
"""


def test_a_plugin_that_yields_asks_and_the_dry_run_says_how_much_or_at_which_line_not(
    tmp_path, caplog
):
    path = written(tmp_path / "second.py", PLUGIN.replace("AGENT", "1"))
    assert REWARD_SCHEMES[f"{path}:second_opinion"].asks
    assert main(arguments_of(tmp_path, f"reward.scheme={path}:second_opinion")) == 0, caplog.text
    assert "second_opinion asks for: 4 scorings (not trained)" in caplog.text
    path = written(tmp_path / "third.py", PLUGIN.replace("AGENT", "5"))
    chosen = f"reward.scheme={path}:second_opinion"
    assert main(arguments_of(tmp_path, chosen)) == EXIT_FAULT
    assert f"{path}, line 8 (second_opinion): ValueError: nobody can be asked so: agent=5" in (
        caplog.text
    )


# ---------------------------------------------------------------- sizes, samples and records


def test_the_dry_run_counts_what_is_asked_for():
    config = load_config(EXPERIMENT, [])
    sizes = derive_sizes(config, num_questions=2400)
    # 2 rounds with a solution of each of 2 agents, each evaluated once.
    assert sizes.asked_per_discussion == {"solution": 4, "scoring": 4}
    line = "after it reward.scheme=improvement asks for: 4 solutions, 4 scorings (not trained)"
    assert line in describe_sizes(config, sizes)
    assert sizes.samples_per_policy == (144, 144)  # 24 x 12 / 2: none of them


def revised(text: str, *, name: str) -> Discussion:
    return replace(criticised(name=name), asked=(replace(REVISION, generation=generation(text)),))


def test_metrics_count_what_agents_were_asked_for_and_what_became_of_solutions():
    held = [revised(str(number), name=str(number)) for number in range(4)]
    before = ["wrong", "correct", "correct", "correct"]
    after = ["correct", "correct", "unanswered", "failed"]
    verdicts = {(str(n), "r0.s0"): verdict for n, verdict in enumerate(before)}
    of_asked = {(str(n), "r0.s0.e0.s0"): verdict for n, verdict in enumerate(after)}
    metrics = asked_metrics(held, verdicts=verdicts, of_asked=of_asked, num_agents=2)
    assert metrics == {
        "asked/turns": 4,
        "asked/truncated_rate": 0.0,
        "asked/accuracy": 0.5,
        "asked/corrected_rate": 1.0,  # 1 of 1
        "asked/harmed_rate": 0.5,  # 1 of 2: the verifier failed on the third
        "agent_0/asked/turns": 4,
        "agent_1/asked/turns": 0,
    }
    assert asked_metrics([criticised()], verdicts={}, of_asked={}, num_agents=2) == {}


def test_what_was_asked_for_is_sampled_but_neither_rewarded_nor_trained():
    plain = RewardedDiscussion(criticised(), (0.0, 1.0, 0.0))
    item = replace(plain, discussion=revised("61", name="d"))
    of_plain, of_item = (rollout_metrics([one], num_agents=3) for one in (plain, item))
    assert of_item["tokens/response"] == of_plain["tokens/response"] + 1
    assert {k: v for k, v in of_item.items() if not k.startswith("tokens/")} == {
        k: v for k, v in of_plain.items() if not k.startswith("tokens/")
    }
    options = {"policy_of_agent": [0, 0, 0], "mask_truncated": True}
    assert collect_samples([item], **options) == collect_samples([plain], **options)


def test_the_record_and_the_page_say_what_the_reward_asked_for():
    item = page_discussion(1)  # answered 71, which is correct, and scored 3
    again = said("r0.s0.e0.s0.t0", ONE, parent=REVISION.turn_id)
    item = replace(item, discussion=replace(item.discussion, asked=(REVISION, again)))
    key = item.discussion.discussion_id
    verdicts = {(key, "r0.s0"): "correct", (key, REVISION.turn_id): "wrong"}
    record = discussion_record(item, verdicts=verdicts)
    assert [t["turn_id"] for t in record["turns"]] == ["r0.s0", "r0.s0.e0", "r0.s0.e0.t0"]
    assert [t["reward"] for t in record["asked"]] == [None, None]
    assert [r["turn_id"] for r in token_records([item.discussion], {})][3:] == [
        "r0.s0.e0.s0",
        "r0.s0.e0.s0.t0",
    ]
    turns = {turn.id: turn for turn in thread_of(json.loads(json.dumps(record)), step=1).turns}
    assert turns["r0.s0"].scores == turns["r0.s0.e0"].scores == (3,)
    assert turns[REVISION.turn_id].role == "solution, asked by the reward"
    assert (turns[REVISION.turn_id].verdict, turns[REVISION.turn_id].scores) == ("wrong", (1,))
    assert turns[again.turn_id].verdict == "wrong" and not turns[again.turn_id].signs
    assert "asked" not in discussion_record(page_discussion(1), verdicts={})


def test_every_schedule_can_be_asked_about(tmp_path):
    for schedule in ("sequential", "parallel"):
        held = discuss([Question("q", "math", "1 + 1?")], num_agents=3, schedule=schedule)
        item = inquiry(held, Agents()).hear_out(improvement_reward(held)).discussions[0]
        evaluations = [t for t in held[0].turns if t.role == "evaluation"]
        assert len(item.discussion.asked) == 2 * len(evaluations) > 0


# ---------------------------------------------------------------- runs


class FrozenScorers(ScriptedAgents):
    """A society that notes by which weights it was asked for what, and is lost as the reward asks
    in the step of its name."""

    def __init__(self, recoveries: Recoveries, *, lost_in: list[str]) -> None:
        super().__init__(recoveries)
        self.asked_by: set[tuple[str, str]] = set()
        self._lost_in, self._weights_of = lost_in, "solver"

    async def generate(
        self, agent: int, prompt: str, *, turn: TurnKey, seed: int, temperature: float | None = None
    ) -> Generation:
        discussion_id, turn_id = turn
        step = discussion_id.partition("/")[0]
        if turn_id.count(".s") > 1:
            if step in self._lost_in:
                self._lost_in.remove(step)
                raise LostEngineError(f"rollout engine 0 was lost in {step}")
            self.asked_by.add(("scorer" if ".t" in turn_id else "solver", self._weights_of))
        return await super().generate(agent, prompt, turn=turn, seed=seed)

    def serve_scorers(self) -> None:
        self._weights_of = "scorer"

    def sync_weights(self, policies: object = None) -> None:
        self._weights_of = "solver"


def train(
    saves: Path, monkeypatch: pytest.MonkeyPatch, *, lost_in: list[str]
) -> tuple[Path, list[FrozenScorers]]:
    """A run of three steps with a checkpoint after each."""
    societies = []

    def agents_of(config: Any, prepared: Any, recoveries: Recoveries) -> FrozenScorers:
        societies.append(FrozenScorers(recoveries, lost_in=lost_in))
        return societies[-1]

    monkeypatch.setattr(driver, "agents_of", agents_of)
    overrides = ["training.num_steps=3", "training.save_every=1", "rollout.batch_size=2"]
    overrides += ["cluster.device=cpu", "society.scorer_weights=frozen", f"saves={saves}"]
    config = load_config(EXPERIMENT, overrides)
    with RunDirectory.create(config) as run:
        driver.train(config, prepare(config), run)
    return run.path, societies


@pytest.mark.stack
def test_a_society_that_is_lost_while_the_reward_asks_repeats_the_step_with_each_ones_weights(
    saves, monkeypatch
):
    undisturbed, _ = train(saves, monkeypatch, lost_in=[])
    disturbed, societies = train(saves, monkeypatch, lost_in=["step2"])
    assert len(societies) == 2
    assert all(
        society.asked_by == {("solver", "solver"), ("scorer", "scorer")} for society in societies
    )
    for file in (undisturbed / "discussions").iterdir():
        assert (disturbed / "discussions" / file.name).read_bytes() == file.read_bytes()
    rows = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    # 2 questions, each with 4 evaluations that are followed by a revision and a scoring.
    assert [row["asked/turns"] for row in rows[1:]] == [16] * 3
    assert all(row["agent_0/asked/turns"] + row["agent_1/asked/turns"] == 16 for row in rows[1:])
