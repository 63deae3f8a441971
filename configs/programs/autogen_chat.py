"""Two agents of AutoGen's first pages, one with a tool, as the program of a discussion:

interaction.program={command: [/path/to/venv/bin/python, configs/programs/autogen_chat.py]}
"""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

# What AutoGen has to be told of a model that it does not know.
INFO = dict.fromkeys(("vision", "json_output", "structured_output"), False)
MODEL_INFO = {**INFO, "function_calling": True, "family": "unknown"}


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def main() -> None:
    models = [
        OpenAIChatCompletionClient(model=f"agent_{i}", model_info=MODEL_INFO) for i in range(2)
    ]
    primary = AssistantAgent(
        "primary",
        model_client=models[0],
        tools=[add],
        system_message="You are a helpful AI assistant.",
        reflect_on_tool_use=True,
        model_client_stream=True,
    )
    critic = AssistantAgent(
        "critic",
        model_client=models[1],
        system_message="Provide constructive feedback. Respond with 'APPROVE' when addressed.",
    )
    approved = TextMentionTermination("APPROVE")
    team = RoundRobinGroupChat([primary, critic], termination_condition=approved, max_turns=6)
    result = await team.run(task=sys.stdin.read())
    print([said for said in result.messages if said.source == "primary"][-1].content)
    for model in models:
        await model.close()


asyncio.run(main())
