"""The tests of the clients: `run.py TIDINGS NODE [NAME…]`, in a Python with the packages of
tests/clients/requirements.txt. A NAME is a part of the name of a test.

The rule: both clients talk to a real `tidings serve` through proxies that lose what they are told
to lose. With TIDINGS_TEST_TSC=PATH, TypeScript reads the JavaScript types; without, that test
is counted as ignored.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/web"), str(ROOT / "clients/python")]

import caller
import packages as packages
import python_calls as python_calls
import python_retries as python_retries
import runner
import shapes
from proxy import Proxy, remote
from stage import KEY, Tidings


class Node:
    """A file of tests of the JavaScript client, in a process and with a proxy of its own."""

    def __init__(self, node, file, tidings, idle, folder, names):
        self.proxy, self.counted = Proxy(tidings.url, idle.url), folder / f"{file}.tap"
        self.said = open(folder / f"{file}.txt", "w+")
        flags = [f"--test-name-pattern={name.replace('_', '[ -_]')}" for name in names]
        for reporter, to in (("spec", "stdout"), ("tap", self.counted)):
            flags += [f"--test-reporter={reporter}", f"--test-reporter-destination={to}"]
        told = {
            "TIDINGS_URL": tidings.url, "TIDINGS_KEY": KEY, "TIDINGS_SECRET": caller.SECRET,
            "PROXY_URL": self.proxy.url, "PROXY_TOLD_AT": remote(self.proxy),
        }
        command = [node, "--test", *flags, ROOT / "tests/clients" / file]
        self.process = subprocess.Popen(
            command, env={**os.environ, **told}, stdout=self.said, stderr=self.said)

    def ended(self):
        """Prints what came of it, and says whether any failed."""
        code = self.process.wait()
        self.said.seek(0)
        print(self.said.read(), end="")
        self.said.close()
        lines = self.counted.read_text().splitlines() if self.counted.exists() else []
        sums = dict(line[2:].rsplit(" ", 1) for line in lines if line.startswith("# "))
        passed, skipped = int(sums.get("pass", 0)), int(sums.get("skipped", 0))
        failed = max(int(sums.get("tests", 0)) - passed - skipped, int(code != 0))
        runner.say(passed, failed)
        return bool(failed)


def stop(processes):
    for process in processes:
        process.process.kill()
        process.process.wait()


def main(binary, node, *names):
    with tempfile.TemporaryDirectory() as folder:
        tidings, idle = (Path(folder, name) for name in ("tidings", "idle"))
        tidings.mkdir()
        idle.mkdir()
        files = ("retries.test.mjs", "calls.test.mjs")
        processes = []
        with contextlib.ExitStack() as stack:
            tidings = Tidings(binary, tidings, caller.CONFIG)
            stack.callback(tidings.stop)
            # Thousands of events would keep a worker from those that a test waits for.
            idle = Tidings(binary, idle, caller.CONFIG, "--no-worker")
            stack.callback(idle.stop)
            stack.callback(stop, processes)
            for file in files:
                processes.append(Node(node, file, tidings, idle, Path(folder), names))
            proxy = Proxy(tidings.url, idle.url)

            def body(one, number):
                kind = getattr(one, "kind", None)
                if kind is None:
                    return one()
                with caller.Caller(kind, number, tidings, proxy) as who:
                    return one(who)

            failed = runner.run("tests of the Python client and of the types", names, body)
            failed |= shapes.read_by_typescript(node, names)
            failed |= any([process.ended() for process in processes])
            if not names and not failed:
                failed |= shapes.excluded([proxy, *[process.proxy for process in processes]])
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
