"""Servers for tests: tidings with a store of its own, and a web site that forwards requests to it.

The content security policy of the site forbids inline code and requires trusted types. All requests of the browser
to tidings go through the site, so that a test can count them, expire a token, or simulate a failure.
"""

import json
import os
import queue
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEY = "the-key-of-the-browser-tests"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
STYLE = """
:root { color-scheme: light dark; } body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
header { display: flex; align-items: center; justify-content: space-between; padding: 12px 24px; }
main { padding: 0 24px; max-width: 40rem; }
"""
# The application sets the element's attributes from the query, and records the events of the widget.
APP = """
import '/widget.js';
const query = new URLSearchParams(location.search);
window.received = [];
window.details = [];
for (const name of ['open', 'item', 'error', 'new', 'count']) {
  document.addEventListener('tidings-' + name, event => {
    window.received.push(name);
    window.details.push(event.detail);
    if (name === 'item' && query.has('stay')) event.preventDefault();
  });
}
window.inbox = document.createElement('tidings-inbox');
for (const [name, value] of query) {
  if (!['stay', 'refresh', 'dir', 'lang'].includes(name)) inbox.setAttribute(name, value);
}
if (query.has('refresh')) inbox.getToken = async () => (await fetch('/token')).text();
document.querySelector('header').append(inbox);
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=20):
    """Waits until `condition()` is true, and returns its result. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition was not met within {seconds} seconds"
        time.sleep(0.05)
    return result


def end(process):
    """Ends a process with SIGTERM. Kills it and raises if it runs for 30 more seconds."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


class Tidings:
    """The server under test."""

    def __init__(self, binary, folder, more="", *options, store="sqlite:tidings.db"):
        self.url = f"http://127.0.0.1:{free_port()}"
        config = folder / "tidings.toml"
        config.write_text(f'store = "{store}"\n[server]\nkey = "{KEY}"\nlisten = "{self.url[7:]}"\n{more}')
        self.log = open(folder / "tidings.log", "wb")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        command = [binary, "serve", "--config", config, *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        try:
            wait_until(self.is_ready)
            with urllib.request.urlopen(self.url + "/widget.js", timeout=20) as response:
                self.widget = response.read()
        except BaseException:
            self.stop()
            raise

    def is_ready(self):
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return self.ask("GET", "/readyz") is not None
        except OSError:
            return False

    def ask(self, method, path, body=None):
        """Sends a request with the server's key, and returns the JSON of the response. Fails if it is an error."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                is_json = "json" in response.headers.get("Content-Type", "")
                return json.loads(response.read() or b"{}") if is_json else {}
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None

    def counts(self, user):
        return self.ask("GET", f"/v1/users/{user}/feed/count")

    def publish(self, user, items):
        """Publishes an event for each item, and waits until all are in the user's feed.

        An item has the fields of an object, and those of its event in `event`.
        """
        before = self.counts(user)["unread"]
        objects, events = [], []
        for item in items:
            event = {"type": "Comment", "at": timestamp(0), **item.pop("event", {})}
            item.setdefault("id", f"Thing:{user}-{len(objects)}-{before}")
            objects.append(item)
            events.append({**event, "objects": [item["id"]], "to": [user]})
        self.ask("POST", "/v1/objects", objects)
        self.ask("POST", "/v1/events", events)
        wait_until(lambda: self.counts(user)["unread"] == before + len(items))

    def stop(self):
        with self.log:
            end(self.process)


