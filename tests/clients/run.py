"""The tests of the clients: `run.py TIDINGS NODE [NAME…]`, in a Python with tests/clients/requirements.txt.

The rule: both clients talk to a real `tidings serve` through a proxy that loses what it is told to
lose. With TIDINGS_TEST_TSC=PATH, TypeScript reads the JavaScript client's types.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/web"), str(ROOT / "clients/python")]

import caller
import python_client
import runner
import shapes
from caller import Caller
from proxy import Proxy, remote
from stage import KEY, Tidings


def javascript(node, tidings, proxy, folder, names):
    """Runs the tests of the JavaScript client, and says whether any failed."""
    counted = folder / "node.tap"
    flags = [f"--test-name-pattern={name}" for name in names]
    for reporter, to in (("spec", "stdout"), ("tap", counted)):
        flags += [f"--test-reporter={reporter}", f"--test-reporter-destination={to}"]
    told = {"TIDINGS_URL": tidings.url, "TIDINGS_KEY": KEY, "TIDINGS_SECRET": caller.SECRET,
            "PROXY_URL": proxy.url, "PROXY_TOLD_AT": remote(proxy)}
    file = ROOT / "tests/clients/client.test.mjs"
    code = subprocess.run([node, "--test", *flags, file], env={**os.environ, **told}).returncode
    lines = counted.read_text().splitlines() if counted.exists() else []
    sums = dict(line[2:].rsplit(" ", 1) for line in lines if line.startswith("# "))
    passed = int(sums.get("pass", 0))
    failed = max(int(sums.get("tests", 0)) - passed - int(sums.get("skipped", 0)), int(code != 0))
    runner.say(passed, failed)
    return bool(failed)


def main(binary, node, *names):
    with tempfile.TemporaryDirectory() as folder:
        tidings = Tidings(binary, Path(folder), caller.CONFIG)
        proxy = Proxy(tidings.url)

        def body(one, number):
            kinds = getattr(one, "kinds", None)
            if kinds is None:
                return one()
            one_caller = Caller(kinds, number, tidings, proxy)
            try:
                one(one_caller)
            finally:
                one_caller.close()

        try:
            failed = runner.run("tests of the clients' types and of the Python client", names, body)
            failed |= javascript(node, tidings, proxy, Path(folder), names)
        finally:
            tidings.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
