"""An endpoint of webhooks as somebody else writes it: Python's HTTP server, and the signatures by
Python's hmac."""

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stack import port_free

TOLERANCE_S = 300


@dataclass
class Request:
    path: str
    headers: dict
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def id(self):
        return self.headers["webhook-id"]

    @property
    def events(self):
        return json.loads(self.body)

    @property
    def event_ids(self):
        return [event["id"] for event in self.events]

    def signatures(self):
        return self.headers["webhook-signature"].split(" ")

    def is_signed(self, secret):
        """By https://www.standardwebhooks.com, as a receiver checks it."""
        at = int(self.headers["webhook-timestamp"])
        assert abs(time.time() - at) < TOLERANCE_S
        key = base64.b64decode(secret.removeprefix("whsec_"))
        content = f"{self.id}.{at}.".encode() + self.body
        digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return any(hmac.compare_digest(f"v1,{digest}", one) for one in self.signatures())


class Endpoint:
    """answer(request): a status, or (status, headers, body); it may wait. Default: 204."""

    def __init__(self, answer=None, certificate=None):
        self.answer = answer or (lambda request: 204)
        self.requests = []
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.port = port_free()
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.server.daemon_threads = True
        self.scheme = "https" if certificate else "http"
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
            self.server.socket = self.context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def _handler(self):
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                with endpoint.lock:
                    endpoint.connections += 1
                super().setup()

            def do_POST(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                length = int(headers["content-length"])
                request = Request(self.path, headers, self.rfile.read(length))
                told = endpoint.take(request)
                status, head, body = told if isinstance(told, tuple) else (told, {}, b"")
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(body)), **head}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the client has gone

            def log_message(self, *_):
                pass

        return Handler

    def take(self, request):
        with self.lock:
            self.requests.append(request)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self.answer(request)
        finally:
            with self.lock:
                self.at_once -= 1

    def url(self, path="/hook", host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.port}{path}"

    @property
    def event_ids(self):
        return [one for request in self.requests for one in request.event_ids]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def certificate_make(folder, name):
    """A file with a key and a certificate of its own for that name or address."""
    path = folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "1", "-subj", f"/CN={name}", "-addext", f"subjectAltName={name}"]
        + ["-keyout", path, "-out", folder / f"{name}.crt"],
        check=True,
        capture_output=True,
    )
    with open(path, "a", encoding="ascii") as file:
        file.write((folder / f"{name}.crt").read_text("ascii"))
    return path
