"""The tests of the release: `run.py DIST [NAME…]`, as root, with buildah and the results of
scripts/release in the folder DIST. A NAME is a part of the name of a test.

The rule: nothing of this machine helps. The archive and the image run in root file systems that
hold only their own files, without a shell and as another user. Only the README's commands run in
copies of this machine's root, because they need its tools (see readme.sh).
"""

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/web")]

import runner
from runner import test

DIST = Path(sys.argv[1]).resolve()
USER = 10001
# Programs start with an empty environment, so without a PATH.
UNSHARE = shutil.which("unshare") or "/usr/bin/unshare"
MOST_MEGABYTES = 60
# No other program uses these addresses of the loopback network.
DNS, MONGO = "127.0.0.77", "127.0.0.78"


def output(*command, **options):
    """Returns what a command prints. Raises with all its output if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert ran.returncode == 0, f"{command} ended with {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def result(pattern):
    """Returns the only file of the release with such a name."""
    (file,) = DIST.glob(pattern)
    return file


class Rooted:
    """Runs tidings as USER in a folder of its own root file system."""

    def __init__(self, root, program, folder):
        self.root, self.program, self.folder = root, program, folder
        os.chown(root / folder.lstrip("/"), USER, USER)
        (root / "dev").mkdir(exist_ok=True)

    def command(self, *arguments):
        # As in any container, the machine's devices are there. Only this command sees the mount.
        inside = f'mount --bind /dev "$0/dev" && exec chroot --userspec={USER}:{USER} "$0" "$@"'
        alone = [UNSHARE, "--mount", "--propagation=private", "/bin/sh", "-c", inside]
        return [*alone, str(self.root), self.program, "--config", f"{self.folder}/tidings.toml", *arguments]

    def run(self, *arguments):
        return output(*self.command(*arguments), env={})

    @contextlib.contextmanager
    def serving(self):
        """Runs a server, and passes its address. Fails if SIGTERM does not end it with 0."""
        server = subprocess.Popen(
            self.command("serve", "--listen", "127.0.0.1:0"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={},
        )
        try:
            # A server that hangs at start is killed, which ends its output.
            alarm = threading.Timer(60, server.kill)
            alarm.start()
            line = next((line for line in server.stdout if "listens on" in line), None)
            alarm.cancel()
            assert line, "the server does not listen"
            yield re.search(r"http://\S+", line)[0]
            server.terminate()
            assert server.wait(timeout=60) == 0, server.stdout.read()
        finally:
            server.kill()
            server.wait()

    def start_and_ask(self):
        """Writes a configuration, starts a server with it, and asks its health and a page."""
        self.run("init")
        with self.serving() as url:
            assert self.run("health", "--url", url).endswith("/readyz: ready\n")
            with urllib.request.urlopen(f"{url}/openapi.json", timeout=10) as answer:
                assert answer.status == 200


def unpacked(folder):
    """Unpacks the archive as a root file system with a folder to work in."""
    output("tar", "-xzf", result("tidings-*.tar.gz"), "-C", folder)
    (whole,) = folder.iterdir()
    (whole / "work").mkdir()
    return whole, Rooted(whole, "/tidings", "/work")


def answer_names(server, name):
    """Answers queries for the address of `name` with 127.0.0.1, and all others without records (RFC 1035), until
    an empty one."""
    while True:
        query, client = server.recvfrom(512)
        if not query:
            return
        end = query.index(b"\0", 12)
        asked, kind = query[12:end], query[end + 1 : end + 3]
        wanted = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        is_known = asked.lower() == wanted and kind == b"\0\1"
        head = query[:2] + b"\x81\x80\0\1" + bytes([0, is_known]) + b"\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if is_known else b""
        server.sendto(head + query[12 : end + 5] + record, client)


class Postmark(http.server.BaseHTTPRequestHandler):
    """Accepts the only email of a call, as `m-1`."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = b'[{"ErrorCode": 0, "Message": "OK", "MessageID": "m-1"}]'
        self.send_response(200 if self.path == "/email/batch" else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def trust(root, folder, name, address):
    """Makes an authority, which is /work/ca.pem in `root`, and its certificate for `name`, which `root` finds at
    `address`: ca.pem and leaf.pem in `folder`."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    output(*make, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", cwd=folder)
    leaf = ["-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}", *leaf]
    output(*make, "-keyout", "leaf.key", "-out", "leaf.crt", *signed, cwd=folder)
    (folder / "leaf.pem").write_text((folder / "leaf.crt").read_text() + (folder / "leaf.key").read_text())
    shutil.copy(folder / "ca.pem", root / "work/ca.pem")
    (root / "etc").mkdir()
    (root / "etc/hosts").write_text(f"{address} {name}\n")


@test
def the_checksums_are_those_of_all_results(folder):
    output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
    listed = (DIST / "SHA256SUMS").read_text().split()[1::2]
    assert sorted(listed) == sorted(file.name for file in DIST.iterdir() if file.name != "SHA256SUMS")


@test
def the_archive_runs_where_there_is_nothing_else(folder):
    whole, rooted = unpacked(folder)
    names = {path.relative_to(whole).as_posix() for path in whole.rglob("*")}
    for name in ["README.md", "docs/README.md", "templates/digest/body.html", "locales/en.ftl", "ops/tidings.rules.yml", "LICENSE-MIT", "LICENSE-APACHE", "tidings.example.toml", "tidings.service", "man/man1/tidings.1"]:
        assert name in names, name
    assert {f"completions/tidings.{shell}" for shell in ("bash", "zsh", "fish")} <= names
    assert "NEEDED" not in output("readelf", "--dynamic", whole / "tidings")
    # The first is the answer for an executable with a fixed address, for which ldd exits with 1.
    linked = subprocess.run(["ldd", whole / "tidings"], capture_output=True, text=True)
    assert re.search("not a dynamic executable|statically linked", linked.stdout + linked.stderr), linked
    started = time.monotonic()

    shown = rooted.run("demo", "--dir", "/work/demo")

    took = time.monotonic() - started
    assert took < 10 and "outbox" in shown, (took, shown)
    rooted.start_and_ask()
    # The steps of the guide start in the unpacked folder.
    output(whole / "tidings", "init", cwd=whole, env={})
    assert (whole / "tidings.toml").exists()
    version = output(whole / "tidings", "--version")
    assert re.fullmatch(r"tidings \S+ \(commit \S+, \S+-linux-\S+\)\n", version), version


@test
def names_are_looked_up_in_hosts_and_dns(folder):
    whole, rooted = unpacked(folder)
    (whole / "etc").mkdir()
    (whole / "etc/resolv.conf").write_text(f"nameserver {DNS}\n")
    (whole / "etc/hosts").write_text("127.0.0.1 by-hosts.test\n")
    rooted.run("init")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, rooted.serving() as url:
        server.bind((DNS, 53))
        answering = threading.Thread(target=answer_names, args=(server, "by-dns.test"), daemon=True)
        answering.start()
        for name in ["by-hosts.test", "by-dns.test"]:
            asked = url.replace("127.0.0.1", name)
            assert rooted.run("health", "--url", asked) == f"{asked}/readyz: ready\n"
        failed = subprocess.run(
            rooted.command("health", "--url", "http://nowhere.test:80"), capture_output=True, text=True, env={}
        )
        assert failed.returncode == 1 and "does not answer" in failed.stderr, failed
        server.sendto(b"", (DNS, 53))
        answering.join()


@test
def a_provider_with_a_private_authority_is_trusted_if_the_environment_names_it(folder):
    whole, rooted = unpacked(folder)
    trust(whole, folder, "provider.test", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Postmark)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (whole / "work/tidings.toml").write_text(
        'mail.provider = "postmark"\nmail.from = "digest@example.org"\nmail.key = "k"\n'
        f'mail.url = "https://provider.test:{server.server_port}"\n'
    )
    command = rooted.command("send-test", "mara@example.org")

    trusted = output(*command, env={"SSL_CERT_FILE": "/work/ca.pem"})
    other = subprocess.run(command, capture_output=True, text=True, env={})

    server.shutdown()
    assert "m-1" in trusted, trusted
    assert other.returncode == 1 and "certificate" in other.stderr, other


@test
def mongodb_is_reached_by_tls(folder):
    whole, rooted = unpacked(folder)
    trust(whole, folder, "mongo.test", MONGO)
    rooted.run("init")
    mongod = os.environ.get("TIDINGS_TEST_MONGOD") or shutil.which("mongod")
    mongod = mongod or output(ROOT / "scripts/with-mongo", "--fetch").strip()
    (folder / "data").mkdir()
    listen = ["--bind_ip", MONGO, "--port", "27017", "--nounixsocket", "--dbpath", folder / "data"]
    tls = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", folder / "leaf.pem", "--tlsCAFile", folder / "ca.pem"]
    started = [mongod, *listen, *tls, "--tlsAllowConnectionsWithoutCertificates", "--logpath", folder / "log"]
    url = "mongodb://mongo.test/tidings?tls=true"
    mara = '{"id": "mara", "email": "mara@example.org", "confirmed": true}'
    (whole / "work/people.ndjson").write_text(mara)

    with subprocess.Popen(started, stdout=subprocess.DEVNULL) as server:
        try:
            trusted = f"{url}&tlsCAFile=/work/ca.pem"
            # The first command waits until the server listens.
            rooted.run("--store", trusted, "import", "users", "/work/people.ndjson")
            rooted.run("--store", trusted, "notify", "Published", "Work:w1", "--to", "mara", "--wait")
            feed = rooted.run("--store", trusted, "feed", "mara")
            # Commands wait for a database, so this one would report its first failure for half a minute.
            other = rooted.command("--store", f"{url}&serverSelectionTimeoutMS=500", "feed", "mara")
            with subprocess.Popen(other, stderr=subprocess.PIPE, text=True, env={}) as untrusting:
                refused = untrusting.stderr.readline()
                untrusting.kill()
        finally:
            server.kill()

    assert "Work:w1" in feed and "invalid peer certificate" in refused, (feed, refused)


@test
def the_deb_has_a_private_configuration_and_a_hardened_unit(folder):
    package = result("tidings_*.deb")
    output("dpkg-deb", "--extract", package, folder)
    output("dpkg-deb", "--control", package, folder / "control")
    assert (folder / "control/conffiles").read_text() == "/etc/tidings/tidings.toml\n"
    assert (folder / "etc/tidings/tidings.toml").stat().st_mode & 0o777 == 0o640
    config = folder / "etc/tidings/tidings.toml"
    assert config.read_text().count('\nkey_file = "/etc/tidings/server.key"\n') == 1
    # postinst makes the key, so an extracted package has none.
    assert not config.with_name("server.key").exists()
    for script in ("postinst", "prerm", "postrm"):
        output("sh", "-n", folder / "control" / script)
    made = re.search(r"od .* \| tr -d ' \\n'", (folder / "control/postinst").read_text())[0]
    key = folder / "key"
    key.write_text(output("sh", "-c", made))
    assert re.fullmatch(r"[0-9a-f]{48}", key.read_text())
    environment = {"TIDINGS_SERVER_KEY_FILE": str(key)}
    shown = output(folder / "usr/bin/tidings", "--config", config, "config", env=environment)
    assert "sqlite:/var/lib/tidings/tidings.db" in shown and 'outbox = "/var/lib/tidings/outbox"' in shown
    unit = folder / "usr/lib/systemd/system/tidings.service"
    # The threshold is ten times the exposure.
    output("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)
    run = unit.with_name("tidings-here.service")
    run.write_text(unit.read_text().replace("/usr/bin/tidings", str(folder / "usr/bin/tidings")))
    output("systemd-analyze", "verify", "--man=no", run)


@test
def the_rpm_has_the_same_files(folder):
    listed = set(output("rpm", "--query", "--list", "--package", result("tidings-*-1.*.rpm")).split())
    for name in ["/usr/bin/tidings", "/etc/tidings/tidings.toml", "/usr/lib/systemd/system/tidings.service"]:
        assert name in listed, name
    configured = output("rpm", "--query", "--configfiles", "--package", result("tidings-*-1.*.rpm"))
    assert configured == "/etc/tidings/tidings.toml\n"


@test
def the_sbom_lists_the_locked_crates(folder):
    bom = json.loads(result("tidings-*.cdx.json").read_text())
    names = {component["name"] for component in bom["components"]}
    assert bom["bomFormat"] == "CycloneDX" and {"mongodb", "rusqlite", "rustls"} <= names
    assert not names & {"insta", "proptest"}, "crates of the tests are not in the binary"
    assert all(component["hashes"] and component["licenses"] for component in bom["components"])


def image_parts(folder):
    """Writes the last stage of the Dockerfile and its files, which contain the program of the archive."""
    with tempfile.TemporaryDirectory() as unpacked:
        output("tar", "-xzf", result("tidings-*.tar.gz"), "-C", unpacked, "--strip-components=1")
        output(ROOT / "deploy/image/root", f"{unpacked}/tidings", folder / "image")
    whole = (ROOT / "Dockerfile").read_text()
    final = whole[whole.index("FROM scratch"):].replace("--from=build ", "").replace(" /image/", " image/")
    (folder / "Dockerfile").write_text(final)


@test
def the_image_is_small_and_runs_without_root(folder):
    image_parts(folder)
    buildah = ["buildah", "--storage-driver=vfs", f"--root={folder}/storage", f"--runroot={folder}/run"]
    output(*buildah, "build", "--isolation=chroot", "--format=docker", "--build-arg=COMMIT=abc", "--tag=tidings", folder)
    described = json.loads(output(*buildah, "inspect", "--type=image", "tidings"))
    config = described["Docker"]["config"]
    assert config["User"] == f"{USER}:{USER}" and config["Labels"]["org.opencontainers.image.revision"] == "abc"
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/tidings", "health"], config
    container = output(*buildah, "from", "tidings").strip()
    root = Path(output(*buildah, "mount", container).strip())
    files = [path for path in root.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"the image has {len(files)} files and {megabytes:.1f} MB", flush=True)
    assert megabytes < MOST_MEGABYTES
    others = [path for path in root.rglob("*") if path.stat().st_uid == USER]
    assert all(path.is_relative_to(root / "data") for path in others), "the user can write only below /data"
    rooted = Rooted(root, config["Entrypoint"][0], config["WorkingDir"])

    shown = rooted.run("demo", "--dir", f"{config['WorkingDir']}/demo")

    assert "outbox" in shown, shown
    rooted.start_and_ask()


# What is done after each way of the README to install. See readme.sh.
WAYS = {
    "archive": "try_out",
    "package": "tidings health\ntry_out",
    "image": "docker exec tidings /usr/bin/tidings health",
    "source": "true",
}


@test
def each_way_of_the_readme_to_install_works(folder):
    section = (ROOT / "README.md").read_text().split("\n## Install\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    ways = re.findall(r"^# From (?:the |an? )?(\w+).*\n((?:[^#\n].*\n)+)", block, re.MULTILINE)
    assert [way for way, _ in ways] == list(WAYS), ways
    assert sum(len(commands.splitlines()) for _, commands in ways) == len(re.findall("^[^#\n]", block, re.MULTILINE))
    image_parts(folder)
    for pattern in ["tidings-*.tar.gz", "tidings_*.deb"]:
        shutil.copy(result(pattern), folder)
    archive = result("tidings-*.tar.gz").name.removesuffix(".tar.gz")
    names = {"tidings-VERSION-TARGET": archive, "tidings_VERSION_ARCH.deb": result("tidings_*.deb").name}
    for way, commands in ways:
        for printed, name in names.items():
            commands = commands.replace(printed, name)
        started = time.monotonic()
        output(ROOT / "tests/image/readme.sh", folder, f"{commands}\n{WAYS[way]}", stdin=subprocess.DEVNULL)
        print(f"{way}: {time.monotonic() - started:.1f} s", flush=True)


def in_folder(one, _number):
    with tempfile.TemporaryDirectory(prefix="tidings-image-") as folder:
        # The other user must reach its root.
        os.chmod(folder, 0o755)
        one(Path(folder))


if __name__ == "__main__":
    sys.exit(runner.run("tests of the release", sys.argv[2:], in_folder))
