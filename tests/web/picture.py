"""Makes the pictures of the README: `picture.py TIDINGS CHROMIUM FOLDER [dark]`, in a Python that has Playwright.

It publishes a work in the demo, opens the bell, sends the digests, and opens an email and the preferences page. The
README shows the light pictures. Check the dark ones too. It fails if a picture has more than MAX_BYTES.
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
    folder, is_dark, pictures = Path(folder).resolve(), "dark" in modes, []
    with tempfile.TemporaryDirectory() as demo_folder, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        demo = Demo(Path(binary).resolve(), browser, demo_folder)

        def save(page, name):
            page.mouse.move(0, 0)
            images = "[...document.images].filter(image => image.src)"
            page.evaluate(f"() => Promise.all({images}.map(image => image.decode()))")
            pictures.append(folder / f"{name}.png")
            page.screenshot(path=pictures[-1], animations="disabled", caret="hide")

        try:
            page = demo.open(size=(1160, 696), dark=is_dark)
            publish(page, "Ines Tavoro", "A Window Left Open")
            expect(page.locator("#published")).to_contain_text("Notified 4 users.")
            narrow = demo.open(size=NARROW, scale=1.5, dark=is_dark)
            for page, name in ((narrow, "widget"), (page, "demo")):
                page.evaluate("scrollTo(0, 0)")
                bell(page).click()
                expect(page.get_by_role("article").first).to_contain_text("A Window Left Open")
                expect(page.locator("tidings-inbox .dot").first).to_be_visible()
                save(page, name)
                page.keyboard.press("Escape")
            send(page)
            expect(page.locator("#sent")).to_contain_text("They are listed below")
            listed = page.evaluate("() => fetch('/demo/mails').then(response => response.json())")["emails"]
            number = next(email["number"] for email in listed if email["user"] == "mara")
            preferences = page.locator("#links a").first.get_attribute("href")
            for url, name in ((f"/demo/mails/{number}", "digest"), (preferences, "preferences")):
                narrow.goto(demo.url.removesuffix("/demo") + url if url.startswith("/") else url)
                save(narrow, name)
        finally:
            demo.stop()
            browser.close()
    large = [path for path in pictures if path.stat().st_size > MAX_BYTES]
    print("\n".join(f"{path}: {path.stat().st_size} bytes" for path in pictures))
    return bool(large)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
