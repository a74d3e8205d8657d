"""The official library of Standard Webhooks, as a receiver and as a sender.

receive FILE: listens on a free port, prints it, and prints a JSON document for each request:
whether it verifies with the secret in FILE, its id and its payload. The first request is
answered with 500.

sign SECRET ID BODY: prints the headers of a request.
"""

import json
import sys
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks.webhooks import Webhook


class Receiver(BaseHTTPRequestHandler):
    """Verifies requests."""

    requests = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(sys.argv[2], encoding="utf-8") as file:
            secret = file.read()
        try:
            payload = Webhook(secret).verify(body, dict(self.headers))
            seen = {"verified": True, "id": self.headers["webhook-id"], "payload": payload}
        except Exception as error:  # reported to the test
            seen = {"verified": False, "error": repr(error)}
        print(json.dumps(seen), flush=True)
        Receiver.requests += 1
        self.send_response(500 if Receiver.requests == 1 else 204)
        self.end_headers()

    def log_message(self, *_):
        """No access log."""


def main():
    if sys.argv[1] == "receive":
        server = HTTPServer(("127.0.0.1", 0), Receiver)
        print(server.server_port, flush=True)
        server.serve_forever()
    secret, message, body = sys.argv[2:5]
    now = datetime.now(timezone.utc)
    headers = {
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message, now, body),
    }
    print(json.dumps(headers))


main()
