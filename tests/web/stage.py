"""What the browser tests play on: tidings with a store of its own, and a web site in front of it.

The rule: the site is as strict as a site can be (a policy that allows no inline code and wants trusted
types), and everything between browser and tidings goes through it, so that a test can count requests,
expire a token, or take the server away.
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
# What an application does: it takes the element's attributes from the query, and keeps what it hears.
APP = """
import '/widget.js';
const query = new URLSearchParams(location.search);
window.heard = [];
window.details = [];
for (const name of ['open', 'item', 'error', 'new', 'count']) {
  document.addEventListener('tidings-' + name, event => {
    window.heard.push(name);
    window.details.push(event.detail);
    if (name === 'item' && query.has('stay')) event.preventDefault();
  });
}
window.inbox = document.createElement('tidings-inbox');
for (const [name, value] of query) if (!['stay', 'refresh', 'dir', 'lang'].includes(name)) inbox.setAttribute(name, value);
if (query.has('refresh')) inbox.getToken = async () => (await fetch('/token')).text();
document.querySelector('header').append(inbox);
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, seconds=20):
    """Waits until `what()` is true, and returns it."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.05)
    return found


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
        quiet = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        self.process = subprocess.Popen([binary, "serve", "--config", config, *options], stdout=self.log, stderr=self.log, env=quiet)
        try:
            until(self.ready)
            with urllib.request.urlopen(self.url + "/widget.js", timeout=20) as answer:
                self.widget = answer.read()
        except BaseException:
            self.stop()
            raise

    def ready(self):
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return self.ask("GET", "/readyz") is not None
        except OSError:
            return False

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers, method=method), timeout=60) as answer:
                return json.loads(answer.read() or b"{}") if "json" in answer.headers.get("Content-Type", "") else {}
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{method} {path}: {refused.read().decode()}") from None

    def counts(self, user):
        return self.ask("GET", f"/v1/users/{user}/feed/count")

    def tell(self, user, things):
        """Publishes things and waits until they are in the user's feed. A thing: an object's fields, and `event`'s."""
        before = self.counts(user)["unread"]
        objects, events = [], []
        for thing in things:
            event = {"type": "Comment", "at": stamp(0), **thing.pop("event", {})}
            thing.setdefault("id", f"Thing:{user}-{len(objects)}-{before}")
            objects.append(thing)
            events.append({**event, "objects": [thing["id"]], "to": [user]})
        self.ask("POST", "/v1/objects", objects)
        self.ask("POST", "/v1/events", events)
        until(lambda: self.counts(user)["unread"] == before + len(things))

    def stop(self):
        with self.log:
            end(self.process)


def stamp(minutes_ago):
    return (datetime.now(timezone.utc) - timedelta(minutes=minutes_ago)).isoformat(timespec="seconds").replace("+00:00", "Z")


