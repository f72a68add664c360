"""How tests in Python are listed, run and counted.

The rule: each runs once, and what is printed is what cargo prints, so that `scripts/test` counts it.
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


def run(what, names, body):
    """Runs the tests whose names hold one of these, or all, by `body(test, number)`; says whether any failed."""
    wanted = [one for one in TESTS if not names or any(name in one.__name__ for name in names)]
    failed = 0
    print(f"running {len(wanted)} {what}", flush=True)
    for number, one in enumerate(wanted):
        try:
            body(one, number)
            print(f"test {one.__name__} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"test {one.__name__} ... FAILED\n{traceback.format_exc()}", flush=True)
    say(len(wanted) - failed, failed)
    return bool(failed)


def say(passed, failed, ignored=0):
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out", flush=True)
