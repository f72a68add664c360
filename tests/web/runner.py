"""Registers and runs tests in Python.

Each test runs once. The output has cargo's format, because `scripts/test` counts the results.
"""

import signal
import sys
import traceback

TESTS = []

# Without a handler, SIGTERM from `timeout` would leave the servers of the tests running.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def test(function):
    TESTS.append(function)
    return function


def run(title, names, body):
    """Calls `body(test, number)` for the tests whose names contain one of `names`, or for all. Returns whether any
    failed."""
    selected = [function for function in TESTS if not names or any(name in function.__name__ for name in names)]
    failed = 0
    print(f"running {len(selected)} {title}", flush=True)
    for number, function in enumerate(selected):
        try:
            body(function, number)
            print(f"test {function.__name__} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"test {function.__name__} ... FAILED\n{traceback.format_exc()}", flush=True)
    say(len(selected) - failed, failed)
    return bool(failed)


def say(passed, failed, ignored=0):
    """Prints the summary of the tests."""
    word = "FAILED" if failed else "ok"
    counts = f"{passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out"
    print(f"test result: {word}. {counts}", flush=True)
