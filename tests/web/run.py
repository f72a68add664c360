"""The browser tests of the widget: `run.py TIDINGS CHROMIUM [NAME…]`, in a Python that has Playwright.

A NAME is a part of the name of a test. Each test has a user of its own. Its pages send requests only to the site, and
a page that logs an error or a warning fails the test. TIDINGS_TEST_SHOTS=FOLDER saves screenshots.
"""

import contextlib
import gzip
import json
import re
import sys
import tempfile
import urllib.request
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import harness
from harness import bell, check_accessibility, launch, record_errors, save_screenshot, test
from stage import ROOT, Site, Tidings, timestamp, wait_until

TYPES = '[types.Reply]\nheading = "Replies"\nphrase = "replied to"\n'


class Reader:
    """A user with a browser. Tests find elements by their roles, as a screen reader does."""

    def __init__(self, name, site, browser):
        self.name, self.site, self.tidings, self.browser = name, site, site.tidings, browser
        self.contexts, self.page_errors, self.expected_errors, self.all_errors = [], [], [], []

    def open(self, context=None, size=(1000, 760), dark=False, **attributes):
        if context is None:
            context = self.browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light",
                locale="en-US", timezone_id="UTC", device_scale_factor=2,
            )
            self.contexts.append(context)
        page = context.new_page()
        record_errors(page, self.record_error)
        page.goto(self.site.page(self.name, **attributes))
        return page

    def record_error(self, text):
        self.all_errors.append(text)
        if not any(part in text for part in self.expected_errors):
            self.page_errors.append(text)

    def counts(self):
        counts = self.tidings.counts(self.name)
        return counts["unseen"], counts["unread"]

    def publish_items(self, count):
        """Publishes items of different ages, with and without an image, an actor, a text and a link."""
        url = self.site.url
        actor = {"id": "ada", "name": "Ada Byron", "image": f"{url}/pictures/290.svg"}
        samples = [
            {"title": "A Figure Bowing before a Seated Old Man", "by": "Robert Blake", "url": f"{url}/works/1",
             "image": f"{url}/pictures/20.svg", "event": {"type": "ArtworkPublished"}},
            {"title": "Budget for the spring exhibition", "url": f"{url}/works/2",
             "event": {"actor": actor, "text": "Line 3 is too high. Can we talk?"}},
            {"title": "View of the Werkhalle Nord at dusk, with cranes", "by": "Ines Tavoro",
             "event": {"type": "ArtworkPublished"}},
            {"title": "Still life with oranges", "by": "Mara Oduya", "url": f"{url}/works/4",
             "image": f"{url}/pictures/140.svg", "event": {"type": "Loan"}},
        ]
        ages = [1, 14, 180, 1500, 3000, 4500]
        items = []
        for n in range(count):
            sample = samples[n % 4]
            event = {**sample["event"], "at": timestamp(ages[n] if n < 6 else 4500 + n)}
            items.append({**sample, "title": sample["title"] + (f" {n}" if n > 3 else ""), "event": event})
        self.tidings.publish(self.name, items)


def expect_badge(page, text):
    badge = page.locator("tidings-inbox .badge")
    expect(badge).to_have_text(text) if text else expect(badge).to_be_hidden()


def articles(page):
    return page.get_by_role("article")


def focused_class(page):
    """Returns the classes of the focused element in the widget."""
    return page.evaluate("document.querySelector('tidings-inbox').shadowRoot.activeElement?.className ?? null")