class Site:
    """The web site, and what tests do to it."""

    def __init__(self, tidings):
        self.tidings, self.seen = tidings, []
        self.reset()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                site.answer(self)

            do_POST = do_PUT = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # browsers hang up
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.down = self.slow = False
        self.refusal = None  # the status that every request gets
        self.style, self.policy = STYLE, POLICY
        self.tokens = {"good"}
        self.next_token = "good"
        self.streams = None  # while None, the stream is whatever tidings makes of it
        self.seen = []

    def page(self, user, **attributes):
        return f"{self.url}/?" + urllib.parse.urlencode({"user": user, "token": "good", **attributes})

    def asked(self, method, part):
        return [entry for entry in list(self.seen) if entry["method"] == method and part in entry["path"]]

    def stream(self, counts):
        """Sends an event to everybody who holds the fake stream."""
        until(lambda: self.streams)
        for held in self.streams:
            held.put(counts)

    def answer(self, request):
        path, _, query = request.path.partition("?")
        if path == "/":
            words = dict(urllib.parse.parse_qsl(query))
            body = (
                f'<!DOCTYPE html><html lang="{words.get("lang", "en")}" dir="{words.get("dir", "ltr")}"><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1"><title>A page</title><link rel="stylesheet" href="/style.css">'
                '<header><b>The works</b></header><main><h1>A page</h1><p>It has a bell.</p></main><script type="module" src="/app.js"></script></html>'
            )
            return self.send(request, 200, "text/html; charset=utf-8", body.encode(), {"Content-Security-Policy": self.policy})
        if path == "/app.js":
            return self.send(request, 200, "text/javascript", APP.encode())
        if path == "/widget.js":
            return self.send(request, 200, "text/javascript", self.tidings.widget)
        if path == "/widget.json":
            return self.forward_texts(request)
        if path == "/style.css":
            return self.send(request, 200, "text/css", self.style.encode())
        if path == "/favicon.ico":
            return self.send(request, 200, "image/x-icon", b"")
        if path == "/token":
            self.seen.append({"method": "GET", "path": path})
            return self.send(request, 200, "text/plain", self.next_token.encode())
        if path.startswith("/pictures/"):
            hue = path[10:].partition(".")[0]
            if not hue.isdigit():
                return self.send(request, 404, "text/plain", b"")
            return self.send(request, 200, "image/svg+xml", picture(int(hue)))
        if path.startswith("/works/"):
            return self.send(request, 200, "text/html", b"<!DOCTYPE html><html lang=en><title>A work</title><h1>A work</h1></html>")
        if path.startswith("/v1/"):
            return self.forward(request)
        return self.send(request, 404, "text/plain", b"")

    def forward_texts(self, request):
        with urllib.request.urlopen(self.tidings.url + request.path) as answer:
            return self.send(request, 200, answer.headers["Content-Type"], answer.read())

    def forward(self, request):
        """Hands a request of the widget to tidings, with the server's key for the user's token."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        entry = {"method": request.command, "path": request.path, "status": 0, "body": body.decode()}
        self.seen.append(entry)
        if self.down:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        if self.refusal:
            entry["status"] = self.refusal
            return self.send(request, self.refusal, "application/problem+json", b"{}")
        if request.headers.get("Authorization", "")[7:] not in self.tokens:
            entry["status"] = 401
            return self.send(request, 401, "application/problem+json", b"{}")
        if request.path.endswith("/feed/stream") and self.streams is not None:
            return self.hold(request)
        headers = {"Authorization": f"Bearer {KEY}"}
        for name in ("If-None-Match", "Content-Type"):
            if name in request.headers:
                headers[name] = request.headers[name]
        if self.slow:
            time.sleep(0.7)
        ask = urllib.request.Request(self.tidings.url + request.path, body or None, headers, method=request.command)
        try:
            answer = urllib.request.urlopen(ask)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            entry["status"] = answer.status
            kept = {name: answer.headers[name] for name in ("ETag", "Cache-Control") if name in answer.headers}
            return self.send(request, answer.status, answer.headers.get("Content-Type"), answer.read(), {**kept, "X-Poll-Interval": "1"})

    def hold(self, request):
        held, holders = queue.Queue(), self.streams
        holders.append(held)
        request.close_connection = True
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        try:
            while True:
                try:
                    counts = held.get(timeout=0.5)
                    text = f"id: {counts['cursor']}\ndata: {json.dumps(counts)}\n\n"
                except queue.Empty:
                    text = ": still here\n\n"
                request.wfile.write(text.encode())
                request.wfile.flush()
        except OSError:
            holders.remove(held)

    def send(self, request, status, kind, body, headers=()):
        try:
            request.send_response(status)
            if kind:
                request.send_header("Content-Type", kind)
            for name, value in dict(headers).items():
                request.send_header(name, value)
            if status != 304:
                request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            if status != 304:
                request.wfile.write(body)
        except OSError:
            request.close_connection = True


def picture(hue):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="160" height="120"><rect width="160" height="120" fill="hsl({hue},45%,78%)"/>'
        f'<circle cx="{40 + hue % 80}" cy="50" r="34" fill="hsl({(hue + 40) % 360},55%,55%)"/>'
        f'<path d="M0 120 70 60l40 34 30-20 20 46z" fill="hsl({(hue + 200) % 360},35%,35%)"/></svg>'
    ).encode()
