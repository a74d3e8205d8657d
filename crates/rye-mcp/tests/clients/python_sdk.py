"""Exercises a server with the official Python SDK.

Takes a plan as a JSON argument and prints a report as JSON.
"""

import json
import sys
from pathlib import Path

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters

PLAN = json.loads(sys.argv[1])


def server():
    if "url" in PLAN:
        return PLAN["url"]
    return StdioServerParameters(
        command=PLAN["command"][0], args=PLAN["command"][1:], env=PLAN["env"], cwd=PLAN["cwd"]
    )


def to_json(result):
    """A result as on the wire."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


class User:
    """Answers each elicitation with the next prepared answer."""

    def __init__(self):
        self.asked = []
        self.answers = []

    async def answer(self, _context, params):
        self.asked.append(params.message)
        action, content = self.answers.pop(0)
        return types.ElicitResult(action=action, content=content)


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri=Path(PLAN["project"]).as_uri())])


async def main():
    user = User()
    options = {"mode": PLAN["mode"], "elicitation_callback": user.answer}
    if PLAN["roots"]:
        options["list_roots_callback"] = roots
    async with Client(server(), **options) as client:
        report = await exercise(client, user)
    print(json.dumps(report))


async def exercise(client, user):
    # With roots, the server requests the project from the client.
    project = {} if PLAN["roots"] else {"project_path": PLAN["project"]}

    async def call(tool, arguments, **options):
        if tool != "help":
            arguments = {**arguments, **project}
        return to_json(await client.call_tool(tool, arguments, **options))

    def tool(name, **more):
        return {"item_type": "tool", "item_id": name, **more}

    report = {"protocol": client.protocol_version, "server": client.server_info.name}
    report["tools"] = [tool.name for tool in (await client.list_tools()).tools]
    report["search"] = await call("search", {"query": "greet"})
    report["load"] = await call("load", tool("greet"))
    report["execute"] = await call("execute", tool("greet", parameters={"name": "Ada"}))
    report["fails"] = await call("execute", tool("fails"))
    report["unsigned"] = await call("execute", tool("fresh"))
    user.answers = [("accept", {"approve": True})]
    report["sign"] = await call("sign", tool("fresh"))
    report["asked"] = list(user.asked)
    report["signed"] = await call("execute", tool("fresh"))
    report["help"] = await call("help", {})
    report["wrong"] = await call("load", {"item_type": "tool"})
    report["approval"] = await approval(user, call, tool)
    report["cancel"] = await cancel(call, tool)
    # Project items are listed only if the server knows the project.
    resources = (await client.list_resources()).resources
    report["resources"] = [str(resource.uri) for resource in resources]
    resource = await client.read_resource("rye://knowledge/rye/items")
    report["resource"] = to_json(resource)
    report["prompts"] = [prompt.name for prompt in (await client.list_prompts()).prompts]
    if PLAN["roots"]:
        report["prompt"] = to_json(await client.get_prompt("tidy", {"where": "here"}))
    return report


async def approval(user, call, tool):
    user.answers = [
        ("decline", None),
        ("accept", {"approve": False}),
        ("accept", {"approve": True}),
    ]
    user.asked.clear()
    declined = await call("execute", tool("careful"))
    unticked = await call("execute", tool("careful"))
    ran = Path(PLAN["project"], "approved").exists()
    approved = await call("execute", tool("careful"))
    return {
        "declined": declined,
        "unticked": unticked,
        "ran_unapproved": ran,
        "approved": approved,
        "ran": Path(PLAN["project"], "approved").exists(),
        "asked": user.asked,
    }


async def cancel(call, tool):
    """Cancels a running call; its process must end."""
    progress = []
    started = anyio.Event()

    async def on_progress(done, _total, message):
        progress.append([done, message])
        started.set()

    async with anyio.create_task_group() as group:

        async def slow():
            await call("execute", tool("slow"), progress_callback=on_progress)

        group.start_soon(slow)
        with anyio.fail_after(20):
            await started.wait()
        group.cancel_scope.cancel()
    pid = Path(PLAN["project"], "pid")
    process = Path("/proc", pid.read_text().strip())
    with anyio.move_on_after(20):
        while process.exists():
            await anyio.sleep(0.01)
    gone = not process.exists()
    pid.unlink()
    return {"progress": progress, "gone": gone, "after": await call("help", {})}


anyio.run(main)