@test
def the_served_module_is_small_and_matches_its_source(reader):
    lines = (ROOT / "widget/widget.js").read_text().split("\n")
    source = "".join("".join(line.split()) for line in lines if not line.lstrip().startswith("//"))
    request = urllib.request.Request(reader.tidings.url + "/widget.js", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as response:
        served, headers = response.read(), response.headers

    content_type = headers["Content-Type"].partition(";")[0]
    assert (content_type, headers["Content-Encoding"]) == ("text/javascript", "gzip")
    assert "".join(gzip.decompress(served).decode().split()) == source, "build tidings again"
    assert len(served) <= 8 * 1024, f"{len(served)} bytes gzipped"


@test
def the_badge_is_exact_and_opening_marks_the_shown_items_as_seen(reader):
    reader.publish_items(3)
    page = reader.open()
    expect_badge(page, "3")
    save_screenshot(page, "closed")
    check_accessibility(page)

    bell(page).click()

    expect(articles(page)).to_have_count(3)
    expect_badge(page, None)
    wait_until(lambda: reader.counts() == (0, 3))
    save_screenshot(page, "open-light")
    check_accessibility(page)
    marks = [json.loads(mark["body"]) for mark in reader.site.requests_to("POST", "/feed/marks")]
    assert [list(mark) for mark in marks] == [["mark", "to"]], marks


@test
def a_new_item_is_shown_announced_and_marked_as_seen(reader):
    reader.publish_items(1)
    page = reader.open()
    bell(page).click()
    wait_until(lambda: reader.counts() == (0, 1))

    reader.tidings.publish(reader.name, [{"title": "A late thing"}])

    expect(articles(page).first).to_contain_text("A late thing")
    expect(page.get_by_role("status")).to_have_text("1 new")
    wait_until(lambda: reader.counts() == (0, 2))


@test
def an_unchanged_poll_receives_304(reader):
    reader.publish_items(1)
    page = reader.open()
    expect_badge(page, "1")

    wait_until(lambda: sum(entry["status"] == 304 for entry in reader.site.requests_to("GET", "/feed/count")) >= 2)


@test
def a_click_marks_as_read_and_follows_the_link(reader):
    reader.publish_items(2)
    page = reader.open()
    bell(page).click()

    articles(page).first.get_by_role("link").click()

    page.wait_for_url("**/works/1")
    wait_until(lambda: reader.counts() == (0, 1))


@test
def an_application_can_follow_the_link_itself(reader):
    reader.publish_items(2)
    page = reader.open(stay="")
    bell(page).click()

    articles(page).first.get_by_role("link").click()

    expect(page.get_by_role("dialog")).to_be_hidden()
    wait_until(lambda: reader.counts() == (0, 1))
    assert "item" in page.evaluate("received") and "works" not in page.url


@test
def an_item_opened_in_a_new_tab_is_marked_without_an_event(reader):
    reader.publish_items(2)
    page = reader.open(stay="")
    bell(page).click()

    articles(page).first.get_by_role("link").click(button="right")
    with page.context.expect_page():
        articles(page).first.get_by_role("link").click(modifiers=["Control"])

    wait_until(lambda: reader.counts() == (0, 1))
    assert "item" not in page.evaluate("received")


@test
def archiving_can_be_undone(reader):
    reader.publish_items(3)
    page = reader.open()
    bell(page).click()
    wait_until(lambda: reader.counts() == (0, 3))

    articles(page).nth(1).hover()
    articles(page).nth(1).get_by_role("button", name="Archive").click()
    expect(articles(page)).to_have_count(2)
    wait_until(lambda: reader.counts() == (0, 2))
    save_screenshot(page, "archived")
    page.get_by_role("button", name="Undo").click()

    expect(articles(page)).to_have_count(3)
    expect(articles(page).nth(1)).to_contain_text("Budget")
    wait_until(lambda: reader.counts() == (0, 3))


@test
def everything_can_be_marked_as_read(reader):
    reader.publish_items(3)
    page = reader.open()
    bell(page).click()

    page.get_by_role("button", name="Mark all as read").click()

    wait_until(lambda: reader.counts() == (0, 0))
    expect(page.locator("tidings-inbox .dot:visible")).to_have_count(0)
    expect(page.get_by_role("button", name="Mark all as read")).to_be_hidden()


@test
def items_loaded_with_show_more_stay_when_a_new_one_arrives(reader):
    reader.publish_items(9)
    page = reader.open(limit=4)
    bell(page).click()
    expect(articles(page)).to_have_count(4)

    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(8)
    reader.tidings.publish(reader.name, [{"title": "A late thing"}])

    expect(articles(page).first).to_contain_text("A late thing")
    expect(articles(page)).to_have_count(9)
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(10)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    titles = articles(page).all_inner_texts()
    assert len(set(titles)) == 10, titles


def publish_series(reader):
    """Publishes an item by one artist, and then five studies by another."""
    items = [{"title": "Budget for the spring exhibition", "by": "Ada Byron", "event": {"type": "Comment"}}]
    for n in range(5):
        url, event = f"{reader.site.url}/works/{n}", {"type": "ArtworkPublished"}
        items.append({"title": f"Study {n}", "by": "Ines Tavoro", "url": url, "event": event})
    reader.tidings.publish(reader.name, items)


@test
def groups_are_folded_and_unfold_in_place(reader):
    publish_series(reader)
    page = reader.open(group="")
    expect_badge(page, "6")
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    expect(articles(page).first).to_contain_text("Study 4")
    wait_until(lambda: reader.counts() == (0, 6))
    save_screenshot(page, "folded")
    check_accessibility(page)

    articles(page).first.get_by_role("button", name="+4 more").click()

    expect(articles(page)).to_have_count(6)
    expect(articles(page).nth(4)).to_contain_text("Study 0")
    expect(articles(page).nth(5)).to_contain_text("Budget")
    expect(page.get_by_role("button", name="more")).to_have_count(0)
    # A new item of the group is shown with the others, which stay unfolded.
    new = {"title": "Study 5", "by": "Ines Tavoro", "event": {"type": "ArtworkPublished"}}
    reader.tidings.publish(reader.name, [new])
    expect(articles(page)).to_have_count(7)
    expect(articles(page).first).to_contain_text("Study 5")
    articles(page).nth(1).hover()
    articles(page).nth(1).get_by_role("button", name="Archive").click()
    wait_until(lambda: reader.counts() == (0, 6))
    check_accessibility(page)


@test
def a_folded_group_is_archived_restored_and_read_as_one(reader):
    publish_series(reader)
    page = reader.open(group="", size=(375, 740))
    bell(page).click()
    wait_until(lambda: reader.counts() == (0, 6))
    save_screenshot(page, "folded-phone")

    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(articles(page)).to_have_count(1)
    wait_until(lambda: reader.counts() == (0, 1))
    page.get_by_role("button", name="Undo").click()
    expect(articles(page)).to_have_count(2)
    wait_until(lambda: reader.counts() == (0, 6))
    expect(articles(page).first.get_by_role("button", name="+4 more")).to_be_visible()

    articles(page).first.get_by_role("link").click()

    page.wait_for_url("**/works/4")
    wait_until(lambda: reader.counts() == (0, 1))


@test
def undo_restores_only_the_items_that_the_group_had(reader):
    publish_series(reader)
    ids = [item["id"] for item in reader.tidings.ask("GET", f"/v1/users/{reader.name}/feed")["items"]]
    reader.tidings.ask("POST", f"/v1/users/{reader.name}/feed/marks", {"mark": "archive", "ids": [ids[2]]})
    page = reader.open(group="")
    bell(page).click()
    expect(articles(page).first.get_by_role("button", name="+3 more")).to_be_visible()
    wait_until(lambda: reader.counts() == (0, 5))

    articles(page).first.focus()
    page.keyboard.press("Delete")
    wait_until(lambda: reader.counts() == (0, 1))
    page.get_by_role("button", name="Undo").click()

    wait_until(lambda: reader.counts() == (0, 5))


@test
def a_growing_group_is_listed_once_after_more_was_loaded(reader):
    items = [{"title": f"Word {n}", "by": f"Artist {n}", "event": {"type": "Comment"}} for n in range(6)]
    items.insert(1, {"title": "Word 0 again", "by": "Artist 0", "event": {"type": "Comment"}})
    reader.tidings.publish(reader.name, items)
    page = reader.open(group="", limit=4)
    bell(page).click()
    expect(articles(page)).to_have_count(4)
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(6)

    reader.tidings.publish(reader.name, [{"title": "Word 0 anew", "by": "Artist 0", "event": {"type": "Comment"}}])

    expect(articles(page).first).to_contain_text("Word 0 anew")
    expect(articles(page)).to_have_count(6)
    expect(articles(page).get_by_role("button", name="+2 more")).to_have_count(1)


@test
def everything_works_by_keyboard(reader):
    reader.publish_items(6)
    page = reader.open(limit=4)
    expect_badge(page, "6")
    keys = page.keyboard

    keys.press("Tab")
    keys.press("Enter")
    expect(articles(page)).to_have_count(4)
    assert "panel" in focused_class(page)
    keys.press("PageDown")
    keys.press("PageDown")
    expect(articles(page).nth(1)).to_be_focused()
    save_screenshot(page, "keyboard")
    keys.press("PageUp")
    expect(articles(page).nth(0)).to_be_focused()
    keys.press("Control+End")
    assert "more" in focused_class(page)
    keys.press("Enter")
    expect(articles(page).nth(4)).to_be_focused()
    keys.press("Control+Home")
    assert "close" in focused_class(page)
    keys.press("PageDown")
    keys.press("Delete")
    expect(articles(page)).to_have_count(5)
    expect(articles(page).nth(0)).to_be_focused()
    wait_until(lambda: reader.counts() == (0, 5))
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(bell(page)).to_be_focused()
    keys.press("Enter")
    keys.press("PageDown")
    expect(articles(page).nth(0)).to_be_focused()
    keys.press("Enter")
    page.wait_for_url("**/works/2")
    wait_until(lambda: reader.counts() == (0, 4))


@test
def tabs_share_their_state_and_only_one_polls(reader):
    reader.publish_items(2)
    first = reader.open()
    second = reader.open(first.context)
    expect_badge(first, "2")
    expect_badge(second, "2")
    polls = len(reader.site.requests_to("GET", "/feed/count"))
    first.wait_for_timeout(5000)
    assert len(reader.site.requests_to("GET", "/feed/count")) - polls <= 6, "both tabs polled"

    bell(second).click()
    expect_badge(second, None)
    expect_badge(first, None)
    bell(first).click()
    expect(articles(first)).to_have_count(2)
    articles(first).first.hover()
    articles(first).first.get_by_role("button", name="Archive").click()

    expect(articles(second)).to_have_count(1)


@test
def one_tab_holds_the_stream_for_all_tabs(reader):
    reader.publish_items(1)
    reader.site.open_streams = []
    first = reader.open(stream="")
    second = reader.open(first.context, stream="")
    expect_badge(first, "1")
    expect_badge(second, "1")
    wait_until(lambda: len(reader.site.open_streams) == 1)

    reader.tidings.publish(reader.name, [{"title": "A streamed thing"}])
    reader.site.send_event(reader.tidings.counts(reader.name))
    expect_badge(first, "2")
    expect_badge(second, "2")
    assert len(reader.site.requests_to("GET", "/feed/stream")) == 1
    polls = len(reader.site.requests_to("GET", "/feed/count"))
    first.wait_for_timeout(2500)
    assert len(reader.site.requests_to("GET", "/feed/count")) == polls, "a tab polled although the stream was open"
    first.close()

    wait_until(lambda: len(reader.site.requests_to("GET", "/feed/stream")) == 2)
    reader.tidings.publish(reader.name, [{"title": "Another"}])
    wait_until(lambda: len(reader.site.open_streams) == 1)
    reader.site.send_event(reader.tidings.counts(reader.name))
    expect_badge(second, "3")


@test
def the_widget_polls_if_there_is_no_stream(reader):
    reader.expected_errors = ["404", "405", "501"]
    reader.publish_items(1)
    page = reader.open(stream="")
    expect_badge(page, "1")

    reader.tidings.publish(reader.name, [{"title": "A polled thing"}])

    expect_badge(page, "2")


@test
def an_expired_token_is_renewed_once(reader):
    reader.expected_errors = ["401"]
    reader.publish_items(1)
    page = reader.open(refresh="")
    expect_badge(page, "1")

    reader.site.tokens, reader.site.next_token = {"newer"}, "newer"
    bell(page).click()

    expect(articles(page)).to_have_count(1)
    wait_until(lambda: reader.counts() == (0, 1))
    assert len(reader.site.requests_to("GET", "/token")) == 1


@test
def a_rejected_token_is_reported_and_not_sent_again(reader):
    reader.expected_errors = ["401"]
    reader.publish_items(1)
    page = reader.open(token="expired")
    bell(page).click()
    expect(page.get_by_text("Please sign in again")).to_be_visible()
    save_screenshot(page, "expired")
    check_accessibility(page)
    sent = len(reader.site.requests)
    page.wait_for_timeout(2500)
    assert len(reader.site.requests) == sent

    page.locator("tidings-inbox").evaluate("inbox => inbox.setAttribute('token', 'good')")

    expect(articles(page)).to_have_count(1)
    assert "error" in page.evaluate("received")


@test
def the_widget_recovers_when_the_server_is_back(reader):
    reader.expected_errors = ["ERR_"]
    reader.publish_items(2)
    page = reader.open()
    expect_badge(page, "2")

    reader.site.is_down = True
    bell(page).click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()
    expect_badge(page, "2")
    save_screenshot(page, "error")
    check_accessibility(page)
    reader.site.is_down = False

    expect(articles(page)).to_have_count(2)
    expect(page.get_by_text("Cannot be loaded right now")).to_be_hidden()
    expect_badge(page, None)


@test
def a_failed_mark_is_reverted(reader):
    reader.expected_errors = ["ERR_"]
    reader.publish_items(2)
    page = reader.open()
    bell(page).click()
    wait_until(lambda: reader.counts() == (0, 2))

    reader.site.is_down = True
    articles(page).first.hover()
    articles(page).first.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()
    expect(articles(page)).to_have_count(2)
    reader.site.is_down = False

    expect(page.get_by_text("Cannot be loaded right now")).to_be_hidden()
    assert reader.counts() == (0, 2)


@test
def a_response_from_before_a_mark_does_not_restore_the_badge(reader):
    reader.publish_items(2)
    page = reader.open()
    expect_badge(page, "2")

    reader.site.is_slow = True
    bell(page).click()
    page.evaluate("""() => {
        window.badges = [];
        const badge = document.querySelector('tidings-inbox').shadowRoot.querySelector('.badge');
        const observer = new MutationObserver(() => badges.push(badge.hidden ? '' : badge.textContent));
        observer.observe(badge, { attributes: true, childList: true });
    }""")
    expect_badge(page, None)
    page.wait_for_timeout(3000)

    badges = page.evaluate("badges")
    assert set(badges[badges.index(""):]) == {""}, badges


@test
def hostile_text_is_shown_as_text(reader):
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
    reader.expected_errors = ["404"]
    reader.tidings.publish(reader.name, [
        {"title": evil, "by": evil, "event": {"text": evil, "actor": {"id": evil[:60], "name": evil[:60]}}},
        {"title": "W" * 400, "image": f"{reader.site.url}/pictures/none.svg", "url": f"{reader.site.url}/works/1",
         "event": {"text": "x" * 400}},
        {"title": "\u202eruoy si siht\u202d", "by": "\u05d0\u05d1\u05d2",
         "event": {"text": "\u0645\u0631\u062d\u0628\u0627 (1)"}},
        {"title": " ", "event": {"type": "<b>", "text": "\u200b"}},
    ])
    page = reader.open()
    bell(page).click()

    expect(articles(page)).to_have_count(4)
    expect(page.get_by_text("<img src=x").first).to_be_visible()
    expect(page.locator("tidings-inbox img")).to_have_count(0)
    assert page.locator("tidings-inbox script").count() == 0
    save_screenshot(page, "hostile")
    check_accessibility(page)


@test
def an_empty_feed_shows_a_friendly_message(reader):
    page = reader.open(size=(1000, 500))
    bell(page).click()

    expect(page.get_by_text("All caught up")).to_be_visible()
    expect_badge(page, None)
    save_screenshot(page, "empty")
    check_accessibility(page)


@test
def the_panel_fits_a_phone(reader):
    reader.publish_items(6)
    page = reader.open(size=(375, 720))
    bell(page).click()

    expect(articles(page)).to_have_count(6)
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 375 and box["y"] + box["height"] <= 720, box
    save_screenshot(page, "phone")
    check_accessibility(page)


@test
def the_widget_is_dark_if_the_page_is(reader):
    reader.publish_items(6)
    page = reader.open(dark=True, preferences="/works/preferences")
    bell(page).click()

    expect(articles(page)).to_have_count(6)
    assert page.get_by_role("link", name="Preferences").get_attribute("href").endswith("/works/preferences")
    save_screenshot(page, "open-dark")
    check_accessibility(page)


@test
def the_widget_supports_right_to_left_pages(reader):
    reader.publish_items(4)
    labels = {"label-bell": "الإشعارات", "label-new": "{n} جديدة", "label-unread": "غير مقروء:"}
    labels["phrase-comment"] = "{who} علّق على {what}"
    page = reader.open(dir="rtl", lang="ar", **labels)
    page.get_by_role("button", name="الإشعارات").click()

    expect(articles(page)).to_have_count(4)
    expect(articles(page).nth(1)).to_contain_text("علّق على")
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] < 100, box
    save_screenshot(page, "rtl")
    check_accessibility(page)


