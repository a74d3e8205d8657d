"""Runs a chain of nodes that each add one with LangGraph and prints the seconds per node."""

import os
import sqlite3
import sys
import tempfile
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

length, mode = int(sys.argv[1]), sys.argv[2]


class State(TypedDict):
    n: int


graph = StateGraph(State)
before = START
for index in range(length):
    graph.add_node("n%d" % index, lambda state: {"n": state["n"] + 1})
    graph.add_edge(before, "n%d" % index)
    before = "n%d" % index
graph.add_edge(before, END)
config = {"recursion_limit": length + 10}
with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
    if mode == "memory":
        app = graph.compile()
    else:
        connection = sqlite3.connect(os.path.join(directory, "saved.db"), check_same_thread=False)
        saver = SqliteSaver(connection)
        saver.setup()
        app = graph.compile(checkpointer=saver)
    durability = {"durability": "sync"} if mode == "sync" else {}
    best = None
    # As many rounds as fit into a few seconds; the first one is a warm-up.
    turn, until = 0, time.perf_counter() + 4
    while turn < 2 or (turn < 6 and time.perf_counter() < until):
        config["configurable"] = {"thread_id": str(turn)}
        start = time.perf_counter()
        output = app.invoke({"n": 0}, config, **durability)
        took = time.perf_counter() - start
        assert output["n"] == length, output
        if turn:
            best = took if best is None else min(best, took)
        turn += 1
print(best / length)
