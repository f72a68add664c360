"""The browser tests of `serve --demo`: `demo.py TIDINGS CHROMIUM [NAME…]`, in a Python that has Playwright.

The rule: as in `run.py`, and each test has a demo of its own: digests are everybody's.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import harness
from harness import accessible, bell, launch, test
from stage import end


class Demo:
    """A demo that is served, and a visitor's browser."""

    def __init__(self, binary, browser, folder):
        self.browser, self.contexts, self.complaints = browser, [], []
        quiet = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        command = [binary, "serve", "--demo", "--listen", "127.0.0.1:0", "--log", "warn"]
        self.process = subprocess.Popen(command, cwd=folder, env=quiet, stdout=subprocess.PIPE, text=True)
        # A server that hangs at start is killed, which ends its output.
        alarm = threading.Timer(60, self.process.kill)
        alarm.start()
        try:
            said = self.process.stdout.readline()
            assert said.rstrip().endswith("/demo"), said
            self.url = said.split()[-1]
        except BaseException:
            self.stop()
            raise
        finally:
            alarm.cancel()

    def open(self, size=(1200, 900), dark=False, scale=1):
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light",
            locale="en-US", timezone_id="UTC", device_scale_factor=scale, reduced_motion="reduce",
        )
        self.contexts.append(context)
        context.on("page", self.listen)
        page = context.new_page()
        page.goto(self.url)
        expect(page.locator("html[data-ready]")).to_be_attached()
        return page

    def listen(self, page):
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def stop(self):
        with self.process.stdout:
            end(self.process)


def badge(page):
    return page.locator("tidings-inbox .badge")


def publish(page, artist, title):
    page.get_by_label("Artist").select_option(artist)
    page.get_by_label("Title").fill(title)
    page.get_by_role("button", name="Publish").click()


def send(page):
    page.get_by_role("button", name="Send the digests now").click()


def emails(page):
    return page.locator("#emails").get_by_role("button")


def new_mail(page, name):
    return page.locator("#emails .new").get_by_role("button", name=name)


def text_of(page):
    return page.frame_locator("#email-text")


def look_as(page, name):
    page.get_by_role("group", name="Look as").get_by_role("button", name=name).click()
    expect(page.locator("#as")).to_have_text(name)


def shoot(page, name, whole=True):
    harness.shoot(page, f"demo-{name}", whole)


@test
def a_work_is_published_the_badge_rises_and_the_digest_tells_it(demo):
    page = demo.open()
    expect(badge(page)).to_be_visible()  # the story ends with works of two artists whom she follows
    before = int(badge(page).inner_text())
    shoot(page, "light")
    accessible(page)

    publish(page, "Ines Tavoro", "The Last Tram <Home>")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    expect(badge(page)).to_have_text(str(before + 1))
    bell(page).click()
    expect(page.get_by_role("article").first).to_contain_text("The Last Tram <Home>")
    expect(badge(page)).to_be_hidden()
    shoot(page, "bell", whole=False)
    page.keyboard.press("Escape")
    send(page)

    expect(page.locator("#sent")).to_contain_text("They are listed below")
    expect(new_mail(page, "Mara")).to_have_count(1)
    shoot(page, "sent")
    new_mail(page, "Mara").click()
    expect(text_of(page).get_by_role("link", name="The Last Tram <Home>").first).to_be_visible()
    drawn = text_of(page).locator("img").first
    expect(drawn).to_have_js_property("complete", True)
    assert drawn.evaluate("image => image.naturalWidth") > 0
    shoot(page, "email", whole=False)
    accessible(page)


@test
def a_work_is_told_on_a_phone_in_the_dark_and_nobody_is_emailed_twice(demo):
    page = demo.open(size=(375, 800), dark=True, scale=2)
    look_as(page, "Lev")
    publish(page, "Ines Tavoro", "A Lamp in the Rain")
    expect(page.locator("#audience")).to_have_text("Ines Tavoro is followed by Ada, Lev, Mara, and Uma.")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    bell(page).click()
    expect(page.get_by_role("article").first).to_contain_text("A Lamp in the Rain")
    shoot(page, "phone-bell", whole=False)
    page.get_by_role("article").first.get_by_role("link").click()
    shown = page.get_by_role("dialog", name="A Lamp in the Rain")
    expect(shown).to_be_visible()
    shoot(page, "phone-work", whole=False)
    accessible(page)
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    shoot(page, "phone-dark")
    send(page)
    expect(page.locator("#sent")).to_contain_text("They are listed below")
    new_mail(page, "Lev").click()
    expect(text_of(page).get_by_role("link", name="A Lamp in the Rain").first).to_be_visible()
    shoot(page, "phone-email", whole=False)
    accessible(page)
    page.get_by_role("button", name="Close").click()
    send(page)

    expect(page.locator("#sent")).to_contain_text("There is nothing new")
    expect(page.locator("#emails .new")).to_have_count(0)


@test
def the_links_of_page_and_mail_lead_to_the_preferences_and_out(demo):
    page = demo.open()
    publish(page, "Ines Tavoro", "A Bridge at Noon")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    send(page)
    new_mail(page, "Mara").click()

    with page.context.expect_page() as opened:
        text_of(page).get_by_role("link", name="preferences").or_(text_of(page).get_by_role("link", name="Choose")).first.click()
    choices = opened.value
    expect(choices.get_by_role("heading", name="Your emails")).to_be_visible()
    choices.get_by_role("button", name="Save").click()
    expect(choices.get_by_text("Saved.")).to_be_visible()
    choices.close()
    page.get_by_role("button", name="Close").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="unsubscribe").click()
    opened.value.get_by_role("button", name="Unsubscribe").first.click()
    expect(opened.value.get_by_text("unsubscribed").first).to_be_visible()
    opened.value.close()
    page.bring_to_front()
    page.evaluate("dispatchEvent(new Event('focus'))")

    expect(page.get_by_role("group", name="Look as").get_by_role("button", name="Mara")).to_contain_text("unsubscribed")


@test
def every_button_works_by_keyboard_and_dark_is_readable(demo):
    page = demo.open(dark=True)
    shoot(page, "dark")
    accessible(page)
    people = page.get_by_role("group", name="Look as")

    people.get_by_role("button", name="Nia").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#as")).to_have_text("Nia")
    expect(people.get_by_role("button", name="Nia")).to_be_focused()
    expect(people.get_by_role("button", name="Nia")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Send the digests now").focus()
    page.keyboard.press("Space")
    expect(page.locator("#sent")).to_contain_text("They are listed below")
    emails(page).first.focus()
    page.keyboard.press("Enter")
    expect(text_of(page).locator("body")).to_be_visible()
    shoot(page, "email-dark", whole=False)
    page.keyboard.press("Escape")
    expect(emails(page).first).to_be_focused()


def main(binary, chromium, *names):
    binary = Path(binary).resolve()
    with sync_playwright() as playwright:
        browser = launch(playwright, chromium)

        @contextlib.contextmanager
        def visit(_number):
            with tempfile.TemporaryDirectory() as folder:
                demo = Demo(binary, browser, folder)
                try:
                    yield demo
                finally:
                    demo.stop()

        failed = harness.run(browser, "tests of the demo", names, visit, shots="demo-")
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