@test
def the_panel_can_start_open_and_shows_phrases(reader):
    reader.publish_items(4)
    phrases = {"phrase-comment": "{who} commented on {what}", "phrase-artworkpublished": "{who} published {what}"}
    page = reader.open(open="", **phrases)

    expect(articles(page).nth(1)).to_contain_text("Ada Byron commented on Budget")
    expect(page.get_by_role("dialog")).to_be_visible()
    save_screenshot(page, "phrases")
    check_accessibility(page)


def colors(page):
    """Returns the computed colors of an unread dot, a new row and the focus ring of an item."""
    page.keyboard.press("PageDown")
    expect(articles(page).first).to_be_focused()
    return page.evaluate("""() => {
        const style = part => getComputedStyle(inbox.shadowRoot.querySelector(part)), item = style('.item');
        return [style('.dot').borderTopColor, style('.row').backgroundColor, item.outlineStyle + item.outlineColor];
    }""")


@test
def a_page_can_set_the_accent_from_its_own_variable(reader):
    reader.publish_items(2)
    reader.site.style += ":root { --accent: #0a0 } tidings-inbox { --tidings-accent: var(--accent) }"
    page = reader.open()
    bell(page).click()
    expect(articles(page)).to_have_count(2)

    dot, row, ring = colors(page)

    assert (dot, ring) == ("rgb(0, 170, 0)", "solidrgb(0, 170, 0)")
    assert row not in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"), row
    save_screenshot(page, "themed")


