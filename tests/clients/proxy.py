"""What stands between a client and tidings, and goes wrong when it is told to.

The rule: it is told beforehand what happens to which of the next requests, so nothing depends on
chance or time. What came is kept as it came, the target of the request to the byte.
"""

import http.client
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients hang up

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server_port}"


class Proxy:
    """A fault is `pass`, `cut` (the connection, before a request is read), `drop` (the request),
    `lose` (the answer), `hold` (until `release`, then dropped), `drip` (an answer without end),
    or `{"status", "headers", "body", "forward"}`: another answer, `forward` after the true one."""

    def __init__(self, behind, idle):
        self.before, self.idle = urlsplit(behind).netloc, urlsplit(idle).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # an answer is two writes

            def log_message(self, *_):
                pass

            def handle(self):
                if proxy.faults and proxy.faults[0] == "cut":
                    proxy.note({"fault": proxy.faults.pop(0)})
                else:
                    super().handle()

            def do_GET(self):
                proxy.answer(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        self.ever = set()  # all methods and paths that tidings was asked
        self.reset()
        self.url = Server(("127.0.0.1", 0), Handler).start()

    def reset(self, faults=(), idle=False):
        """Forgets all; from now on it stands before tidings, or before one that has no worker."""
        self.behind = self.idle if idle else self.before
        self.faults, self.seen, self.held = list(faults), [], threading.Event()

    def release(self):
        self.held.set()

    def note(self, entry):
        self.seen.append(entry)
        return entry

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault, held = (self.faults.pop(0) if self.faults else "pass"), self.held
        headers = {name.lower(): value for name, value in request.headers.items()}
        # `path` has lost a second slash at its start; the request line has not.
        target = request.requestline.split(" ")[1]
        entry = self.note({
            "fault": fault, "method": request.command, "target": target, "headers": headers,
            "body": body.decode(), "status": None, "interval": None,
        })
        if fault == "hold":
            held.wait(30)
        if fault in ("drop", "hold"):
            return self.hang_up(request)
        if fault == "drip":
            return self.drip(request, held)
        if isinstance(fault, dict) and not fault.get("forward"):
            entry["status"] = fault["status"]
            said = fault.get("body", {})
            text = said if isinstance(said, str) else json.dumps(said)
            return self.send(request, fault["status"], fault.get("headers", {}), text.encode())
        self.ever.add((request.command, target.partition("?")[0]))
        answer, text = self.ask(request.command, target, request.headers, body)
        entry["status"] = answer.status
        entry["interval"] = answer.getheader("X-Poll-Interval")
        if fault == "lose":
            return self.hang_up(request)
        kept = {name: value for name, value in answer.getheaders()
                if name.lower() not in ("transfer-encoding", "content-length", "connection")}
        if isinstance(fault, dict):
            kept.update(fault.get("headers", {}))
        return self.send(request, answer.status, kept, text)

    def ask(self, method, target, headers, body):
        behind = http.client.HTTPConnection(self.behind, timeout=30)
        try:
            behind.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding"):
                    behind.putheader(name, value)
            behind.endheaders(body or None)
            answer = behind.getresponse()
            return answer, answer.read()
        finally:
            behind.close()

    def hang_up(self, request):
        request.close_connection = True
        request.connection.shutdown(socket.SHUT_RDWR)

    def drip(self, request, held):
        request.close_connection = True
        try:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not held.wait(0.05):
                request.wfile.write(b" ")
        except OSError:
            pass

    def send(self, request, status, headers, body):
        try:
            request.send_response_only(status)
            for name, value in headers.items():
                request.send_header(name, value)
            if status not in (204, 304):
                request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            if status not in (204, 304):
                request.wfile.write(body)
        except OSError:
            request.close_connection = True


def remote(proxy):
    """A server through which tests in another language tell the proxy, and ask what it saw."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path in ("/reset", "/idle"):
                proxy.reset(json.loads(body), self.path == "/idle")
            elif self.path == "/release":
                proxy.release()
            proxy.send(self, 200, {}, json.dumps(proxy.seen).encode())

    return Server(("127.0.0.1", 0), Handler).start()
