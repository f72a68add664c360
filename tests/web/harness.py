"""What all browser tests share: who visits a page, and what is asked of any page.

The rule: each runs by itself with a visitor of its own (what a `visit` gives), who must not hear a complaint of
the page; nothing is tried twice (`runner.py`).
"""

import json
import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import runner
from runner import test as test

expect.set_options(timeout=15_000)


def launch(playwright, chromium):
    return playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])


def run(browser, what, names, visit, shots=""):
    """Runs the tests whose names hold one of these, or all; says whether any failed.

    `visit(number)` gives a context manager of a visitor, who has `contexts` of the browser and `complaints`.
    """

    def body(one, number):
        with visit(number) as visitor:
            try:
                one(visitor)
                assert not visitor.complaints, visitor.complaints
            except Exception:
                for context in visitor.contexts:
                    for page in context.pages:
                        shoot(page, f"{shots}failed-{one.__name__}")
                raise
            finally:
                for context in visitor.contexts:
                    context.close()

    return runner.run(f"{what}, in Chromium {browser.version}", names, body)


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
