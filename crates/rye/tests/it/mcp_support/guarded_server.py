"""An MCP server that lets in who has a token, and the authorization server that gives them.

It prints its address. Whoever opens the page to log in is logged in.
"""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CODES = {}
TOKENS = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, **headers):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        place = urlsplit(self.path)
        if place.path == "/.well-known/oauth-protected-resource":
            self.answer(200, {"resource": HERE + "/mcp", "authorization_servers": [HERE]})
        elif place.path == "/.well-known/oauth-authorization-server":
            self.answer(
                200,
                {
                    "issuer": HERE,
                    "authorization_endpoint": HERE + "/authorize",
                    "token_endpoint": HERE + "/token",
                    "registration_endpoint": HERE + "/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                },
            )
        elif place.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(place.query).items()}
            code = f"code-{len(CODES)}"
            CODES[code] = asked["code_challenge"]
            to = f"{asked['redirect_uri']}?code={code}&state={asked['state']}"
            self.answer(302, Location=to)
        else:
            self.answer(405)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/register":
            redirects = json.loads(body)["redirect_uris"]
            self.answer(201, {"client_id": "me", "redirect_uris": redirects})
        elif self.path == "/token":
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            proof = hashlib.sha256(asked["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(proof).decode().rstrip("=")
            if CODES.pop(asked["code"], None) != proof:
                self.answer(400, {"error": "invalid_grant"})
                return
            token = f"open-sesame-{len(TOKENS)}"
            TOKENS.add(token)
            self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})
        else:
            self.call(json.loads(body))

    def call(self, message):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in TOKENS:
            place = HERE + "/.well-known/oauth-protected-resource"
            self.answer(401, WWW_Authenticate=f'Bearer resource_metadata="{place}"')
            return
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "it is you"}]},
        }
        if "id" not in message:
            self.answer(202)
            return
        result = results[message["method"]]
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


SERVER = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
HERE = f"http://127.0.0.1:{SERVER.server_address[1]}"
print(HERE, flush=True)
SERVER.serve_forever()
