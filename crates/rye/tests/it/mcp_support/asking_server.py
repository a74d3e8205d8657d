"""An MCP server over stdio whose tool asks the person something before it answers."""

import json
import sys

CAN_ASK = False
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where to"},
        "nights": {"type": "integer", "default": 2},
    },
    "required": ["city"],
}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params, id = message["method"], message.get("params") or {}, message["id"]
    if method == "initialize":
        CAN_ASK = "elicitation" in params["capabilities"]
        version = params["protocolVersion"]
        me = {"name": "asking", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": me}
    elif method == "tools/list":
        tool = {"name": "book", "description": "Books", "inputSchema": {"type": "object"}}
        result = {"tools": [tool]}
    else:
        words = "nobody can be asked"
        if CAN_ASK:
            form = {"message": "Where do you go?", "requestedSchema": SCHEMA}
            send(id="question", method="elicitation/create", params=form)
            answer = {}
            while answer.get("id") != "question":
                answer = json.loads(sys.stdin.readline())
            words = json.dumps(answer["result"], sort_keys=True)
        result = {"content": [{"type": "text", "text": words}]}
    send(id=id, result=result)
