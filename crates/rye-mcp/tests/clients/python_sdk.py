"""The official Python client, calling a server as a model would.

Takes a plan, a JSON document, as its argument, and prints what it saw as another.
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


def told(result):
    """A result as the wire has it."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


class Person:
    """Who is asked, and answers each question with the next answer."""

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
    person = Person()
    options = {"mode": PLAN["mode"], "elicitation_callback": person.answer}
    if PLAN["roots"]:
        options["list_roots_callback"] = roots
    async with Client(server(), **options) as client:
        saw = await everything(client, person)
    print(json.dumps(saw))


async def everything(client, person):
    # A client with roots names no project: the server asks it.
    here = {} if PLAN["roots"] else {"project_path": PLAN["project"]}

    async def call(tool, arguments, **options):
        if tool != "help":
            arguments = {**arguments, **here}
        return told(await client.call_tool(tool, arguments, **options))

    def tool(name, **more):
        return {"item_type": "tool", "item_id": name, **more}

    saw = {"protocol": client.protocol_version, "server": client.server_info.name}
    saw["tools"] = [tool.name for tool in (await client.list_tools()).tools]
    saw["search"] = await call("search", {"query": "greet"})
    saw["load"] = await call("load", tool("greet"))
    saw["execute"] = await call("execute", tool("greet", parameters={"name": "Ada"}))
    saw["fails"] = await call("execute", tool("fails"))
    saw["unsigned"] = await call("execute", tool("fresh"))
    person.answers = [("accept", {"approve": True})]
    saw["sign"] = await call("sign", tool("fresh"))
    saw["asked"] = list(person.asked)
    saw["signed"] = await call("execute", tool("fresh"))
    saw["help"] = await call("help", {})
    saw["wrong"] = await call("load", {"item_type": "tool"})
    saw["approval"] = await approval(person, call, tool)
    saw["cancel"] = await cancel(call, tool)
    # The items of a project are listed where the server knows the project.
    resources = (await client.list_resources()).resources
    saw["resources"] = [str(resource.uri) for resource in resources]
    resource = await client.read_resource("rye://knowledge/rye/items")
    saw["resource"] = told(resource)
    saw["prompts"] = [prompt.name for prompt in (await client.list_prompts()).prompts]
    if PLAN["roots"]:
        saw["prompt"] = told(await client.get_prompt("tidy", {"where": "here"}))
    return saw


async def approval(person, call, tool):
    person.answers = [
        ("decline", None),
        ("accept", {"approve": False}),
        ("accept", {"approve": True}),
    ]
    person.asked.clear()
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
        "asked": person.asked,
    }


async def cancel(call, tool):
    """Cancels a call once it is known to run; what it started must be gone."""
    progress = []
    started = anyio.Event()

    async def heard(done, _total, message):
        progress.append([done, message])
        started.set()

    async with anyio.create_task_group() as group:

        async def slow():
            await call("execute", tool("slow"), progress_callback=heard)

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
