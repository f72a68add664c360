"""The browser tests of `serve --demo`: `demo.py TIDINGS CHROMIUM [NAME…]`, in a Python that has Playwright.

Each test starts a demo of its own, because its button sends the digests of all users.
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
from harness import bell, check_accessibility, launch, record_errors, test
from stage import end


class Demo:
    """A served demo, and a visitor's browser."""

    def __init__(self, binary, browser, folder):
        self.browser, self.contexts, self.page_errors = browser, [], []
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        command = [binary, "serve", "--demo", "--listen", "127.0.0.1:0", "--log", "warn"]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        # A server that hangs at start is killed, which ends its output.
        alarm = threading.Timer(60, self.process.kill)
        alarm.start()
        try:
            line = self.process.stdout.readline()
            assert line.rstrip().endswith("/demo"), line
            self.url = line.split()[-1]
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
        context.on("page", lambda page: record_errors(page, self.page_errors.append))
        page = context.new_page()
        page.goto(self.url)
        expect(page.locator("html[data-ready]")).to_be_attached()
        return page

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


def new_email(page, name):
    return page.locator("#emails .new").get_by_role("button", name=name)


def email_frame(page):
    return page.frame_locator("#email-text")


def look_as(page, name):
    page.get_by_role("group", name="Look as").get_by_role("button", name=name).click()
    expect(page.locator("#as")).to_have_text(name)


def save_screenshot(page, name, full_page=True):
    harness.save_screenshot(page, f"demo-{name}", full_page)


@test
def a_published_work_raises_the_badge_and_is_in_the_digest(demo):
    page = demo.open()
    expect(badge(page)).to_be_visible()  # Mara follows two artists of the last works
    before = int(badge(page).inner_text())
    save_screenshot(page, "light")
    check_accessibility(page)

    publish(page, "Ines Tavoro", "The Last Tram <Home>")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    expect(badge(page)).to_have_text(str(before + 1))
    bell(page).click()
    expect(page.get_by_role("article").first).to_contain_text("The Last Tram <Home>")
    expect(badge(page)).to_be_hidden()
    save_screenshot(page, "bell", full_page=False)
    page.keyboard.press("Escape")
    send(page)

    expect(page.locator("#sent")).to_contain_text("They are listed below")
    expect(new_email(page, "Mara")).to_have_count(1)
    save_screenshot(page, "sent")
    new_email(page, "Mara").click()
    expect(email_frame(page).get_by_role("link", name="The Last Tram <Home>").first).to_be_visible()
    image = email_frame(page).locator("img").first
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("image => image.naturalWidth") > 0
    save_screenshot(page, "email", full_page=False)
    check_accessibility(page)


@test
def the_demo_works_on_a_dark_phone_and_sends_no_email_twice(demo):
    page = demo.open(size=(375, 800), dark=True, scale=2)
    look_as(page, "Lev")
    publish(page, "Ines Tavoro", "A Lamp in the Rain")
    expect(page.locator("#audience")).to_have_text("Ines Tavoro is followed by Ada, Lev, Mara, and Uma.")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    bell(page).click()
    expect(page.get_by_role("article").first).to_contain_text("A Lamp in the Rain")
    save_screenshot(page, "phone-bell", full_page=False)
    page.get_by_role("article").first.get_by_role("link").click()
    work = page.get_by_role("dialog", name="A Lamp in the Rain")
    expect(work).to_be_visible()
    save_screenshot(page, "phone-work", full_page=False)
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(work).to_be_hidden()
    save_screenshot(page, "phone-dark")
    send(page)
    expect(page.locator("#sent")).to_contain_text("They are listed below")
    new_email(page, "Lev").click()
    expect(email_frame(page).get_by_role("link", name="A Lamp in the Rain").first).to_be_visible()
    save_screenshot(page, "phone-email", full_page=False)
    check_accessibility(page)
    page.get_by_role("button", name="Close").click()
    send(page)

    expect(page.locator("#sent")).to_contain_text("There is nothing new")
    expect(page.locator("#emails .new")).to_have_count(0)


@test
def links_open_the_preferences_and_unsubscribe(demo):
    page = demo.open()
    publish(page, "Ines Tavoro", "A Bridge at Noon")
    expect(page.locator("#published")).to_contain_text("Notified 4 users.")
    send(page)
    new_email(page, "Mara").click()

    with page.context.expect_page() as opened:
        links = [email_frame(page).get_by_role("link", name=name) for name in ("preferences", "Choose")]
        links[0].or_(links[1]).first.click()
    preferences = opened.value
    expect(preferences.get_by_role("heading", name="Your emails")).to_be_visible()
    preferences.get_by_role("button", name="Save").click()
    expect(preferences.get_by_text("Saved.")).to_be_visible()
    preferences.close()
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
def buttons_work_by_keyboard_and_the_dark_page_is_readable(demo):
    page = demo.open(dark=True)
    save_screenshot(page, "dark")
    check_accessibility(page)
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
    expect(email_frame(page).locator("body")).to_be_visible()
    save_screenshot(page, "email-dark", full_page=False)
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

        failed = harness.run(browser, "tests of the demo", names, visit, "demo-")
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
