"""Exercises an agent with the official Python SDK.

Takes a plan as a JSON argument and prints a report as JSON, like typescript_sdk.mjs.
"""

import asyncio
import json
import sys
from pathlib import Path

import acp
from acp import schema

plan = json.loads(sys.argv[1])
REQUESTS = {
    "authenticate": ("authenticate", schema.AuthenticateRequest),
    "session/new": ("new_session", schema.NewSessionRequest),
    "session/load": ("load_session", schema.LoadSessionRequest),
    "session/list": ("list_sessions", schema.ListSessionsRequest),
    "session/prompt": ("prompt", schema.PromptRequest),
    "session/close": ("close_session", schema.CloseSessionRequest),
    "session/set_mode": ("set_session_mode", schema.SetSessionModeRequest),
    "session/set_config_option": (
        "set_config_option",
        schema.SetSessionConfigOptionSelectRequest,
    ),
}


def dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def keywords(model):
    return {name: getattr(model, name) for name in type(model).model_fields if name != "field_meta"}


class User(acp.Client):
    """The user, with unsaved buffers by path."""

    def __init__(self):
        self.buffers = dict(plan.get("buffers", {}))
        self.begin({})

    def begin(self, step):
        self.step = step
        self.seen = {"updates": [], "permissions": [], "reads": [], "writes": [], "forms": []}
        self.asked = asyncio.Event()

    def on_connect(self, conn):
        self.agent = conn

    async def session_update(self, session_id, update, **_):
        self.seen["updates"].append(dump(update))
        if self.step.get("cancelOn") == update.session_update:
            del self.step["cancelOn"]
            await self.agent.cancel(session_id=session_id)

    async def request_permission(self, session_id, tool_call, options, **_):
        request = {"toolCall": dump(tool_call), "options": [dump(it) for it in options]}
        self.seen["permissions"].append({"sessionId": session_id, **request})
        self.asked.set()
        answers = self.step.get("answers", [])
        answer = answers.pop(0) if answers else "cancel"
        if answer == "leave":
            await asyncio.Event().wait()
        if answer == "cancel":
            outcome = schema.DeniedOutcome(outcome="cancelled")
        else:
            outcome = schema.AllowedOutcome(outcome="selected", option_id=answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id, path, **_):
        self.seen["reads"].append(path)
        content = self.buffers.get(path)
        content = Path(path).read_text() if content is None else content
        return schema.ReadTextFileResponse(content=content)

    async def write_text_file(self, session_id, path, content, **_):
        self.seen["writes"].append(path)
        self.buffers.pop(path, None)
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()


async def request(agent, method, params):
    name, model = REQUESTS[method]
    try:
        result = await getattr(agent, name)(**keywords(model.model_validate(params)))
        return {"result": dump(result) if result is not None else {}}
    except acp.RequestError as error:
        return {"error": {"code": error.code, "message": str(error), "data": error.data}}


class Agent:
    """The agent's process, and the connection to it."""

    async def start(self, user):
        command, *args = plan["command"]
        self.context = acp.spawn_agent_process(
            user, command, *args, env=plan["env"], cwd=plan["cwd"], transport_kwargs={"stderr": None}
        )
        self.connection, self.process = await self.context.__aenter__()
        result = await self.connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities.model_validate(
                plan.get("capabilities", {})
            ),
            client_info=schema.Implementation(name="test", version="1.0.0"),
        )
        return {"result": dump(result)}

    async def stop(self):
        await self.context.__aexit__(None, None, None)
        return self.process.returncode


async def main():
    user, agent = User(), Agent()
    report = {"initialize": await agent.start(user), "steps": []}
    session = plan.get("session")
    for step in plan["steps"]:
        user.begin(step)
        if step.get("restart"):
            agent.process.kill()
            await agent.stop()
            outcome = await agent.start(user)
        else:
            params = dict(step["params"])
            if params.get("sessionId") == "$session":
                params["sessionId"] = session
            outcome = await request(agent.connection, step["method"], params)
            session = outcome.get("result", {}).get("sessionId", session)
            # A pending permission is asked after the response.
            if step.get("awaitsPermission"):
                await asyncio.wait_for(user.asked.wait(), 30)
        report["steps"].append({**outcome, **user.seen})
    report["session"] = session
    report["exit"] = await agent.stop()
    print(json.dumps(report))


asyncio.run(main())
