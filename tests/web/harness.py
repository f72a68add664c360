"""Functions that all browser tests share.

Each test runs once, with a visitor of its own. It fails if a page logs an error or a warning, or does not catch an
exception. TIDINGS_TEST_SHOTS=FOLDER saves screenshots. Start with `run`.
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
    # Chromium's sandbox does not run as root.
    return playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])


def run(browser, title, names, visit, prefix=""):
    """Runs the tests whose names contain one of `names`, or all. Returns whether any failed.

    `visit(number)` returns a context manager for a visitor with `contexts` of the browser and `page_errors`.
    `prefix` starts the names of the screenshots of failed tests.
    """

    def body(function, number):
        with visit(number) as visitor:
            try:
                function(visitor)
                assert not visitor.page_errors, visitor.page_errors
            except Exception:
                for context in visitor.contexts:
                    for page in context.pages:
                        save_screenshot(page, f"{prefix}failed-{function.__name__}")
                raise
            finally:
                for context in visitor.contexts:
                    context.close()

    return runner.run(f"{title}, in Chromium {browser.version}", names, body)


def record_errors(page, record):
    """Calls `record` with the text of each console error, console warning and uncaught exception of the page."""
    page.on("console", lambda message: message.type in ("error", "warning") and record(message.text))
    page.on("pageerror", lambda error: record(str(error)))


def bell(page):
    return page.get_by_role("button", name="Notifications")


def save_screenshot(page, name, full_page=False):
    folder = os.environ.get("TIDINGS_TEST_SHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)


def check_accessibility(page):
    """Fails if axe finds a violation of any rule, or if the page scrolls sideways."""
    violations = Axe().run(page).response["violations"]
    assert not violations, json.dumps(
        [[rule["id"], rule["help"], [node["html"] for node in rule["nodes"]]] for rule in violations], indent=1
    )
    is_too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not is_too_wide, "the page scrolls sideways"
