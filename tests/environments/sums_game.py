"""An environment that answers turns by itself."""

import sums_rubric
import verifiers as vf


class Game(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return []


def load_environment() -> vf.Environment:
    rubric = vf.Rubric(funcs=[sums_rubric.ends_with_answer])
    rows = [{"question": "1 + 1?", "answer": "2"}]
    dataset = sums_rubric.Dataset.from_list(rows)
    return Game(dataset=dataset, system_prompt="Add.", rubric=rubric)
