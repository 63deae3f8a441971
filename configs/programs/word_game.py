"""Two players name words in turn: each begins with the last letter of the word before, and none is
said twice. Who cannot go on loses. ``word_game.yaml`` trains both."""

from openai import AsyncOpenAI

MAX_MOVES = 6
RULES = (
    "We name English words in turn. Yours must begin with {letter!r} and must not be one of: "
    "{words}. Say one word."
)


async def play(question, base_url):
    words, letter = [], "abcdefghijklmnopqrstuvwxyz"[len(question.text) % 26]
    async with AsyncOpenAI(base_url=base_url, api_key="none is needed") as client:
        for move in range(MAX_MOVES):
            player = move % 2
            reply = await client.chat.completions.create(
                model=f"agent_{player}",
                messages=[
                    {
                        "role": "user",
                        "content": RULES.format(letter=letter, words=", ".join(words) or "none"),
                    }
                ],
                metadata={"role": ("first_player", "second_player")[player]},
                max_tokens=16,
            )
            word = reply.choices[0].message.content.strip().lower()
            if not word.isalpha() or word[0] != letter or word in words:
                return {f"agent_{player}": -1.0, f"agent_{1 - player}": 1.0}
            words.append(word)
            letter = word[-1]
    return 0.0  # a draw
