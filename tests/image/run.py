"""The tests of the release: `run.py DIST [NAME…]`, as root, with buildah and the results of
scripts/release in the folder DIST. A NAME is a part of the name of a test.

The rule: nothing of this machine helps. The archive and the image run in root file systems that
hold only their own files, without a shell and as another user.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/web")]

import runner
from runner import test

DIST = Path(sys.argv[1]).resolve()
USER = 10001
MOST_MEGABYTES = 60


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

    def command(self, *arguments):
        inside = ["chroot", f"--userspec={USER}:{USER}", str(self.root), self.program]
        return [*inside, "--config", f"{self.folder}/tidings.toml", *arguments]

    def run(self, *arguments):
        return output(*self.command(*arguments), env={})

    def serve(self, *arguments):
        """Starts a server, asks its health and a page, and stops it. Returns its exit code."""
        server = subprocess.Popen(
            self.command("serve", "--listen", "127.0.0.1:0", *arguments),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={},
        )
        try:
            line = next(line for line in server.stdout if "listens on" in line)
            url = re.search(r"http://\S+", line)[0]
            assert self.run("health", "--url", url).endswith("/readyz: ready\n")
            with urllib.request.urlopen(f"{url}/openapi.json", timeout=10) as answer:
                assert answer.status == 200
            server.terminate()
            return server.wait(timeout=60)
        finally:
            server.kill()
            server.wait()


@test
def the_checksums_are_those_of_all_results(folder):
    output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
    listed = (DIST / "SHA256SUMS").read_text().split()[1::2]
    assert sorted(listed) == sorted(file.name for file in DIST.iterdir() if file.name != "SHA256SUMS")


@test
def the_archive_runs_where_there_is_nothing_else(folder):
    output("tar", "-xzf", result("tidings-*.tar.gz"), "-C", folder)
    (whole,) = folder.iterdir()
    names = {path.relative_to(whole).as_posix() for path in whole.rglob("*")}
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "tidings.toml", "tidings.service", "man/man1/tidings.1"]:
        assert name in names, name
    assert {f"completions/tidings.{shell}" for shell in ("bash", "zsh", "fish")} <= names
    assert "NEEDED" not in output("readelf", "--dynamic", whole / "tidings")
    (whole / "work").mkdir()
    rooted = Rooted(whole, "/tidings", "/work")
    started = time.monotonic()

    shown = rooted.run("demo", "--dir", "/work/demo")

    took = time.monotonic() - started
    assert took < 10 and "outbox" in shown, (took, shown)
    rooted.run("init")
    assert rooted.serve() == 0
    version = output(whole / "tidings", "--version")
    assert re.fullmatch(r"tidings \S+ \(commit \S+, \S+-linux-\S+\)\n", version), version


@test
def the_deb_has_a_private_configuration_and_a_hardened_unit(folder):
    package = result("tidings_*.deb")
    output("dpkg-deb", "--extract", package, folder)
    output("dpkg-deb", "--control", package, folder / "control")
    assert (folder / "control/conffiles").read_text() == "/etc/tidings/tidings.toml\n"
    assert (folder / "etc/tidings/tidings.toml").stat().st_mode & 0o777 == 0o640
    shown = output(folder / "usr/bin/tidings", "--config", folder / "etc/tidings/tidings.toml", "config", env={})
    assert "sqlite:/var/lib/tidings/tidings.db" in shown and 'outbox = "/var/lib/tidings/outbox"' in shown
    unit = folder / "usr/lib/systemd/system/tidings.service"
    if shutil.which("systemd-analyze"):
        # The threshold is ten times the exposure.
        output("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)
        run = unit.with_name("tidings-here.service")
        run.write_text(unit.read_text().replace("/usr/bin/tidings", str(folder / "usr/bin/tidings")))
        output("systemd-analyze", "verify", "--man=no", run)


@test
def the_rpm_has_the_same_files(folder):
    listed = set(output("rpm", "--query", "--list", "--package", result("tidings-*.rpm")).split())
    for name in ["/usr/bin/tidings", "/etc/tidings/tidings.toml", "/usr/lib/systemd/system/tidings.service"]:
        assert name in listed, name
    configured = output("rpm", "--query", "--configfiles", "--package", result("tidings-*.rpm"))
    assert configured == "/etc/tidings/tidings.toml\n"


@test
def the_sbom_lists_the_locked_crates(folder):
    bom = json.loads(result("tidings-*.cdx.json").read_text())
    names = {component["name"] for component in bom["components"]}
    assert bom["bomFormat"] == "CycloneDX" and {"mongodb", "rusqlite", "rustls"} <= names
    assert not names & {"insta", "proptest"}, "crates of the tests are not in the binary"
    assert all(component["hashes"] and component["licenses"] for component in bom["components"])


@test
def the_image_is_small_and_runs_without_root(folder):
    with tempfile.TemporaryDirectory() as unpacked:
        output("tar", "-xzf", result("tidings-*.tar.gz"), "-C", unpacked, "--strip-components=1")
        output(ROOT / "deploy/image/root", f"{unpacked}/tidings", folder / "image")
    whole = (ROOT / "Dockerfile").read_text()
    final = whole[whole.index("FROM scratch"):].replace("--from=build ", "").replace(" /image/", " image/")
    (folder / "Dockerfile").write_text(final)
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
    rooted.run("init")
    assert rooted.serve() == 0


def in_folder(one, _number):
    with tempfile.TemporaryDirectory(prefix="tidings-image-") as folder:
        # The other user must reach its root.
        os.chmod(folder, 0o755)
        one(Path(folder))


if __name__ == "__main__":
    sys.exit(runner.run("tests of the release", sys.argv[2:], in_folder))
