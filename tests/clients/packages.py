"""Tests of the packages that `scripts/package` builds: their files, metadata and installation."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

import runner
from stage import ROOT

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
LICENSES = {"LICENSE-APACHE", "LICENSE-MIT"}
NPM_FILES = {
    "tidings-client": {"tidings.js", "tidings.d.ts"},
    "tidings-inbox": {"widget.js", "widget.d.ts", "jsx.d.ts", "vue.d.ts"},
    "tidings-inbox-react": {"index.js", "index.d.ts"},
    "tidings-inbox-vue": {"index.js", "index.d.ts"},
}


@runner.test
def packages_contain_types_licenses_and_the_version():
    if not shutil.which("npm"):
        print("THE PACKAGES WERE NOT BUILT: npm is missing")
        assert os.environ.get("CI") is None, "npm is missing"
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        env = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([ROOT / "scripts/package", out], check=True, env=env, capture_output=True)
        check_npm_packages(out, Path(folder))
        check_python_packages(out, Path(folder))


def check_npm_packages(out, folder):
    modules = folder / "node_modules"
    for name, files in NPM_FILES.items():
        with tarfile.open(out / f"{name}-{VERSION}.tgz") as archive:
            names = {member.name.removeprefix("package/") for member in archive.getmembers()}
            assert names == files | LICENSES | {"package.json", "README.md"}, (name, names)
            archive.extractall(folder, filter="data")
        modules.mkdir(exist_ok=True)
        (folder / "package").rename(modules / name)
        metadata = json.loads((modules / name / "package.json").read_text())
        assert (metadata["version"], metadata["license"]) == (VERSION, "MIT OR Apache-2.0"), name
        assert metadata["description"] and metadata["keywords"], name
    script = (
        "import { Tidings } from 'tidings-client'; import 'tidings-inbox';"
        "new Tidings('http://example.invalid', 'key').count;"
    )
    subprocess.run([shutil.which("node"), "--input-type=module", "-e", script], cwd=folder, check=True)


def check_python_packages(out, folder):
    wheel = out / f"tidings_client-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"tidings_client-{VERSION}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
    expected = {f"tidings_client/{name}" for name in ("__init__.py", "records.py", "py.typed")}
    assert expected | {f"{info}/licenses/{name}" for name in LICENSES} <= names, names
    for line in (
        "License-Expression: MIT OR Apache-2.0", "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown",
    ):
        assert line in metadata, metadata
    with tarfile.open(out / f"tidings_client-{VERSION}.tar.gz") as archive:
        assert any(name.endswith("/tidings_client/py.typed") for name in archive.getnames())
    target = folder / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(install, check=True)
    script = "import tidings_client; print(tidings_client.__file__)"
    run = subprocess.run([sys.executable, "-c", script], cwd=target, check=True, capture_output=True, text=True)
    assert run.stdout.startswith(str(target)), run.stdout
