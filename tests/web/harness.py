"""What all browser tests share: how they are listed and run, and what they ask of any page.

The rule: each runs by itself with a visitor of its own (what a `visit` gives), who must not hear a complaint of
the page; nothing is tried twice.
"""

import json
import os
import traceback
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

TESTS = []
expect.set_options(timeout=15_000)


def test(function):
    TESTS.append(function)
    return function


def launch(playwright, chromium):
    return playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])


def run(browser, what, names, visit, shots=""):
    """Runs the tests whose names hold one of these, or all; says whether any failed.

    `visit(number)` gives a context manager of a visitor, who has `contexts` of the browser and `complaints`.
    """
    wanted = [one for one in TESTS if not names or any(name in one.__name__ for name in names)]
    failed = []
    print(f"running {len(wanted)} {what}, in Chromium {browser.version}", flush=True)
    for number, one in enumerate(wanted):
        with visit(number) as visitor:
            try:
                one(visitor)
                assert not visitor.complaints, visitor.complaints
                print(f"test {one.__name__} ... ok", flush=True)
            except Exception:
                failed.append(one.__name__)
                print(f"test {one.__name__} ... FAILED\n{traceback.format_exc()}", flush=True)
                for context in visitor.contexts:
                    for page in context.pages:
                        shoot(page, f"{shots}failed-{one.__name__}")
            finally:
                for context in visitor.contexts:
                    context.close()
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {len(wanted) - len(failed)} passed; {len(failed)} failed; 0 ignored; 0 measured; 0 filtered out")
    return bool(failed)


def bell(page):
    return page.get_by_role("button", name="Notifications")


def shoot(page, name, whole=False):
    folder = os.environ.get("TIDINGS_TEST_SHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)


def accessible(page):
    # As the tests' own pages are small, everything of axe is held against them.
    found = Axe().run(page).response["violations"]
    assert not found, json.dumps([[one["id"], one["help"], [node["html"] for node in one["nodes"]]] for one in found], indent=1)
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide, "the page scrolls sideways"