@test
def other_variables_of_a_page_do_not_change_the_widget(reader):
    reader.publish_items(2)
    plain = reader.open()
    bell(plain).click()
    expect(articles(plain)).to_have_count(2)
    expected = colors(plain)
    plain.close()
    source = (ROOT / "widget/widget.js").read_text()
    private = {name for name in re.findall(r"--[\w-]+", source) if not name.startswith("--tidings-")}
    assert private and all(name.startswith("--_") for name in private), private
    common = ["--accent", "--ink", "--dim", "--line", "--paper", "--hover"]
    invalid = "".join(f"{name}: 12px;" for name in [*private, *common])
    reader.site.style += f"* {{ {invalid} }} tidings-inbox {{ {invalid} }}"
    reader.tidings.publish(reader.name, [{"title": "A late thing"}])
    other = reader.open(plain.context)
    bell(other).click()
    expect(articles(other)).to_have_count(3)

    assert colors(other) == expected


@test
def text_styles_of_a_page_do_not_reach_the_panel(reader):
    reader.publish_items(2)
    reader.site.style += "header { white-space: nowrap; text-transform: uppercase; letter-spacing: 4px }"
    reader.site.style += "header { text-align: right; line-height: 3 }"
    page = reader.open()
    bell(page).click()
    expect(articles(page)).to_have_count(2)

    names = ["whiteSpace", "textTransform", "letterSpacing", "textAlign", "lineHeight"]
    styles = page.evaluate("""names => {
        const style = getComputedStyle(inbox.shadowRoot.querySelector('.what'));
        return names.map(name => style[name]);
    }""", names)
    assert styles == ["normal", "none", "normal", "start", "20px"], styles


