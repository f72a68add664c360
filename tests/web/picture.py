"""The picture of the README: `picture.py TIDINGS CHROMIUM FILE.png`, in a Python that has Playwright.

It plays the demo as its tests do: a work and a comment are published, and the bell is opened.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from demo import Demo, publish
from harness import bell, launch

MOST = 150_000


def main(binary, chromium, file):
    file = Path(file).resolve()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        demo = Demo(Path(binary).resolve(), browser, folder)
        try:
            page = demo.open(size=(1200, 726))
            publish(page, "Ines Tavoro", "A Window Left Open")
            expect(page.locator("#published")).to_contain_text("Told 4 people.")
            page.get_by_text("A comment").click()
            page.get_by_label("On", exact=True).select_option("A Window Left Open, Ines Tavoro")
            page.get_by_role("button", name="Publish").click()
            expect(page.locator("#published")).to_contain_text("Told 3 people.")
            page.get_by_text("A new work").click()
            bell(page).click()
            expect(page.get_by_role("article").nth(1)).to_contain_text("A Window Left Open")
            page.mouse.move(0, 0)
            page.evaluate("() => Promise.all([...document.images].filter(image => image.src).map(image => image.decode()))")
            page.screenshot(path=file, animations="disabled", caret="hide")
        finally:
            demo.stop()
            browser.close()
    size = file.stat().st_size
    print(f"{file}: {size} bytes")
    return size > MOST


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
