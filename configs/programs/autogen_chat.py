"""The agent with a tool of AutoGen's first page, as the program of a discussion:

interaction.program={command: [/path/to/venv/bin/python, configs/programs/autogen_chat.py]}
"""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

# What AutoGen has to be told of a model that it does not know.
INFO = dict.fromkeys(("vision", "json_output", "structured_output"), False)
MODEL_INFO = {**INFO, "function_calling": True, "family": "unknown"}


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def main() -> None:
    model_client = OpenAIChatCompletionClient(model="agent_0", model_info=MODEL_INFO)
    agent = AssistantAgent(
        name="assistant",
        model_client=model_client,
        tools=[add],
        system_message="You are a helpful assistant.",
        reflect_on_tool_use=True,
        model_client_stream=True,
    )
    result = await agent.run(task=sys.stdin.read())
    print(result.messages[-1].content)
    await model_client.close()


asyncio.run(main())
