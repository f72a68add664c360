"""Tests the release: `run.py DIST [NAME…]`, as root and with buildah. DIST is the folder with the results of
scripts/release. A NAME is a part of the name of a test.

The archive and the image run in root file systems with only their own files, without a shell and as another user.
Only the README's commands run in copies of this machine's root, because they need its tools (see readme.sh).
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
# Commands run with an empty environment, which has no PATH.
UNSHARE = shutil.which("unshare") or "/usr/bin/unshare"
MAX_MEGABYTES = 60
# No other program uses these addresses of the loopback network.
DNS, MONGO = "127.0.0.77", "127.0.0.78"


def output(*command, **options):
    """Returns the standard output of a command. Fails with all its output if the command fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, f"{command} ended with {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def release_file(pattern):
    """Returns the only file of the release whose name matches."""
    (file,) = DIST.glob(pattern)
    return file


class Chroot:
    """Runs tidings as USER in the folder `folder` of the root file system `root`."""

    def __init__(self, root, program, folder):
        self.root, self.program, self.folder = root, program, folder
        os.chown(root / folder.lstrip("/"), USER, USER)
        (root / "dev").mkdir(exist_ok=True)

    def command(self, *arguments):
        # A container has the machine's devices, too. Only this command sees the mount.
        script = f'mount --bind /dev "$0/dev" && exec chroot --userspec={USER}:{USER} "$0" "$@"'
        unshare = [UNSHARE, "--mount", "--propagation=private", "/bin/sh", "-c", script]
        return [*unshare, str(self.root), self.program, "--config", f"{self.folder}/tidings.toml", *arguments]

    def run(self, *arguments):
        return output(*self.command(*arguments), env={})

    @contextlib.contextmanager
    def serving(self):
        """Runs a server, and yields its URL. Fails if the server does not exit with 0 on SIGTERM."""
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

    def start_and_check(self):
        """Writes a configuration, starts a server with it, and checks its health and its API description."""
        self.run("init")
        with self.serving() as url:
            assert self.run("health", "--url", url).endswith("/readyz: ready\n")
            with urllib.request.urlopen(f"{url}/openapi.json", timeout=10) as response:
                assert response.status == 200


def unpack_archive(folder):
    """Unpacks the archive as a root file system, with /work as the working directory. Returns the root."""
    output("tar", "-xzf", release_file("tidings-*.tar.gz"), "-C", folder)
    (root,) = folder.iterdir()
    (root / "work").mkdir()
    return root, Chroot(root, "/tidings", "/work")


def serve_dns(server, name):
    """Serves DNS (RFC 1035) until an empty datagram arrives. Only `name` has an address, 127.0.0.1."""
    while True:
        query, client = server.recvfrom(512)
        if not query:
            return
        end = query.index(b"\0", 12)
        question, record_type = query[12:end], query[end + 1 : end + 3]
        encoded = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        is_known = question.lower() == encoded and record_type == b"\0\1"
        head = query[:2] + b"\x81\x80\0\1" + bytes([0, is_known]) + b"\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if is_known else b""
        server.sendto(head + query[12 : end + 5] + record, client)


