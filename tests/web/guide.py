"""Tests the code of docs/guides/front-ends.md: `guide.py TIDINGS CHROMIUM PACKAGES [NAME…]`.

It needs a Python with Playwright. PACKAGES is a folder with npm's `node_modules`. The tests add the packages of this
repository, with the files that npm would publish. The code runs as in the guide, except for the address of tidings.
Each page has a site of its own, whose `/my-token` calls one of the guide's endpoints.
"""

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import harness
from harness import bell, check_accessibility, launch, record_errors, save_screenshot, test
from stage import ROOT, Tidings, free_port, wait_until

SECRET = "the-secret-of-the-guides-tokens--"
COOKIE = "session=a-session-id"
OWN_PACKAGES = {"tidings-inbox": "widget", "tidings-inbox-react": "widget/react", "tidings-inbox-vue": "widget/vue"}


def guide_code():
    """Returns the fenced blocks, by the file names in their first lines."""
    text = (ROOT / "docs/guides/front-ends.md").read_text()
    blocks = re.findall(r"^```\w+\n(.*?)^```$", text, re.M | re.S)
    named = [(re.match(r"(?:<!--|//|#) (\S+)", block), block) for block in blocks]
    assert named and all(name for name, _ in named), "a block does not name its file"
    return {name[1]: block for name, block in named}


def install_packages(packages, folder):
    """Creates the `node_modules` that npm would install."""
    modules = folder / "node_modules"
    for package in (packages / "node_modules").iterdir():
        if package.name.startswith("@"):
            (modules / package.name).mkdir(parents=True)
            for scoped in package.iterdir():
                (modules / package.name / scoped.name).symlink_to(scoped)
        elif not package.name.startswith("."):
            modules.mkdir(exist_ok=True)
            (modules / package.name).symlink_to(package)
    for name, source in OWN_PACKAGES.items():
        (modules / name).mkdir()
        manifest = json.loads((ROOT / source / "package.json").read_text())
        assert manifest["name"] == name, manifest
        files = [file for file in manifest["files"] if file != "LICENSE-*"]  # scripts/package adds them
        for file in ["package.json", "README.md", *files]:
            shutil.copy(ROOT / source / file, modules / name)


class Endpoint:
    """A token endpoint of the guide."""

    def __init__(self, language, folder):
        self.port, self.language = free_port(), language
        self.url = f"http://127.0.0.1:{self.port}/my-token"
        command = {
            "node": ["node", "my-token.mjs"],
            "python": [sys.executable, "my_token.py"],
            "ruby": ["ruby", "-r", "socket", "-r", "./my_token.rb", "-e", RACK_SERVER],
        }[language]
        environment = {**os.environ, "PORT": str(self.port), "TIDINGS_TOKENS_SECRET": SECRET}
        # A child that inherits the output would keep the pipe of scripts/test open.
        output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, **output)
        try:
            wait_until(self.is_ready)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.process.kill()
        self.process.wait()

    def is_ready(self):
        assert self.process.poll() is None, f"the endpoint in {self.language} ended"
        with contextlib.suppress(OSError):
            return self.get_token("")[0] == 401

    def get_token(self, cookie):
        """Returns the status and the body of the response."""
        request = urllib.request.Request(self.url, headers={"Cookie": cookie} if cookie else {})
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, b""


# A server for one Rack endpoint, because Ruby includes none.
RACK_SERVER = """
server = TCPServer.new('127.0.0.1', ENV['PORT'])
loop do
  client = server.accept
  env = {}
  while (line = client.gets&.chomp) && !line.empty?
    name, value = line.split(': ', 2)
    env["HTTP_#{name.upcase.tr('-', '_')}"] = value
  end
  status, headers, body = MY_TOKEN.call(env)
  lines = headers.map { |name, value| "#{name}: #{value}" }
  client.write(["HTTP/1.1 #{status} OK", *lines, 'connection: close', '', body.join].join("\\r\\n"))
  client.close
end
"""


class Site:
    """A site with files and a token endpoint."""

    def __init__(self):
        site, self.files, self.endpoint = self, {}, None

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                site.handle(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, request):
        if request.path == "/my-token":
            status, body = self.endpoint.get_token(request.headers.get("Cookie", ""))
            content_type = "text/plain"
        else:
            name = request.path.lstrip("/") or "index.html"
            body = self.files.get(name, b"")
            status = 200 if name in self.files else 204
            content_type = "text/html; charset=utf-8" if name.endswith("html") else "text/javascript; charset=utf-8"
        request.send_response(status)
        request.send_header("Content-Type", content_type)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>My page</title>
