"""The agent of smolagents' first page, which acts by writing code, as the program of a discussion:

interaction.program={command: [/path/to/venv/bin/python, configs/programs/smolagents_code.py]}

Its system prompt alone has some 2,500 tokens, and its code runs with this program's rights.
"""

import os
import sys

from smolagents import CodeAgent, LogLevel, OpenAIModel

model = OpenAIModel(
    model_id="agent_0",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
agent = CodeAgent(tools=[], model=model, max_steps=4, verbosity_level=LogLevel.OFF)
print(agent.run(sys.stdin.read()))