@test
def the_console_names_an_origin_that_is_not_allowed(reader):
    reader.expected_errors = ["CORS", "ERR_FAILED", "cors_origins"]
    reader.site.policy = reader.site.policy.replace("connect-src 'self'", f"connect-src {reader.tidings.url}")
    page = reader.open(server=reader.tidings.url)
    bell(page).click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()

    messages = [text for text in reader.all_errors if "server.cors_origins" in text]
    expected = f'tidings-inbox: {reader.tidings.url}/ is down, or server.cors_origins lacks "{reader.site.url}"'
    assert messages == [expected], reader.all_errors


@test
def a_refused_request_is_not_repeated(reader):
    reader.publish_items(1)
    for status in (403, 400, 404):
        reader.expected_errors = [str(status)]
        reader.site.refusal_status = status
        page = reader.open(stream="")
        bell(page).click()
        expect(page.get_by_text("Not available.")).to_be_visible()
        expect(page.get_by_role("button", name="Try again")).to_be_hidden()
        sent = len(reader.site.requests)
        page.keyboard.press("Escape")
        bell(page).click()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(2500)
        assert len(reader.site.requests) == sent, reader.site.requests[sent:]
        save_screenshot(page, "refused")

        reader.site.refusal_status = None
        page.evaluate("inbox.setAttribute('token', 'good')")
        expect(articles(page)).to_have_count(1)
        page.close()


