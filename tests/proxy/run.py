"""Tests a server behind nginx, Caddy and Traefik: `run.py TIDINGS NGINX CHROMIUM OTHERS [NAME…]`.

It needs a Python with Playwright. OTHERS is a folder with the programs caddy and traefik, or empty to skip their
tests. Each proxy runs with its configuration in docs/guides/proxy.md, except for the ports, with TLS and HTTP/2.
curl makes the requests, because Python's own client has no HTTP/2.
"""

import contextlib
import email
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from email import policy
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))

import harness  # noqa: E402
from harness import launch, record_errors, test  # noqa: E402
from stage import KEY, ROOT, Tidings, end, free_port, wait_until  # noqa: E402

SECRET = "the-secret-of-the-tokens-of-these-tests"
# The host of the configurations in the guide.
HOST = "app.example"
NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {folder}/cert.pem;
    ssl_certificate_key {folder}/key.pem;
    types {{ text/html html; }}
    server {{
        listen 127.0.0.1:{port} ssl{http2};
        root {folder}/site;
        {guide}
    }}
    # Rejects streams, and shortens the poll interval.
    server {{
        listen 127.0.0.1:{polling} ssl{http2};
        root {folder}/site;
        location ~ /stream$ {{ return 502; }}
        location /tidings/ {{
            proxy_pass http://{tidings};
            proxy_hide_header X-Poll-Interval;
            add_header X-Poll-Interval 1 always;
        }}
    }}
}}
"""
PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">
<script type="module" src="/tidings/widget.js"></script><h1>A page</h1>
<tidings-inbox user="mara" token="{}" stream></tidings-inbox></html>"""

TRAEFIK = """
entryPoints: {{websecure: {{address: "127.0.0.1:{port}"}}}}
providers: {{file: {{filename: {folder}/routes.yml}}}}
accessLog: {{filePath: {folder}/log}}
global: {{checkNewVersion: false, sendAnonymousUsage: false}}
"""


def configuration(language, address):
    """Returns the configuration in the guide, with `address` as the address of tidings."""
    text = (ROOT / "docs/guides/proxy.md").read_text()
    block = re.search(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)[1]
    assert "127.0.0.1:8080" in block
    return block.replace("127.0.0.1:8080", address)


