"""A graph of two agents, one with a tool, after LangGraph's first pages, as the program of a
discussion:

interaction.program={command: [/path/to/venv/bin/python, configs/programs/langgraph_agents.py]}
"""

import sys

from langchain_core.messages import HumanMessage
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
    said = reviewer.invoke(f"Is it right? {state['messages'][-1].content}")
    return {"messages": [HumanMessage(said.content)]}


def is_done(state: MessagesState):
    is_right = "right" in state["messages"][-1].content
    return END if is_right or len(state["messages"]) >= 7 else "solve"


graph = StateGraph(MessagesState)
graph.add_node(solve)
graph.add_node(review)
graph.add_node("tools", ToolNode([add]))
graph.add_edge(START, "solve")
graph.add_conditional_edges("solve", tools_condition, {"tools": "tools", END: "review"})
graph.add_edge("tools", "solve")
graph.add_conditional_edges("review", is_done, ["solve", END])
said = graph.compile().invoke({"messages": [{"role": "user", "content": sys.stdin.read()}]})
print([each for each in said["messages"] if each.type == "ai"][-1].content)
