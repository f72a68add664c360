"""The pictures of the README: `picture.py TIDINGS CHROMIUM FOLDER [dark]`, in a Python that has Playwright.

It uses the demo as its tests do: it publishes a work, opens the bell, sends the digests, and opens an
email and the preferences page. The README shows the light pictures; look at the dark ones, too.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from demo import Demo, publish, send
from harness import bell, launch

MAX_BYTES = 150_000
NARROW = (420, 700)


def main(binary, chromium, folder, *modes):
    folder, look, pictures = Path(folder).resolve(), {"dark": "dark" in modes}, []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        demo = Demo(Path(binary).resolve(), browser, place)

        def save(page, name):
            page.mouse.move(0, 0)
            page.evaluate("() => Promise.all([...document.images].filter(image => image.src).map(image => image.decode()))")
            pictures.append(folder / f"{name}.png")
            page.screenshot(path=pictures[-1], animations="disabled", caret="hide")

        try:
            page = demo.open(size=(1160, 696), **look)
            publish(page, "Ines Tavoro", "A Window Left Open")
            expect(page.locator("#published")).to_contain_text("Notified 4 users.")
            narrow = demo.open(size=NARROW, scale=1.5, **look)
            for page, name in ((narrow, "widget"), (page, "demo")):
                page.evaluate("scrollTo(0, 0)")
                bell(page).click()
                expect(page.get_by_role("article").first).to_contain_text("A Window Left Open")
                expect(page.locator("tidings-inbox .dot").first).to_be_visible()
                save(page, name)
                page.keyboard.press("Escape")
            send(page)
            expect(page.locator("#sent")).to_contain_text("They are listed below")
            numbers = page.evaluate("() => fetch('/demo/mails').then(answer => answer.json()).then(({ emails }) => emails)")
            number = next(email["number"] for email in numbers if email["user"] == "mara")
            preferences = page.locator("#links a").first.get_attribute("href")
            for address, name in ((f"/demo/mails/{number}", "digest"), (preferences, "preferences")):
                narrow.goto(demo.url.removesuffix("/demo") + address if address.startswith("/") else address)
                save(narrow, name)
        finally:
            demo.stop()
            browser.close()
    large = [path for path in pictures if path.stat().st_size > MAX_BYTES]
    print("\n".join(f"{path}: {path.stat().st_size} bytes" for path in pictures))
    return bool(large)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
