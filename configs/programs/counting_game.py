"""Two players count on in turn, each adding the same number to the one said last; the first to err
loses. ``counting_game.yaml`` trains both."""

from random import Random

from openai import OpenAI

from comas.interaction.prompts import SOLUTION, fill
from comas.verification.boxed import last_boxed

CLIENT = OpenAI(api_key="none is needed")  # one for all games: to make one takes 50 ms of CPU
MAX_MOVES = 8
ROLES = ("first_player", "second_player")


def play(question, base_url):
    ask = CLIENT.with_options(base_url=base_url).chat.completions.create
    rng = Random(question.question_id)
    said, step, opener = rng.randint(10, 99), rng.randint(10, 99), rng.randrange(2)
    for move in range(MAX_MOVES):
        player = (opener + move) % 2
        # The tiny agents only know the shipped wording.
        prompt = fill(SOLUTION, "math", question=f"What is {said} + {step}?")
        reply = ask(
            model=f"agent_{player}",
            messages=[{"role": "user", "content": prompt}],
            metadata={"role": ROLES[move % 2]},
        )
        if last_boxed(reply.choices[0].message.content) != str(said + step):
            return {f"agent_{player}": -1.0, f"agent_{1 - player}": 1.0}
        said = 10 + (said + step) % 90  # two digits, as they know
    return 0.0  # a draw