@test
def buttons_are_large_enough_for_a_thumb(reader):
    reader.publish_items(3)
    publish_series(reader)
    page = reader.open(size=(375, 720), limit=2, group="", preferences="/works/preferences")
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    articles(page).last.focus()
    page.keyboard.press("Delete")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()

    expect(page.get_by_text("Mark all as read")).to_be_visible()
    small = page.evaluate("""() => [...inbox.shadowRoot.querySelectorAll('button, a.icon')]
        .map(button => [button.className, button.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.width < 44 || box.height < 44))
        .map(([name, box]) => `${name}: ${box.width} × ${box.height}`)""")
    assert small == [], small
    save_screenshot(page, "thumb")
    check_accessibility(page)


@test
def long_labels_keep_every_button_inside_the_panel(reader):
    reader.publish_items(2)
    labels = {"label-bell": "Benachrichtigungen", "label-read-all": "Alle Benachrichtigungen als gelesen markieren"}
    page = reader.open(size=(320, 640), preferences="/works/preferences", lang="de", **labels)
    page.get_by_role("button", name="Benachrichtigungen", exact=False).first.click()
    expect(articles(page)).to_have_count(2)

    outside = page.evaluate("""() => {
        const panel = inbox.shadowRoot.querySelector('.panel').getBoundingClientRect();
        const buttons = [...inbox.shadowRoot.querySelectorAll('.header button, .header a')];
        return buttons.filter(button => button.getBoundingClientRect().right > panel.right).length;
    }""")
    assert outside == 0
    save_screenshot(page, "long-labels")
    check_accessibility(page)


@test
def the_badge_can_have_a_maximum(reader):
    reader.publish_items(3)
    page = reader.open(**{"badge-max": 2})

    expect_badge(page, "2+")
    expect(page.get_by_role("button", name="Notifications, 3 new")).to_be_visible()
    page.evaluate("inbox.setAttribute('badge-max', 3)")
    reader.tidings.publish(reader.name, [{"title": "A late thing"}])
    expect_badge(page, "3+")


@test
def a_badge_of_two_digits_stays_on_one_line(reader):
    reader.publish_items(12)
    reader.site.style += "body { overflow-wrap: anywhere }"
    page = reader.open()

    expect_badge(page, "12")
    assert page.locator("tidings-inbox .badge").bounding_box()["height"] == 20


@test
def changing_the_user_removes_the_items_of_the_previous_one(reader):
    reader.publish_items(3)
    other = f"{reader.name}b"
    reader.tidings.publish(other, [{"title": "A thing of another user"}])
    page = reader.open(stay="")
    page.evaluate("""() => {
        window.cleaned = [];
        inbox.renderItem = (item, place) => {
            place.textContent = item.object.title;
            return () => cleaned.push(item.id);
        };
    }""")
    bell(page).click()
    expect(articles(page)).to_have_count(3)
    wait_until(lambda: reader.counts() == (0, 3))
    sent = []

    def record_authorization(request):
        if f"/users/{other}/" in request.url:
            sent.append(request.headers.get("authorization"))

    page.on("request", record_authorization)
    reader.site.tokens = {"good", "others"}

    left = page.evaluate("""user => {
        const old = [...inbox.shadowRoot.querySelectorAll('article button, article a')];
        inbox.setAttribute('user', user);
        inbox.setAttribute('token', 'others');
        const articles = inbox.shadowRoot.querySelectorAll('article').length;
        return [inbox.children.length, articles, old.filter(element => element.isConnected).length, cleaned.length];
    }""", other)

    assert left == [0, 0, 0, 3], left
    expect(articles(page)).to_have_count(1)
    expect(page.locator("tidings-inbox > [slot]")).to_have_text("A thing of another user")
    wait_until(lambda: reader.tidings.counts(other)["unseen"] == 0)
    assert sent and set(sent) == {"Bearer others"}, sent
    assert reader.counts() == (0, 3)


