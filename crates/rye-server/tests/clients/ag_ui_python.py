"""Checks the events of `/ag-ui` with the types of the official Python package.

Usage: ag_ui_python.py URL TOKEN. The agent follows the script in `serve_clients.rs`.
"""

import json
import sys
import urllib.request

from ag_ui.core import Event, RunAgentInput, UserMessage
from pydantic import TypeAdapter

URL, TOKEN = sys.argv[1:]
EVENTS = TypeAdapter(Event)


def run(text):
    """The events of a run, validated."""
    body = RunAgentInput(
        thread_id="python",
        run_id=text,
        state={},
        messages=[UserMessage(id=text, role="user", content=text)],
        tools=[],
        context=[],
        forwarded_props={},
    ).model_dump_json(by_alias=True)
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + "/ag-ui", body.encode(), headers)
    with urllib.request.urlopen(request) as response:
        lines = response.read().decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [EVENTS.validate_python(json.loads(line)) for line in data]


def check_events(prompt, outcome):
    events = run(prompt)
    assert events[0].type == "RUN_STARTED" and events[-1].type == "RUN_FINISHED", events
    assert events[-1].outcome.type == outcome, events[-1]


def scenario(client, name, check, *arguments):
    """Carries out a scenario. `cargo xtask docs` lists them in docs/clients/README.md."""
    try:
        check(*arguments)
    except BaseException:
        print(f"{client}: {name}", file=sys.stderr)
        raise


scenario("ag-ui-python", "events of a run are valid", check_events, "one", "success")
scenario("ag-ui-python", "events of the next run are valid", check_events, "two", "success")
scenario("ag-ui-python", "events of a run that waits for a decision are valid", check_events, "three", "interrupt")
