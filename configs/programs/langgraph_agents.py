"""A graph of two agents, one with a tool, after LangGraph's first pages, as the program of a
discussion:

interaction.program={command: [/path/to/venv/bin/python, configs/programs/langgraph_agents.py]}
"""

import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


solver = ChatOpenAI(model="agent_0").bind_tools([add])
reviewer = ChatOpenAI(model="agent_1")


def solve(state: MessagesState):
    return {"messages": [solver.invoke(state["messages"])]}


def review(state: MessagesState):
    answer = state["messages"][-1].content
    return {"messages": [reviewer.invoke(f"Say it in one word: {answer}")]}


graph = StateGraph(MessagesState)
graph.add_node(solve)
graph.add_node(review)
graph.add_node("tools", ToolNode([add]))
graph.add_edge(START, "solve")
graph.add_conditional_edges("solve", tools_condition, {"tools": "tools", END: "review"})
graph.add_edge("tools", "solve")
graph.add_edge("review", END)
said = graph.compile().invoke({"messages": [{"role": "user", "content": sys.stdin.read()}]})
print(said["messages"][-1].content)