@test
def a_moved_element_keeps_its_items_and_its_open_panel(reader):
    reader.publish_items(3)
    page = reader.open(limit=2)
    expect_badge(page, "3")
    is_visible = page.evaluate("""() => {
        document.querySelector('main').prepend(inbox);
        return inbox.shadowRoot.querySelector('.badge').checkVisibility();
    }""")
    assert is_visible, "the badge disappeared"
    bell(page).click()
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(3)

    for move in ("querySelector('header').append(inbox)", "querySelector('main').moveBefore?.(inbox, null)"):
        page.evaluate(f"document.{move}")
        polls = len(reader.site.requests_to("GET", "/feed?"))
        wait_until(lambda: len(reader.site.requests_to("GET", "/feed?")) > polls)
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(articles(page)).to_have_count(3)
    reader.tidings.publish(reader.name, [{"title": "A late thing"}])
    expect(articles(page)).to_have_count(4)


@test
def a_removed_element_can_be_closed_and_opened_again(reader):
    reader.publish_items(2)
    page = reader.open(open="")
    expect(articles(page)).to_have_count(2)

    page.evaluate("inbox.remove(); inbox.removeAttribute('open')")
    page.evaluate("document.body.append(inbox)")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.evaluate("inbox.remove(); inbox.setAttribute('open', ''); document.body.append(inbox)")

    expect(page.get_by_role("dialog")).to_be_visible()
    expect(articles(page)).to_have_count(2)


@test
def a_mark_is_saved_if_the_application_removes_the_element(reader):
    reader.expected_errors = ["401"]
    reader.publish_items(2)
    page = reader.open(stay="", refresh="")
    bell(page).click()
    wait_until(lambda: reader.counts() == (0, 2))
    reader.site.tokens, reader.site.next_token = {"newer"}, "newer"
    page.evaluate("document.addEventListener('tidings-item', () => inbox.remove())")

    articles(page).first.get_by_role("link").click()

    wait_until(lambda: reader.counts() == (0, 1))
    polls = len(reader.site.requests_to("GET", "/feed"))
    page.wait_for_timeout(2500)
    assert len(reader.site.requests_to("GET", "/feed")) == polls, "a removed element polls"


@test
def several_widgets_share_a_page(reader):
    reader.publish_items(2)
    other = f"{reader.name}b"
    reader.tidings.publish(other, [{"title": "A thing of another user"}])
    page = reader.open()
    page.evaluate("""other => {
        for (const user of [inbox.getAttribute('user'), other]) {
            const next = inbox.cloneNode();
            next.setAttribute('user', user);
            document.querySelector('header').append(next);
        }
    }""", other)
    badges, bells = page.locator("tidings-inbox .badge"), bell(page)
    expect(badges).to_have_text(["2", "2", "1"])

    bells.nth(0).click()
    expect(articles(page)).to_have_count(2)
    expect(badges.nth(1)).to_be_hidden()
    expect(badges.nth(2)).to_have_text("1")
    page.keyboard.press("Escape")
    bells.nth(2).click()

    expect(page.get_by_role("dialog")).to_have_count(1)
    expect(page.get_by_role("dialog").get_by_role("article")).to_have_count(1)
    check_accessibility(page)


@test
def a_hidden_element_is_not_shown(reader):
    reader.publish_items(1)
    page = reader.open(hidden="")

    badge = page.locator("tidings-inbox .badge")
    expect(badge).to_be_hidden()
    page.evaluate("inbox.hidden = false")
    expect(badge).to_be_visible()


@test
def texts_use_the_language_of_the_page(reader):
    reader.publish_items(1)
    page = reader.open(lang="de-AT")
    page.get_by_role("button", name="Benachrichtigungen, 1 neu").click()

    expect(articles(page)).to_have_count(1)
    dialog = page.get_by_role("dialog", name="Benachrichtigungen")
    for name in ("Alle", "Ungelesen", "Alle als gelesen markieren", "Schließen", "Archivieren"):
        expect(dialog.get_by_role("button", name=name, exact=True)).to_be_visible()
    save_screenshot(page, "german")
    check_accessibility(page)
    page.evaluate("inbox.lang = 'ja'")
    expect(page.get_by_role("dialog", name="お知らせ")).to_be_visible()