def timestamp(minutes_ago):
    moment = datetime.now(timezone.utc) - timedelta(minutes=minutes_ago)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class Site:
    """The web site. Tests set its fields to change its responses."""

    def __init__(self, tidings):
        self.tidings = tidings
        self.reset()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                site.handle(self)

            do_POST = do_PUT = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # browsers close connections early
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.is_down = self.is_slow = False
        self.refusal_status = None  # the status of all responses, unless None
        self.style, self.policy = STYLE, POLICY
        self.tokens = {"good"}
        self.next_token = "good"
        self.open_streams = None  # if None, tidings serves the streams
        self.requests = []

    def page(self, user, **attributes):
        return f"{self.url}/?" + urllib.parse.urlencode({"user": user, "token": "good", **attributes})

    def requests_to(self, method, part):
        """Returns the requests whose paths contain `part`."""
        return [entry for entry in list(self.requests) if entry["method"] == method and part in entry["path"]]

    def send_event(self, counts):
        """Sends an event on each open stream."""
        wait_until(lambda: self.open_streams)
        for events in self.open_streams:
            events.put(counts)

    def handle(self, request):
        path, _, query = request.path.partition("?")
        if path == "/":
            parameters = dict(urllib.parse.parse_qsl(query))
            language, direction = parameters.get("lang", "en"), parameters.get("dir", "ltr")
            body = (
                f'<!DOCTYPE html><html lang="{language}" dir="{direction}"><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1"><title>A page</title>'
                '<link rel="stylesheet" href="/style.css"><header><b>The works</b></header>'
                '<main><h1>A page</h1><p>It has a bell.</p></main>'
                '<script type="module" src="/app.js"></script></html>'
            )
            headers = {"Content-Security-Policy": self.policy}
            return self.respond(request, 200, "text/html; charset=utf-8", body.encode(), headers)
        if path == "/app.js":
            return self.respond(request, 200, "text/javascript", APP.encode())
        if path == "/widget.js":
            return self.respond(request, 200, "text/javascript", self.tidings.widget)
        if path == "/widget.json":
            return self.forward_texts(request)
        if path == "/style.css":
            return self.respond(request, 200, "text/css", self.style.encode())
        if path == "/favicon.ico":
            return self.respond(request, 200, "image/x-icon", b"")
        if path == "/token":
            self.requests.append({"method": "GET", "path": path})
            return self.respond(request, 200, "text/plain", self.next_token.encode())
        if path.startswith("/pictures/"):
            hue = path[10:].partition(".")[0]
            if not hue.isdigit():
                return self.respond(request, 404, "text/plain", b"")
            return self.respond(request, 200, "image/svg+xml", svg_picture(int(hue)))
        if path.startswith("/works/"):
            body = b"<!DOCTYPE html><html lang=en><title>A work</title><h1>A work</h1></html>"
            return self.respond(request, 200, "text/html", body)
        if path.startswith("/v1/"):
            return self.forward(request)
        return self.respond(request, 404, "text/plain", b"")

    def forward_texts(self, request):
        with urllib.request.urlopen(self.tidings.url + request.path) as response:
            return self.respond(request, 200, response.headers["Content-Type"], response.read())

    def forward(self, request):
        """Forwards a request of the widget to tidings, with the server's key instead of the user's token."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        entry = {"method": request.command, "path": request.path, "status": 0, "body": body.decode()}
        self.requests.append(entry)
        if self.is_down:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        if self.refusal_status:
            entry["status"] = self.refusal_status
            return self.respond(request, self.refusal_status, "application/problem+json", b"{}")
        if request.headers.get("Authorization", "")[7:] not in self.tokens:
            entry["status"] = 401
            return self.respond(request, 401, "application/problem+json", b"{}")
        if request.path.endswith("/feed/stream") and self.open_streams is not None:
            return self.hold_stream(request)
        headers = {"Authorization": f"Bearer {KEY}"}
        for name in ("If-None-Match", "Content-Type"):
            if name in request.headers:
                headers[name] = request.headers[name]
        if self.is_slow:
            time.sleep(0.7)
        url = self.tidings.url + request.path
        forwarded = urllib.request.Request(url, body or None, headers, method=request.command)
        try:
            response = urllib.request.urlopen(forwarded)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            entry["status"] = response.status
            headers = {name: response.headers[name] for name in ("ETag", "Cache-Control") if name in response.headers}
            headers["X-Poll-Interval"] = "1"
            content_type = response.headers.get("Content-Type")
            return self.respond(request, response.status, content_type, response.read(), headers)

    def hold_stream(self, request):
        """Sends the events of `send_event` until the browser closes the stream."""
        # A reset replaces the list of the site.
        events, open_streams = queue.Queue(), self.open_streams
        open_streams.append(events)
        request.close_connection = True
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        try:
            while True:
                try:
                    counts = events.get(timeout=0.5)
                    text = f"id: {counts['cursor']}\ndata: {json.dumps(counts)}\n\n"
                except queue.Empty:
                    text = ": heartbeat\n\n"
                request.wfile.write(text.encode())
                request.wfile.flush()
        except OSError:
            open_streams.remove(events)

    def respond(self, request, status, content_type, body, headers=()):
        try:
            request.send_response(status)
            if content_type:
                request.send_header("Content-Type", content_type)
            for name, value in dict(headers).items():
                request.send_header(name, value)
            if status != 304:
                request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            if status != 304:
                request.wfile.write(body)
        except OSError:
            request.close_connection = True


def svg_picture(hue):
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="160" height="120">'
        f'<rect width="160" height="120" fill="hsl({hue},45%,78%)"/>'
        f'<circle cx="{40 + hue % 80}" cy="50" r="34" fill="hsl({(hue + 40) % 360},55%,55%)"/>'
        f'<path d="M0 120 70 60l40 34 30-20 20 46z" fill="hsl({(hue + 200) % 360},35%,35%)"/></svg>'
    ).encode()