<div id="root" data-user="mara">{}</div><script type="module" src="client.js"></script></html>"""


class Guide:
    """The applications of the guide, and their server. `stack` stops the processes."""

    def __init__(self, binary, packages, folder, stack):
        self.packages = packages
        self.plain, self.react, self.vue = Site(), Site(), Site()
        origins = json.dumps([self.plain.url, self.react.url, self.vue.url])
        more = f'cors_origins = {origins}\n[tokens]\nsecret = "{SECRET}"\n[types.Comment]\nheading = "Comments"\n'
        self.tidings = Tidings(binary, folder, more)
        stack.callback(self.tidings.stop)
        app = folder / "app"
        app.mkdir()
        for name, text in guide_code().items():
            (app / name).write_text(text.replace("https://news.example.org", self.tidings.url))
        install_packages(packages, app)
        entries = "client.jsx=react.js server.jsx=react.mjs client.js=vue.js server.js=vue.mjs".split()
        subprocess.run(["node", ROOT / "tests/web/build.mjs", app, *entries], check=True, timeout=120)
        self.app = app
        self.endpoints = []
        for language in ["node", "python", *(["ruby"] if shutil.which("ruby") else [])]:
            self.endpoints.append(Endpoint(language, app))
            stack.callback(self.endpoints[-1].stop)
        self.plain.files = {name: (app / name).read_bytes() for name in ("index.html", "app.js")}
        for site, name in ((self.react, "react"), (self.vue, "vue")):
            print_html = "then(async ({ render }) => process.stdout.write(await render('mara')))"
            command = ["node", "-e", f"import('./{name}.mjs').{print_html}"]
            result = subprocess.run(command, cwd=app, check=True, capture_output=True, text=True, timeout=60)
            site.html = result.stdout
            site.files = {"index.html": PAGE.format(site.html).encode(), "client.js": (app / f"{name}.js").read_bytes()}
        for number, site in enumerate((self.plain, self.react, self.vue)):
            site.endpoint = self.endpoints[number % len(self.endpoints)]


class Visitor:
    def __init__(self, guide, browser):
        self.guide, self.tidings, self.browser = guide, guide.tidings, browser
        self.contexts, self.page_errors = [], []
        counts = self.tidings.counts("mara")
        self.tidings.ask("POST", "/v1/users/mara/feed/marks", {"mark": "archive", "to": counts["cursor"]})

    def open(self, site):
        context = self.browser.new_context(viewport={"width": 1000, "height": 760}, locale="en-US", timezone_id="UTC")
        self.contexts.append(context)
        context.add_cookies([{"name": "session", "value": "a-session-id", "url": site.url}])
        page = context.new_page()
        record_errors(page, self.page_errors.append)
        page.goto(site.url)
        return page

    def publish(self, title):
        self.tidings.publish("mara", [{"title": title, "id": f"Thing:{title}"}])


def check_rendering(visitor, site, name):
    """Checks the page of one of the frameworks."""
    assert "<tidings-inbox" in site.html and "mara" not in site.html, site.html
    visitor.publish(f"First in {name}")
    page = visitor.open(site)
    expect(page.get_by_role("button", name="Notifications, 1 new")).to_be_visible()
    visitor.publish(f"Second in {name}")
    expect(page.get_by_role("status").filter(has_text=f"Second in {name}")).to_be_visible()
    bell(page).click()

    expect(page.locator("strong:visible")).to_have_text([f"Second in {name}", f"First in {name}"])
    page.get_by_role("button", name="Like (0)").first.click()
    expect(page.get_by_role("button", name="Like (1)")).to_have_count(2)
    save_screenshot(page, name)
    check_accessibility(page)
    page.get_by_role("article").first.focus()
    page.keyboard.press("Delete")
    expect(page.locator("strong")).to_have_count(1)
    wait_until(lambda: visitor.tidings.counts("mara")["unread"] == 1)


@test
def every_endpoint_issues_tokens_only_for_its_sessions(visitor):
    if len(visitor.guide.endpoints) < 3:
        print("THE ENDPOINT IN RUBY WAS NOT TESTED: there is no ruby (try: apt-get install ruby)")
        assert os.environ.get("TIDINGS_TEST_REQUIRE_WEB") != "1"
    others = ("", "session=other", "session=toString")
    for endpoint in visitor.guide.endpoints:
        assert [endpoint.get_token(cookie)[0] for cookie in others] == [401] * 3, endpoint.language
        status, token = endpoint.get_token(COOKIE)
        assert status == 200, endpoint.language
        for user, expected in (("mara", 200), ("ada", 403)):
            headers = {"Authorization": f"Bearer {token.decode()}"}
            request = urllib.request.Request(f"{visitor.tidings.url}/v1/users/{user}/feed", headers=headers)
            try:
                status = urllib.request.urlopen(request, timeout=20).status
            except urllib.error.HTTPError as error:
                status = error.code
            assert status == expected, (endpoint.language, user, status)


@test
def a_plain_page_shows_toasts_and_counts(visitor):
    visitor.publish("First")
    page = visitor.open(visitor.guide.plain)
    expect(page.get_by_role("button", name="Notifications, 1 new")).to_be_visible()
    expect(page).to_have_title("(1) My page")

    visitor.publish("Second")

    expect(page.locator("#toast")).to_have_text("Comments: Second")
    bell(page).click()
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page).to_have_title("My page")
    save_screenshot(page, "plain")
    check_accessibility(page)


@test
def react_hydrates_the_widget_in_strict_mode_and_renders_items(visitor):
    check_rendering(visitor, visitor.guide.react, "React")


@test
def vue_hydrates_the_widget_and_renders_items(visitor):
    check_rendering(visitor, visitor.guide.vue, "Vue")


@test
def the_packages_type_check_in_strict_mode(visitor):
    app = visitor.guide.app
    shutil.copy(ROOT / "tests/web/typed.tsx", app)
    flags = "--strict --noEmit --skipLibCheck --target es2022 --lib es2022,dom --module esnext"
    flags += " --moduleResolution bundler --jsx react-jsx"
    tsc = visitor.guide.packages / "node_modules/typescript/bin/tsc"
    command = ["node", tsc, *flags.split(), "typed.tsx"]
    result = subprocess.run(command, cwd=app, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout


@test
def the_wrappers_are_small(_):
    for name, source in list(OWN_PACKAGES.items())[1:]:
        size = len(gzip.compress((ROOT / source / "index.js").read_bytes()))
        assert size <= 1024, (name, size)


def main(binary, chromium, packages, *names):
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, contextlib.ExitStack() as stack:
        guide = Guide(binary, Path(packages), Path(folder), stack)
        browser = launch(playwright, chromium)

        @contextlib.contextmanager
        def visit(_):
            yield Visitor(guide, browser)

        failed = harness.run(browser, "tests of the guide", names, visit, "guide-")
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