@test
def the_feed_provides_headings_and_phrases(reader):
    ada = {"type": "Reply", "actor": {"id": "ada", "name": "Ada Byron"}}
    topic = {"title": "I agree", "data": {"about": {"title": "Budget"}}, "event": ada}
    reader.tidings.publish(reader.name, [topic, {"title": "A reply without an actor", "event": {"type": "Reply"}}])
    page = reader.open()
    bell(page).click()

    expect(articles(page)).to_have_count(2)
    expect(articles(page).filter(has_text="Ada Byron replied to Budget")).to_have_count(1)
    expect(articles(page).filter(has_text="A reply without an actor")).to_contain_text("Replies · ")


@test
def the_unread_filter_lists_only_unread_items(reader):
    reader.publish_items(3)
    page = reader.open(limit=2)
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    wait_until(lambda: reader.counts() == (0, 3))
    ids = [item["id"] for item in reader.tidings.ask("GET", f"/v1/users/{reader.name}/feed")["items"]]
    reader.tidings.ask("POST", f"/v1/users/{reader.name}/feed/marks", {"mark": "read", "ids": [ids[0]]})

    page.get_by_role("button", name="Unread", exact=True).click()

    expect(articles(page)).to_have_count(2)
    expect(articles(page).first).to_contain_text("Budget")
    expect(page.get_by_role("button", name="Unread", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    save_screenshot(page, "unread")
    check_accessibility(page)
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_text("All caught up")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    expect(articles(page)).to_have_count(2)


@test
def new_items_and_counts_fire_events(reader):
    reader.publish_items(1)
    page = reader.open()
    expect_badge(page, "1")
    assert page.evaluate("details") == [{"unseen": 1, "unread": 1}]

    reader.tidings.publish(reader.name, [{"title": "A late thing", "event": {"type": "Reply"}}])

    wait_until(lambda: "new" in page.evaluate("received"))
    received = dict(zip(page.evaluate("received"), page.evaluate("details")))
    assert received["count"] == {"unseen": 2, "unread": 2}, received
    [item] = received["new"]
    assert (item["object"]["title"], item["heading"]) == ("A late thing", "Replies"), item


@test
def an_inline_widget_is_part_of_the_page(reader):
    reader.publish_items(3)
    page = reader.open(inline="", open="")

    expect(articles(page)).to_have_count(3)
    wait_until(lambda: reader.counts() == (0, 3))
    expect(bell(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Close")).to_have_count(0)
    expect(page.get_by_role("region", name="Notifications")).to_be_visible()
    assert page.evaluate("document.activeElement === document.body"), "the widget took the focus"
    save_screenshot(page, "inline")
    check_accessibility(page)
    reader.tidings.publish(reader.name, [{"title": "A late thing"}])
    expect(articles(page)).to_have_count(4)
    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(articles(page)).to_have_count(3)


@test
def a_page_can_render_items_itself(reader):
    reader.publish_items(2)
    reader.site.style += ".read { text-decoration: line-through } tidings-inbox em { color: #00f }"
    page = reader.open(stay="")
    page.evaluate("""() => {
        window.cleaned = [];
        inbox.renderItem = (item, place) => {
            const title = document.createElement('em'), button = document.createElement('button');
            title.textContent = `${item.heading}: ${item.object.title}`;
            button.textContent = 'Like';
            place.append(title, button);
            return () => cleaned.push(item.id);
        };
    }""")
    bell(page).click()

    expect(page.locator("em:visible")).to_have_count(2)
    expect(page.locator("em").nth(1)).to_have_text("Comment: Budget for the spring exhibition")
    expect(articles(page).get_by_role("heading").first).to_be_hidden()
    wait_until(lambda: reader.counts() == (0, 2))
    save_screenshot(page, "rendered")
    check_accessibility(page)
    page.get_by_role("button", name="Like").first.click()
    page.keyboard.press("PageDown")
    expect(articles(page).nth(1)).to_be_focused()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.locator("em").first.click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    wait_until(lambda: reader.counts() == (0, 1))
    assert "item" in page.evaluate("received")
    bell(page).click()
    expect(page.locator("tidings-inbox > .read em")).to_have_count(1)
    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(page.locator("tidings-inbox em")).to_have_count(1)
    assert len(page.evaluate("cleaned")) == 1


def main(binary, chromium, *names):
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, contextlib.ExitStack() as stack:
        tidings = Tidings(binary, Path(folder), TYPES)
        stack.callback(tidings.stop)
        site = Site(tidings)
        browser = launch(playwright, chromium)

        @contextlib.contextmanager
        def visit(number):
            site.reset()
            yield Reader(f"reader{number}", site, browser)

        failed = harness.run(browser, "tests", names, visit)
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
