"""A proxy between a client and tidings that injects faults and records requests.

A test sets the faults of the next requests in advance, so no fault depends on chance or time.
Request targets are recorded byte for byte.
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
        pass  # clients close connections

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server_port}"


class Proxy:
    """Forwards requests to `server_url` or `idle_url`, and applies the next fault to each request.

    The faults are: `pass`; `cut`, close the connection before reading a request; `drop` the request; `lose`
    the response; `hold` the request until `release`, then drop it; `drip`, send a response without end; or
    `{"status", "headers", "body", "forward"}`, send this response. With `forward`, the server gets the request,
    and its response gets these headers.
    """

    def __init__(self, server_url, idle_url):
        self.server, self.idle = urlsplit(server_url).netloc, urlsplit(idle_url).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a response is two writes

            def log_message(self, *_):
                pass

            def handle(self):
                if proxy.faults and proxy.faults[0] == "cut":
                    proxy.record({"fault": proxy.faults.pop(0)})
                else:
                    super().handle()

            def do_GET(self):
                proxy.handle(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        self.calls = set()  # methods and paths of all forwarded requests; `reset` keeps them
        self.reset()
        self.url = Server(("127.0.0.1", 0), Handler).start()

    def reset(self, faults=(), idle=False):
        """Deletes the recorded requests. With `idle`, requests go to the server without a worker."""
        self.upstream = self.idle if idle else self.server
        self.faults, self.requests, self.released = list(faults), [], threading.Event()

    def release(self):
        self.released.set()

    def record(self, entry):
        self.requests.append(entry)
        return entry

    def handle(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault, released = (self.faults.pop(0) if self.faults else "pass"), self.released
        headers = {name.lower(): value for name, value in request.headers.items()}
        # `path` merges slashes at its start; the request line keeps them.
        target = request.requestline.split(" ")[1]
        entry = self.record({
            "fault": fault, "method": request.command, "target": target, "headers": headers,
            "body": body.decode(), "status": None, "interval": None,
        })
        if fault == "hold":
            released.wait(30)
        if fault in ("drop", "hold"):
            return self.hang_up(request)
        if fault == "drip":
            return self.drip(request, released)
        if isinstance(fault, dict) and not fault.get("forward"):
            entry["status"] = fault["status"]
            value = fault.get("body", {})
            text = value if isinstance(value, str) else json.dumps(value)
            return self.send(request, fault["status"], fault.get("headers", {}), text.encode())
        self.calls.add((request.command, target.partition("?")[0]))
        response, text = self.forward(request.command, target, request.headers, body)
        entry["status"] = response.status
        entry["interval"] = response.getheader("X-Poll-Interval")
        if fault == "lose":
            return self.hang_up(request)
        headers = {name: value for name, value in response.getheaders()
                   if name.lower() not in ("transfer-encoding", "content-length", "connection")}
        if isinstance(fault, dict):
            headers.update(fault.get("headers", {}))
        return self.send(request, response.status, headers, text)

    def forward(self, method, target, headers, body):
        connection = http.client.HTTPConnection(self.upstream, timeout=30)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding"):
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def hang_up(self, request):
        request.close_connection = True
        request.connection.shutdown(socket.SHUT_RDWR)

    def drip(self, request, released):
        request.close_connection = True
        try:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not released.wait(0.05):
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


def start_control_server(proxy):
    """Lets tests in other languages control the proxy over HTTP. Each response lists the recorded requests."""

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
            proxy.send(self, 200, {}, json.dumps(proxy.requests).encode())

    return Server(("127.0.0.1", 0), Handler).start()
