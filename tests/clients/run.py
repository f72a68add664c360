"""Tests the clients against `tidings serve`, through proxies that inject faults: `run.py TIDINGS NODE [NAME…]`.

With NAMEs, only the tests whose names contain one of them run. Python needs the packages of
tests/clients/requirements.txt. TIDINGS_TEST_TSC is the path of the TypeScript compiler, which checks the
types of the JavaScript client. Without it, that test counts as ignored.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/web"), str(ROOT / "clients/python")]

import fixture
import packages as packages
import python_calls as python_calls
import python_retries as python_retries
import runner
import type_tests
from proxy import Proxy, start_control_server
from stage import KEY, Tidings


class NodeTests:
    """Runs a file of JavaScript tests in its own process and with its own proxy."""

    def __init__(self, node, file, tidings, idle, folder, names):
        self.proxy, self.report = Proxy(tidings.url, idle.url), folder / f"{file}.tap"
        self.output = open(folder / f"{file}.txt", "w+")
        flags = [f"--test-name-pattern={name.replace('_', '[ -_]')}" for name in names]
        for reporter, destination in (("spec", "stdout"), ("tap", self.report)):
            flags += [f"--test-reporter={reporter}", f"--test-reporter-destination={destination}"]
        env = {
            **os.environ,
            "TIDINGS_URL": tidings.url, "TIDINGS_KEY": KEY, "TIDINGS_SECRET": fixture.SECRET,
            "PROXY_URL": self.proxy.url, "PROXY_CONTROL_URL": start_control_server(self.proxy),
        }
        command = [node, "--test", *flags, ROOT / "tests/clients" / file]
        self.process = subprocess.Popen(command, env=env, stdout=self.output, stderr=self.output)

    def wait(self):
        """Prints the output and the summary. Returns whether a test failed."""
        code = self.process.wait()
        self.output.seek(0)
        print(self.output.read(), end="")
        self.output.close()
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        totals = dict(line[2:].rsplit(" ", 1) for line in lines if line.startswith("# "))
        passed, skipped = int(totals.get("pass", 0)), int(totals.get("skipped", 0))
        failed = max(int(totals.get("tests", 0)) - passed - skipped, int(code != 0))
        runner.say(passed, failed)
        return bool(failed)


def kill(node_tests):
    for tests in node_tests:
        tests.process.kill()
        tests.process.wait()


def main(binary, node, *names):
    with tempfile.TemporaryDirectory() as folder:
        tidings_folder, idle_folder = (Path(folder, name) for name in ("tidings", "idle"))
        tidings_folder.mkdir()
        idle_folder.mkdir()
        node_tests = []
        with contextlib.ExitStack() as stack:
            tidings = Tidings(binary, tidings_folder, fixture.CONFIG)
            stack.callback(tidings.stop)
            # A worker would process thousands of test events before those that a test waits for.
            idle = Tidings(binary, idle_folder, fixture.CONFIG, "--no-worker")
            stack.callback(idle.stop)
            stack.callback(kill, node_tests)
            for file in ("retries.test.mjs", "calls.test.mjs"):
                node_tests.append(NodeTests(node, file, tidings, idle, Path(folder), names))
            proxy = Proxy(tidings.url, idle.url)

            def run_test(test, number):
                kind = getattr(test, "kind", None)
                if kind is None:
                    return test()
                with fixture.Fixture(kind, number, tidings, proxy) as test_fixture:
                    return test(test_fixture)

            failed = runner.run("tests of the Python client and of the types", names, run_test)
            failed |= type_tests.check_with_typescript(node, names)
            failed |= any([tests.wait() for tests in node_tests])
            if not names and not failed:
                failed |= type_tests.check_calls(proxy, [tests.proxy for tests in node_tests])
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