class Proxy:
    """nginx and the server behind it. `stack` stops both. `others` is the folder with Caddy and Traefik, or empty."""

    def __init__(self, binary, nginx, others, folder, stack):
        self.folder, self.port, self.polling = folder, free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}/tidings"
        more = (
            f'public_url = "{self.url}"\n[tokens]\nsecret = "{SECRET}"\n[mail]\nfrom = "news@art.example"\n'
            f'outbox = "{folder}/outbox"\n[types.Comment]\nroute = "immediate"\n'
        )
        self.tidings = Tidings(binary, folder, more)
        stack.callback(self.tidings.stop)
        self.binary, self.others = binary, others and Path(others)
        command = [binary, "token", "mara", "--config", str(folder / "tidings.toml")]
        result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, timeout=60)
        self.token = result.stdout.strip().splitlines()[-1]
        (folder / "site").mkdir()
        (folder / "site/index.html").write_text(PAGE.format(self.token))
        certificate = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
        files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
        subprocess.run(["openssl", *certificate.split(), *files], check=True, capture_output=True, timeout=60)
        self.address = address = self.tidings.url.removeprefix("http://")
        guide = configuration("nginx", address)
        assert "proxy_read_timeout 20s" in guide
        version = subprocess.run([nginx, "-v"], capture_output=True, text=True).stderr
        number = [int(part) for part in re.search(r"nginx/([\d.]+)", version)[1].split(".")]
        self.http2 = "" if number >= [1, 25, 1] else " http2"
        text = NGINX.format(
            folder=folder, port=self.port, polling=self.polling, tidings=address, http2=self.http2,
            guide=guide + ("" if self.http2 else "http2 on;"),
        )
        (folder / "nginx.conf").write_text(text)
        # A child that inherits the output would keep the pipe of scripts/test open.
        with open(folder / "nginx.txt", "wb") as log:
            command = [nginx, "-p", folder, "-c", folder / "nginx.conf"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        stack.callback(end, self.process)
        wait_until(self.is_ready)
        print(version.strip(), flush=True)

    def is_ready(self):
        assert self.process.poll() is None, (self.folder / "nginx.txt").read_text()
        return self.curl("GET", "/healthz").status == 200

    def curl(self, method, path, *more):
        """Requests a path below the public URL, or a whole URL, over HTTP/2."""
        base = self.url if path.startswith("/") else ""
        command = ["curl", "-sk", "--http2", "-D", "-", "-X", method, *more, f"{base}{path}"]
        result = subprocess.run([*command, "--max-time", "50"], capture_output=True, timeout=60)
        head, _, body = result.stdout.partition(b"\r\n\r\n")
        return Response(head.decode(), body)

    def curl_with_key(self, method, path, body=None):
        more = ["-H", f"Authorization: Bearer {KEY}"]
        if body is not None:
            more += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        return self.curl(method, path, *more)


class OtherProxy:
    """Caddy or Traefik in front of the same server. A `with` statement starts and stops it."""

    def __init__(self, program, proxy):
        self.folder, self.port, self.proxy = proxy.folder / program.name, free_port(), proxy
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.command = [program, *getattr(self, program.name)()]

    def caddy(self):
        site = configuration("caddyfile", self.proxy.address)
        local = f"{HOST}:{self.port} {{\nbind 127.0.0.1\ntls {self.proxy.folder}/cert.pem {self.proxy.folder}/key.pem\n"
        assert site.startswith(f"{HOST} {{\n")
        options = "{\nadmin off\nauto_https disable_redirects\n}\n"
        (self.folder / "Caddyfile").write_text(options + site.replace(f"{HOST} {{\n", local, 1))
        return ["run", "--config", self.folder / "Caddyfile"]

    def traefik(self):
        (self.folder / "routes.yml").write_text(configuration("yaml", self.proxy.address))
        (self.folder / "traefik.yml").write_text(TRAEFIK.format(port=self.port, folder=self.folder))
        return [f"--configFile={self.folder}/traefik.yml"]

    def __enter__(self):
        environment = os.environ | {"XDG_DATA_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}
        # Caddy writes its access log to the standard error, and Traefik to the file `log`.
        output = self.log if "Caddyfile" in str(self.command) else self.folder / "output"
        with open(output, "wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(self.command, **streams, env=environment)
        try:
            wait_until(lambda: self.status("/healthz") == 200)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(self.process)

    def curl_command(self, path, *more):
        assert self.process.poll() is None, f"{self.command[0].name} ended"
        url = f"https://{HOST}:{self.port}/tidings{path}"
        return ["curl", "-sk", "--http2", "--resolve", f"{HOST}:{self.port}:127.0.0.1", "--max-time", "30", *more, url]

    def status(self, path, *more):
        """Returns the status of a request over HTTP/2, or 0 if there was no response."""
        more = [*more, "-o", "/dev/null", "-w", "%{http_version} %{http_code}"]
        result = subprocess.run(self.curl_command(path, *more), capture_output=True, text=True, timeout=60)
        version, _, status = result.stdout.partition(" ")
        assert version == "2" or status == "000", result.stdout
        return int(status)


class Response:
    def __init__(self, head, body):
        lines = head.split("\r\n")
        words = lines[0].split()
        self.version, self.status = (words[0], int(words[1])) if len(words) > 1 else ("", 0)
        pairs = [line.split(": ", 1) for line in lines[1:] if ": " in line]
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = body


class Visitor:
    def __init__(self, number, proxy, browser):
        self.number, self.proxy, self.tidings, self.browser = number, proxy, proxy.tidings, browser
        self.contexts, self.page_errors, self.expected_errors, self.published = [], [], [], 0
        cursor = self.tidings.counts("mara")["cursor"]
        self.tidings.ask("POST", "/v1/users/mara/feed/marks", {"mark": "archive", "to": cursor})

    def open(self, port):
        context = self.browser.new_context(ignore_https_errors=True, locale="en-US")
        self.contexts.append(context)
        page = context.new_page()
        record_errors(page, self.record_error)
        page.goto(f"https://127.0.0.1:{port}/index.html")
        return page

    def publish(self, title):
        self.published += 1
        self.tidings.publish("mara", [{"title": title, "id": f"Thing:{self.number}-{self.published}"}])

    def record_error(self, text):
        if not any(part in text for part in self.expected_errors):
            self.page_errors.append(text)


@test
def urls_in_responses_go_through_the_proxy(visitor):
    proxy = visitor.proxy
    event = {"type": "Loan", "objects": "Thing:1", "to": ["ada"]}
    accepted = proxy.curl_with_key("POST", "/v1/events", event)
    assert (accepted.version, accepted.status) == ("HTTP/2", 202), accepted.headers
    location = accepted.headers["location"]
    origin = proxy.url.removesuffix("/tidings")
    assert location.startswith("/tidings/v1/events/"), location
    assert proxy.curl_with_key("GET", origin + location).status == 200
    wait_until(lambda: visitor.tidings.counts("ada")["unread"] or None)

    groups = json.loads(proxy.curl_with_key("GET", "/v1/users/ada/feed?group=about").body)["groups"]
    page = proxy.curl_with_key("GET", origin + groups[0]["items_url"])
    assert (page.status, len(json.loads(page.body)["items"])) == (200, 1)
    description = json.loads(proxy.curl("GET", "/openapi.json").body)
    assert description["servers"] == [{"url": "/tidings"}]
    assert proxy.curl("GET", "/nothing").status == 404
    assert [proxy.curl("GET", path).status for path in ("/metrics", "/readyz")] == [404, 404]


@test
def large_requests_pass_and_responses_are_compressed(visitor):
    objects = [{"id": f"Thing:{n}", "title": "x" * 3000} for n in range(1000)]
    body = visitor.proxy.folder / "objects.json"
    body.write_text(json.dumps(objects))
    more = ["-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json", "--data-binary", f"@{body}"]
    assert visitor.proxy.curl("POST", "/v1/objects", *more).status == 200

    for path in ("/widget.js", "/widget.json?lang=ru", "/openapi.json"):
        response = visitor.proxy.curl("GET", path, "-H", "Accept-Encoding: gzip")
        assert (response.status, response.headers.get("content-encoding")) == (200, "gzip"), path
        assert gzip.decompress(response.body), path
    tag = visitor.proxy.curl_with_key("GET", "/v1/users/mara/feed").headers["etag"]
    more = ["-H", f"Authorization: Bearer {KEY}", "-H", f"If-None-Match: {tag}", "-H", "Accept-Encoding: gzip"]
    assert visitor.proxy.curl("GET", "/v1/users/mara/feed", *more).status == 304


@test
def links_forms_and_one_click_work_below_the_path(visitor):
    proxy = visitor.proxy
    visitor.tidings.ask("PUT", "/v1/users/eve", {"email": "eve@example.org", "confirmed": True})
    visitor.tidings.publish("eve", [{"title": "A thing"}])
    command = [proxy.binary, "worker", "--once", "--config", proxy.folder / "tidings.toml"]

    def sent_emails():
        subprocess.run(command, check=True, capture_output=True, cwd=proxy.folder, timeout=60)
        return list((proxy.folder / "outbox").rglob("*.eml"))

    [file] = wait_until(sent_emails)
    message = email.message_from_bytes(file.read_bytes(), policy=policy.default)
    link = message["List-Unsubscribe"].strip("<>")
    assert link.startswith(f"{proxy.url}/u/"), link
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"

    clicked = proxy.curl("POST", link, "-d", "List-Unsubscribe=One-Click")
    assert (clicked.version, clicked.status) == ("HTTP/2", 200), clicked.headers
    preferences = visitor.tidings.ask("GET", "/v1/users/eve/preferences")
    assert preferences["types"]["Comment"]["route"] == "never", preferences

    context = visitor.browser.new_context(ignore_https_errors=True)
    visitor.contexts.append(context)
    page = context.new_page()
    page.goto(f"{link}/preferences")
    page.get_by_role("radio", name="Once a week").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.get_by_role("button", name="Unsubscribe from everything").click()
    expect(page.get_by_role("heading", name="You are unsubscribed")).to_be_visible()
    assert page.url.startswith(f"{proxy.url}/u/"), page.url
    token = link.rsplit("/", 1)[1]
    # nginx logs an error if a body is too large.
    (proxy.folder / "large").write_bytes(bytes(17 << 20))
    assert proxy.curl("POST", link, "--data-binary", f"@{proxy.folder}/large").status == 413
    for log in ("access.log", "error.log"):
        assert token not in (proxy.folder / log).read_text(), f"{log} has a token"


@test
def a_stream_starts_at_once_and_outlives_the_timeout_of_the_proxy(visitor):
    proxy = visitor.proxy
    # curl ends after a minute, which limits the time of all reads.
    command = ["curl", "-skNv", "--http2", "--max-time", "60", f"{proxy.url}/v1/users/mara/feed/stream"]
    command += ["-H", f"Authorization: Bearer {proxy.token}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stream:
        # The clock starts when curl sends the request, after the TLS handshake.
        while not (line := stream.stderr.readline()).startswith("> GET "):
            assert line, "no connection"
        began = time.monotonic()
        assert stream.stdout.readline().startswith("id: "), "no event"
        assert time.monotonic() - began < 1, "the first event is late"
        assert stream.stdout.readline().startswith("data: ")
        stream.stdout.readline()
        assert stream.stdout.readline() == ":\n", "no heartbeat"
        assert time.monotonic() - began < 17, "the heartbeat is late"
        time.sleep(max(0, 22 - (time.monotonic() - began)))
        assert stream.poll() is None, "the proxy ended the stream"
        visitor.publish("A thing")
        began = time.monotonic()
        while not (line := stream.stdout.readline()).startswith("data: "):
            assert line, "the proxy ended the stream"
            assert time.monotonic() - began < 5, "the event is late"
        assert time.monotonic() - began < 5, "the event is late"
        assert json.loads(line[6:])["unseen"] == 1
        stream.terminate()


@test
def caddy_and_traefik_forward_requests_and_streams(visitor):
    nginx = visitor.proxy
    if not nginx.others:
        print("without Caddy and Traefik", flush=True)
        return
    key, as_user = (["-H", f"Authorization: Bearer {token}"] for token in (KEY, nginx.token))
    (nginx.folder / "many").write_text(json.dumps([{"id": f"Thing:{n}", "title": "x" * 3000} for n in range(1000)]))
    (nginx.folder / "too-large").write_bytes(bytes(17 << 20))
    for name in ("caddy", "traefik"):
        with OtherProxy(nginx.others / name, nginx) as proxy:
            json_body = ["-X", "POST", *key, "-H", "Content-Type: application/json", "--data-binary"]
            assert proxy.status("/v1/objects", *json_body, f"@{nginx.folder}/many") == 200, name
            assert proxy.status("/v1/objects", *json_body, f"@{nginx.folder}/too-large") == 413, name
            # Traefik's configuration allows these paths only from the same machine.
            refused = {"caddy": 404, "traefik": 403}[name]
            for path in ("/metrics", "/readyz"):
                assert proxy.status(path, "--interface", "127.0.0.2") == refused, (name, path)
            assert proxy.status("/u/a-token") == 404, name

            command = proxy.curl_command("/v1/users/mara/feed/stream", "-N", *as_user)
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stream:
                assert stream.stdout.readline().startswith("id: "), f"{name}: no event"
                assert stream.stdout.readline().startswith("data: ")
                visitor.publish("A thing")
                began = time.monotonic()
                while not (line := stream.stdout.readline()).startswith("data: "):
                    assert line, f"{name} ended the stream"
                assert time.monotonic() - began < 5, f"{name}: the event is late"
                stream.terminate()
            assert proxy.status("/healthz?last") == 200
            wait_until(lambda: "healthz?last" in proxy.log.read_text())
            assert "a-token" not in proxy.log.read_text(), f"the log of {name} has a token"


@test
def the_widget_streams_through_the_proxy(visitor):
    visitor.publish("First")
    page = visitor.open(visitor.proxy.port)
    expect(page.get_by_role("button", name="Notifications, 1 new")).to_be_visible()

    visitor.publish("Second")

    # Polls are at least 27 seconds apart, so only a stream delivers the event before `expect` fails.
    expect(page.get_by_role("button", name="Notifications, 2 new")).to_be_visible()
    page.get_by_role("button", name="Notifications").click()
    expect(page.get_by_role("article")).to_have_count(2)


@test
def the_widget_polls_if_the_proxy_refuses_streams(visitor):
    visitor.expected_errors = ["502"]
    visitor.publish("First")
    page = visitor.open(visitor.proxy.polling)
    expect(page.get_by_role("button", name="Notifications, 1 new")).to_be_visible()

    visitor.publish("Second")

    expect(page.get_by_role("button", name="Notifications, 2 new")).to_be_visible()


def main(binary, nginx, chromium, others, *names):
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, contextlib.ExitStack() as stack:
        proxy = Proxy(Path(binary).resolve(), nginx, others, Path(folder), stack)
        browser = launch(playwright, chromium)

        @contextlib.contextmanager
        def visit(number):
            yield Visitor(number, proxy, browser)

        failed = harness.run(browser, "tests behind proxies", names, visit, "proxy-")
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