class Postmark(http.server.BaseHTTPRequestHandler):
    """Accepts one email per call, with the id `m-1`."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        response = b'[{"ErrorCode": 0, "Message": "OK", "MessageID": "m-1"}]'
        self.send_response(200 if self.path == "/email/batch" else 404)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_):
        pass


def create_authority(root, folder, name, address):
    """Creates a certificate authority, and its certificate for `name`: ca.pem and leaf.pem in `folder`.

    The authority is also /work/ca.pem in `root`, whose hosts file resolves `name` to `address`.
    """
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    output(*make, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", cwd=folder)
    leaf = ["-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE"]
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}", *leaf]
    output(*make, "-keyout", "leaf.key", "-out", "leaf.crt", *signing, cwd=folder)
    (folder / "leaf.pem").write_text((folder / "leaf.crt").read_text() + (folder / "leaf.key").read_text())
    shutil.copy(folder / "ca.pem", root / "work/ca.pem")
    (root / "etc").mkdir()
    (root / "etc/hosts").write_text(f"{address} {name}\n")


@test
def the_checksums_cover_all_files_of_the_release(folder):
    output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
    listed = (DIST / "SHA256SUMS").read_text().split()[1::2]
    assert sorted(listed) == sorted(file.name for file in DIST.iterdir() if file.name != "SHA256SUMS")


@test
def the_archive_runs_in_an_empty_root_file_system(folder):
    root, chroot = unpack_archive(folder)
    names = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    files = "README.md docs/README.md templates/digest/body.html locales/en.ftl ops/tidings.rules.yml LICENSE-MIT"
    files += " LICENSE-APACHE tidings.example.toml tidings.service man/man1/tidings.1"
    for name in files.split():
        assert name in names, name
    assert {f"completions/tidings.{shell}" for shell in ("bash", "zsh", "fish")} <= names
    assert "NEEDED" not in output("readelf", "--dynamic", root / "tidings")
    # ldd prints the first text for an executable with a fixed address, and exits with 1.
    linked = subprocess.run(["ldd", root / "tidings"], capture_output=True, text=True)
    assert re.search("not a dynamic executable|statically linked", linked.stdout + linked.stderr), linked
    started = time.monotonic()

    printed = chroot.run("demo", "--dir", "/work/demo")

    seconds = time.monotonic() - started
    assert seconds < 10 and "outbox" in printed, (seconds, printed)
    chroot.start_and_check()
    # In the guide, the user runs `init` in the unpacked folder.
    output(root / "tidings", "init", cwd=root, env={})
    assert (root / "tidings.toml").exists()
    version = output(root / "tidings", "--version")
    assert re.fullmatch(r"tidings \S+ \(commit \S+, \S+-linux-\S+\)\n", version), version


@test
def names_are_resolved_by_hosts_and_dns(folder):
    root, chroot = unpack_archive(folder)
    (root / "etc").mkdir()
    (root / "etc/resolv.conf").write_text(f"nameserver {DNS}\n")
    (root / "etc/hosts").write_text("127.0.0.1 by-hosts.test\n")
    chroot.run("init")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, chroot.serving() as url:
        server.bind((DNS, 53))
        resolver = threading.Thread(target=serve_dns, args=(server, "by-dns.test"), daemon=True)
        resolver.start()
        for name in ["by-hosts.test", "by-dns.test"]:
            named = url.replace("127.0.0.1", name)
            assert chroot.run("health", "--url", named) == f"{named}/readyz: ready\n"
        command = chroot.command("health", "--url", "http://nowhere.test:80")
        failed = subprocess.run(command, capture_output=True, text=True, env={})
        assert failed.returncode == 1 and "does not answer" in failed.stderr, failed
        server.sendto(b"", (DNS, 53))
        resolver.join()


@test
def a_private_certificate_authority_is_trusted_if_the_environment_names_it(folder):
    root, chroot = unpack_archive(folder)
    create_authority(root, folder, "provider.test", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Postmark)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (root / "work/tidings.toml").write_text(
        'mail.provider = "postmark"\nmail.from = "digest@example.org"\nmail.key = "k"\n'
        f'mail.url = "https://provider.test:{server.server_port}"\n'
    )
    command = chroot.command("send-test", "mara@example.org")

    trusted = output(*command, env={"SSL_CERT_FILE": "/work/ca.pem"})
    untrusted = subprocess.run(command, capture_output=True, text=True, env={})

    server.shutdown()
    assert "m-1" in trusted, trusted
    assert untrusted.returncode == 1 and "certificate" in untrusted.stderr, untrusted


@test
def mongodb_is_reached_over_tls(folder):
    root, chroot = unpack_archive(folder)
    create_authority(root, folder, "mongo.test", MONGO)
    chroot.run("init")
    mongod = os.environ.get("TIDINGS_TEST_MONGOD") or shutil.which("mongod")
    mongod = mongod or output(ROOT / "scripts/with-mongo", "--fetch").strip()
    (folder / "data").mkdir()
    listen = ["--bind_ip", MONGO, "--port", "27017", "--nounixsocket", "--dbpath", folder / "data"]
    tls = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", folder / "leaf.pem", "--tlsCAFile", folder / "ca.pem"]
    command = [mongod, *listen, *tls, "--tlsAllowConnectionsWithoutCertificates", "--logpath", folder / "log"]
    url = "mongodb://mongo.test/tidings?tls=true"
    mara = '{"id": "mara", "email": "mara@example.org", "confirmed": true}'
    (root / "work/people.ndjson").write_text(mara)

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            trusted = f"{url}&tlsCAFile=/work/ca.pem"
            # The first command waits until the server listens.
            chroot.run("--store", trusted, "import", "users", "/work/people.ndjson")
            chroot.run("--store", trusted, "notify", "Published", "Work:w1", "--to", "mara", "--wait")
            feed = chroot.run("--store", trusted, "feed", "mara")
            # The command retries for half a minute, so the test ends it after the first failure.
            command = chroot.command("--store", f"{url}&serverSelectionTimeoutMS=500", "feed", "mara")
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={}) as untrusted:
                error = untrusted.stderr.readline()
                untrusted.kill()
        finally:
            server.kill()

    assert "Work:w1" in feed and "invalid peer certificate" in error, (feed, error)


@test
def the_deb_has_a_private_configuration_and_a_hardened_unit(folder):
    package = release_file("tidings_*.deb")
    output("dpkg-deb", "--extract", package, folder)
    output("dpkg-deb", "--control", package, folder / "control")
    assert (folder / "control/conffiles").read_text() == "/etc/tidings/tidings.toml\n"
    assert (folder / "etc/tidings/tidings.toml").stat().st_mode & 0o777 == 0o640
    config = folder / "etc/tidings/tidings.toml"
    assert config.read_text().count('\nkey_file = "/etc/tidings/server.key"\n') == 1
    # postinst creates the key, so an extracted package has none.
    assert not config.with_name("server.key").exists()
    for script in ("postinst", "prerm", "postrm"):
        output("sh", "-n", folder / "control" / script)
    create_key = re.search(r"od .* \| tr -d ' \\n'", (folder / "control/postinst").read_text())[0]
    key = folder / "key"
    key.write_text(output("sh", "-c", create_key))
    assert re.fullmatch(r"[0-9a-f]{48}", key.read_text())
    environment = {"TIDINGS_SERVER_KEY_FILE": str(key)}
    printed = output(folder / "usr/bin/tidings", "--config", config, "config", env=environment)
    assert "sqlite:/var/lib/tidings/tidings.db" in printed and 'outbox = "/var/lib/tidings/outbox"' in printed
    unit = folder / "usr/lib/systemd/system/tidings.service"
    # A threshold of 30 allows an exposure of 3.0.
    output("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)
    extracted = unit.with_name("tidings-here.service")
    extracted.write_text(unit.read_text().replace("/usr/bin/tidings", str(folder / "usr/bin/tidings")))
    output("systemd-analyze", "verify", "--man=no", extracted)


@test
def the_rpm_has_the_same_files(folder):
    listed = set(output("rpm", "--query", "--list", "--package", release_file("tidings-*-1.*.rpm")).split())
    for name in ["/usr/bin/tidings", "/etc/tidings/tidings.toml", "/usr/lib/systemd/system/tidings.service"]:
        assert name in listed, name
    config_files = output("rpm", "--query", "--configfiles", "--package", release_file("tidings-*-1.*.rpm"))
    assert config_files == "/etc/tidings/tidings.toml\n"


@test
def the_sbom_lists_the_locked_crates(folder):
    bom = json.loads(release_file("tidings-*.cdx.json").read_text())
    names = {component["name"] for component in bom["components"]}
    assert bom["bomFormat"] == "CycloneDX" and {"mongodb", "rusqlite", "rustls"} <= names
    assert not names & {"insta", "proptest"}, "crates of the tests are not in the binary"
    assert all(component["hashes"] and component["licenses"] for component in bom["components"])


def write_image_context(folder):
    """Writes the last stage of the Dockerfile, and its files with the program of the archive."""
    with tempfile.TemporaryDirectory() as unpacked:
        output("tar", "-xzf", release_file("tidings-*.tar.gz"), "-C", unpacked, "--strip-components=1")
        output(ROOT / "deploy/image/root", f"{unpacked}/tidings", folder / "image")
    dockerfile = (ROOT / "Dockerfile").read_text()
    final = dockerfile[dockerfile.index("FROM scratch"):].replace("--from=build ", "").replace(" /image/", " image/")
    (folder / "Dockerfile").write_text(final)


@test
def the_image_is_small_and_runs_without_root(folder):
    write_image_context(folder)
    buildah = ["buildah", "--storage-driver=vfs", f"--root={folder}/storage", f"--runroot={folder}/run"]
    build = ["build", "--isolation=chroot", "--format=docker", "--build-arg=COMMIT=abc", "--tag=tidings"]
    output(*buildah, *build, folder)
    config = json.loads(output(*buildah, "inspect", "--type=image", "tidings"))["Docker"]["config"]
    assert config["User"] == f"{USER}:{USER}" and config["Labels"]["org.opencontainers.image.revision"] == "abc"
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/tidings", "health"], config
    container = output(*buildah, "from", "tidings").strip()
    root = Path(output(*buildah, "mount", container).strip())
    files = [path for path in root.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"the image has {len(files)} files and {megabytes:.1f} MB", flush=True)
    assert megabytes < MAX_MEGABYTES
    writable = [path for path in root.rglob("*") if path.stat().st_uid == USER]
    assert all(path.is_relative_to(root / "data") for path in writable), "the user can write only below /data"
    chroot = Chroot(root, config["Entrypoint"][0], config["WorkingDir"])

    printed = chroot.run("demo", "--dir", f"{config['WorkingDir']}/demo")

    assert "outbox" in printed, printed
    chroot.start_and_check()


# The commands that test each install method of the README, run after it. See readme.sh.
INSTALL_METHODS = {
    "archive": "try_out",
    "package": "tidings health\ntry_out",
    "image": "docker exec tidings /usr/bin/tidings health",
    "source": "true",
}


@test
def every_install_method_of_the_readme_works(folder):
    section = (ROOT / "README.md").read_text().split("\n## Install\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    methods = re.findall(r"^# From (?:the |an? )?(\w+).*\n((?:[^#\n].*\n)+)", block, re.MULTILINE)
    assert [method for method, _ in methods] == list(INSTALL_METHODS), methods
    lines = sum(len(commands.splitlines()) for _, commands in methods)
    assert lines == len(re.findall("^[^#\n]", block, re.MULTILINE)), "a command belongs to no method"
    write_image_context(folder)
    for pattern in ["tidings-*.tar.gz", "tidings_*.deb"]:
        shutil.copy(release_file(pattern), folder)
    archive = release_file("tidings-*.tar.gz").name.removesuffix(".tar.gz")
    names = {"tidings-VERSION-TARGET": archive, "tidings_VERSION_ARCH.deb": release_file("tidings_*.deb").name}
    for method, commands in methods:
        for placeholder, name in names.items():
            commands = commands.replace(placeholder, name)
        started = time.monotonic()
        script = f"{commands}\n{INSTALL_METHODS[method]}"
        output(ROOT / "tests/image/readme.sh", folder, script, stdin=subprocess.DEVNULL)
        print(f"{method}: {time.monotonic() - started:.1f} s", flush=True)


def run_in_folder(function, _number):
    with tempfile.TemporaryDirectory(prefix="tidings-image-") as folder:
        # USER must be able to enter the folder.
        os.chmod(folder, 0o755)
        function(Path(folder))


if __name__ == "__main__":
    sys.exit(runner.run("tests of the release", sys.argv[2:], run_in_folder))
