#!/usr/bin/env python3
"""A webhook agent with Python's standard library alone: a hub posts messages, the response is the answer.

    nuncio mailbox create greeter --deliver-to http://127.0.0.1:8080/hook > greeter.key
    ./webhook_agent.py --key-file greeter.key --hub http://127.0.0.1:2602 --port 8080

It greets at once. A message that begins with "slowly" is begun (202), and its lines follow by the pull API.
"""

import argparse
import base64
import hashlib
import hmac
import json
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TOLERANCE_SECONDS = 300
MAX_BODY_BYTES = 16 << 20
MAX_REMEMBERED = 10_000

options = None
answers = {}  # By the id that all deliveries of a message have in common.
answers_lock = threading.Lock()


def read_key():
    with open(options.key_file, encoding="ascii") as file:
        return file.read().strip()


def is_signed(headers, body):
    """True if the hub has signed this body a moment ago: an HMAC by the SHA-256 of the mailbox's key."""
    delivery, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    secret = hashlib.sha256(read_key().encode()).digest()
    signed = f"{delivery}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, one) for one in headers.get("webhook-signature", "").split())


def text_of(message):
    return "".join(part.get("text", "") for part in message.get("parts", []))


def update_url(headers):
    """The address for lines. It is not signed, so the key goes to our own hub only."""
    link = re.search(r'<([^>]*)>\s*;\s*rel="?edit"?', headers.get("Link", ""))
    if link and urlsplit(link[1])[:2] == urlsplit(options.hub)[:2]:
        return link[1]
    return None


def write_lines(url, first, lines):
    """Writes lines until the hub has them. Lines that it has already are dropped by their number."""
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    headers = {"Authorization": f"Bearer {read_key()}", "Nuncio-First": str(first)}
    while True:
        try:
            request = urllib.request.Request(url, body, headers, method="POST")
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return None  # The lease is over: somebody else has the message, or it was canceled.
        except OSError:
            pass
        time.sleep(1)


def work_slowly(url, name):
    first = 1
    for line in [{"text": "hello "}, {"text": name, "last": True}, {"completed": "greeted slowly"}]:
        progress = write_lines(url, first, [line])
        if not progress or progress["cancel"]:
            return
        first += 1


def answer(task, headers):
    """The status and the body of the answer to a message."""
    asked = [message for message in task.get("history", []) if message.get("role") == "ROLE_USER"]
    if not asked:
        return 422, {"detail": "there is no message to answer"}
    text = text_of(asked[-1])
    if text.startswith("slowly"):
        url = update_url(headers)
        if not url:
            return 422, {"detail": "the address for lines is not that of our hub"}
        threading.Thread(target=work_slowly, args=(url, text.removeprefix("slowly").strip()), daemon=True).start()
        return 202, None
    if not text:
        return 422, {"detail": "greet whom?"}
    message = {"messageId": headers["webhook-id"], "role": "ROLE_AGENT", "parts": [{"text": f"hello {text}"}]}
    return 200, {"message": message}


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            return self.give(413, None)
        body = self.rfile.read(length)
        if not is_signed(self.headers, body):
            return self.give(401, {"detail": "the signature does not hold"})
        # A message whose answer got lost is delivered again, as another lease: it gets the same answer.
        repeat = self.headers.get("Idempotency-Key", "")
        with answers_lock:
            given = answers.get(repeat)
        if given is None or given[0] == 202:
            given = answer(json.loads(body)["task"], self.headers)
            with answers_lock:
                answers[repeat] = given
                while len(answers) > MAX_REMEMBERED:
                    del answers[next(iter(answers))]
        self.give(*given)

    def give(self, status, body):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/a2a+json" if status == 200 else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-file", required=True, help="file with the key of the mailbox")
    parser.add_argument("--hub", required=True, help="address of the hub")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Hook)
    print(f"http://127.0.0.1:{server.server_address[1]}/hook", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
