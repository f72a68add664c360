"""The packages that `scripts/package` builds: what they contain, and that they can be installed.

The rule: what is published is what was tested, with the types, the licenses and the version of tidings.
"""

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
OF_NPM = {
    "tidings-client": {"tidings.js", "tidings.d.ts"},
    "tidings-inbox": {"widget.js", "widget.d.ts", "jsx.d.ts", "vue.d.ts"},
    "tidings-inbox-react": {"index.js", "index.d.ts"},
    "tidings-inbox-vue": {"index.js", "index.d.ts"},
}


@runner.test
def the_packages_have_types_licenses_and_the_version():
    if not shutil.which("npm"):
        print("THE PACKAGES WERE NOT BUILT: there is no npm")
        assert os.environ.get("CI") is None, "there is no npm"
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        subprocess.run([ROOT / "scripts/package", out], check=True, env={**os.environ, "PYTHON": sys.executable}, capture_output=True)
        of_npm(out, Path(folder))
        of_python(out, Path(folder))


def of_npm(out, folder):
    modules = folder / "node_modules"
    for name, files in OF_NPM.items():
        with tarfile.open(out / f"{name}-{VERSION}.tgz") as packed:
            names = {member.name.removeprefix("package/") for member in packed.getmembers()}
            assert names == files | LICENSES | {"package.json", "README.md"}, (name, names)
            packed.extractall(folder, filter="data")
        modules.mkdir(exist_ok=True)
        (folder / "package").rename(modules / name)
        described = json.loads((modules / name / "package.json").read_text())
        assert (described["version"], described["license"]) == (VERSION, "MIT OR Apache-2.0"), name
        assert described["description"] and described["keywords"], name
    imported = "import { Tidings } from 'tidings-client'; import 'tidings-inbox'; new Tidings('http://of.none', 'key').count;"
    subprocess.run([shutil.which("node"), "--input-type=module", "-e", imported], cwd=folder, check=True)


def of_python(out, folder):
    wheel = out / f"tidings_client-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        info = f"tidings_client-{VERSION}.dist-info"
        described = packed.read(f"{info}/METADATA").decode()
    wanted = {f"tidings_client/{name}" for name in ("__init__.py", "records.py", "py.typed")}
    assert wanted | {f"{info}/licenses/{name}" for name in LICENSES} <= names, names
    for line in ("License-Expression: MIT OR Apache-2.0", "Classifier: Typing :: Typed", "Description-Content-Type: text/markdown"):
        assert line in described, described
    with tarfile.open(out / f"tidings_client-{VERSION}.tar.gz") as packed:
        assert any(name.endswith("/tidings_client/py.typed") for name in packed.getnames())
    target = folder / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run(install, check=True)
    imported = "import tidings_client; print(tidings_client.__file__)"
    said = subprocess.run([sys.executable, "-c", imported], cwd=target, check=True, capture_output=True, text=True)
    assert said.stdout.startswith(str(target)), said.stdout
