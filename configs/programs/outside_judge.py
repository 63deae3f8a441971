"""The society's agents solve, and a model outside of it, at an OpenAI-compatible address, rewards
each solution. ``outside_judge.yaml`` trains them."""

import os
import re

from openai import AsyncOpenAI

from comas.interaction.prompts import SOLUTION, fill

ASKED = (
    "Question:\n{question}\n\nAnswer:\n{answer}\n\n"
    "How likely is the answer correct? Say one number from 0 to 10."
)


async def solve(question, base_url):
    agents = AsyncOpenAI(base_url=base_url, api_key="none is needed")
    judge = AsyncOpenAI(
        base_url=os.environ.get("JUDGE_URL", "http://127.0.0.1:8000/v1"),
        api_key=os.environ.get("JUDGE_KEY", "none"),
        max_retries=20,  # a server that restarts is waited for
    )
    rewards = {}
    async with agents, judge:
        for agent in ("agent_0", "agent_1"):
            # The tiny agents only know the shipped wording.
            prompt = fill(SOLUTION, question.domain, question=question.text)
            solution = await ask(agents, agent, prompt)
            answer = solution.choices[0].message.content
            model = os.environ.get("JUDGE_MODEL", "Qwen/Qwen2.5-7B-Instruct")
            verdict = await ask(judge, model, ASKED.format(question=question.text, answer=answer))
            if number := re.search(r"\d+", verdict.choices[0].message.content or ""):
                rewards[solution.id] = min(int(number[0]), 10) / 10  # the id names the turn
    return rewards


async def ask(client, model, prompt):
    return await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}]
    )
