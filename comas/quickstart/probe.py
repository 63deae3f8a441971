"""The quick-start's probe: held-out questions with right solutions and each kind of mistake."""

from random import Random

from comas.quickstart.questions import Problem, draw_problem
from comas.quickstart.worked import Worked, slip, work
from comas.quickstart.world import MISTAKES, SLIP, UNSEEN, UNSEEN_NAMED
from comas.types import DOMAINS, Domain

NUM_RIGHT = 16
"""Right solutions per domain."""
NUM_EACH = 3
"""Solutions per domain and kind of mistake."""


def probe_records(*, seed: int) -> list[dict[str, str | None]]:
    """Items in the format of ``comas.data.probe``.

    Example: ``{"id": "math/carry lost/0", "task": "math", "prompt": "What is 48 + 23?",
    "solution": "8+3=11, 4+2=6. \\\\boxed{61}", "mistake": "carry lost", "true_accusation":
    "Mistake: a carry is lost.", "false_accusation": "Mistake: the tens are left out."}``
    """
    rng = Random(f"{seed}/probe")
    records: list[dict[str, str | None]] = []
    for domain in DOMAINS:
        named = MISTAKES[domain] | {UNSEEN: UNSEEN_NAMED[domain]}
        counts: dict[str | None, int] = {None: NUM_RIGHT} | dict.fromkeys(named, NUM_EACH)
        for mistake, count in counts.items():
            for number in range(count):
                problem, solution = _plant(rng, domain, mistake)
                others = [name for kind, name in MISTAKES[domain].items() if kind != mistake]
                records.append(
                    {
                        "id": f"{domain}/{mistake or 'right'}/{number}",
                        "task": domain,
                        "prompt": problem.text,
                        "solution": solution.text,
                        "mistake": mistake,
                        "true_accusation": named[mistake] if mistake else None,
                        "false_accusation": rng.choice(others),
                    }
                )
    return records


def _plant(rng: Random, domain: Domain, mistake: str | None) -> tuple[Problem, Worked]:
    """Return a held-out question and a solution that makes the mistake."""
    while True:
        problem = draw_problem(rng, domain=domain, held_out=True)
        solution = slip(rng, problem) if mistake == SLIP else work(problem, mistake)
        if solution.mistake == mistake:
            return problem, solution
