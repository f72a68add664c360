"""The browser tests of the widget: `run.py TIDINGS CHROMIUM [NAME…]`, in a Python that has Playwright.

The rule: a test is a function whose name is a sentence; it has a person of its own, a page that knows
only the site, and fails where anything was said on the console. With TIDINGS_TEST_SHOTS=FOLDER they
leave pictures of what they saw.
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
from harness import accessible, bell, launch, shoot, test
from stage import ROOT, Site, Tidings, stamp, until


TYPES = '[types.Reply]\nheading = "Replies"\nphrase = "replied to"\n'


class Reader:
    """A person with a browser. What they see is asked for by roles, as a screen reader would."""

    def __init__(self, name, site, browser):
        self.name, self.site, self.tidings, self.browser = name, site, site.tidings, browser
        self.contexts, self.complaints, self.expected, self.console = [], [], [], []

    def open(self, context=None, size=(1000, 760), dark=False, **attributes):
        if context is None:
            context = self.browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light",
                locale="en-US", timezone_id="UTC", device_scale_factor=2,
            )
            self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: said.type in ("error", "warning") and self.complain(said.text))
        page.on("pageerror", lambda error: self.complain(str(error)))
        page.goto(self.site.page(self.name, **attributes))
        return page

    def complain(self, text):
        self.console.append(text)
        if not any(part in text for part in self.expected):
            self.complaints.append(text)

    def counts(self):
        counts = self.tidings.counts(self.name)
        return counts["unseen"], counts["unread"]

    def told(self, count=3):
        """So many things, a minute apart; with and without pictures, an actor, a text, a link."""
        url = self.site.url
        things = [
            {"title": "A Figure Bowing before a Seated Old Man", "by": "Robert Blake", "url": f"{url}/works/1", "image": f"{url}/pictures/20.svg",
             "event": {"type": "ArtworkPublished"}},
            {"title": "Budget for the spring exhibition", "url": f"{url}/works/2",
             "event": {"actor": {"id": "ada", "name": "Ada Byron", "image": f"{url}/pictures/290.svg"}, "text": "Line 3 is too high. Can we talk?"}},
            {"title": "View of the Werkhalle Nord at dusk, with cranes", "by": "Ines Tavoro", "event": {"type": "ArtworkPublished"}},
            {"title": "Still life with oranges", "by": "Mara Oduya", "url": f"{url}/works/4", "image": f"{url}/pictures/140.svg", "event": {"type": "Loan"}},
        ]
        chosen = [dict(things[n % 4], title=things[n % 4]["title"] + (f" {n}" if n > 3 else "")) for n in range(count)]
        ages = [1, 14, 180, 1500, 3000, 4500]
        for n, thing in enumerate(chosen):
            thing["event"] = {**thing["event"], "at": stamp(ages[n] if n < 6 else 4500 + n)}
        self.tidings.tell(self.name, chosen)


def badge(page, text):
    found = page.locator("tidings-inbox .badge")
    expect(found).to_have_text(text) if text else expect(found).to_be_hidden()


def articles(page):
    return page.get_by_role("article")


def focused(page):
    """What has the focus inside of the widget: its classes."""
    return page.evaluate("document.querySelector('tidings-inbox').shadowRoot.activeElement?.className ?? null")


@test
def the_module_is_small_and_is_what_tidings_serves(reader):
    lines = (ROOT / "widget/widget.js").read_text().split("\n")
    signs = "".join("".join(line.split()) for line in lines if not line.lstrip().startswith("//"))
    asked = urllib.request.Request(reader.tidings.url + "/widget.js", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as answer:
        served, kind, coding = answer.read(), answer.headers["Content-Type"], answer.headers["Content-Encoding"]

    assert (kind.partition(";")[0], coding) == ("text/javascript", "gzip")
    assert "".join(gzip.decompress(served).decode().split()) == signs, "build tidings again"
    assert len(served) <= 8 * 1024, f"{len(served)} bytes gzipped"


@test
def the_badge_is_exact_and_opening_marks_what_was_shown_as_seen(reader):
    reader.told(3)
    page = reader.open()
    badge(page, "3")
    shoot(page, "closed")
    accessible(page)

    bell(page).click()

    expect(articles(page)).to_have_count(3)
    badge(page, None)
    until(lambda: reader.counts() == (0, 3))
    shoot(page, "open-light")
    accessible(page)
    marks = [json.loads(mark["body"]) for mark in reader.site.asked("POST", "/feed/marks")]
    assert [list(mark) for mark in marks] == [["mark", "to"]], marks


@test
def what_arrives_meanwhile_is_shown_said_and_seen(reader):
    reader.told(1)
    page = reader.open()
    bell(page).click()
    until(lambda: reader.counts() == (0, 1))

    reader.tidings.tell(reader.name, [{"title": "A late thing"}])

    expect(articles(page).first).to_contain_text("A late thing")
    expect(page.get_by_role("status")).to_have_text("1 new")
    until(lambda: reader.counts() == (0, 2))


@test
def an_unchanged_poll_is_answered_with_304(reader):
    reader.told(1)
    page = reader.open()
    badge(page, "1")

    until(lambda: sum(entry["status"] == 304 for entry in reader.site.asked("GET", "/feed/count")) >= 2)


@test
def a_click_marks_as_read_and_follows_the_link(reader):
    reader.told(2)
    page = reader.open()
    bell(page).click()

    articles(page).first.get_by_role("link").click()

    page.wait_for_url("**/works/1")
    until(lambda: reader.counts() == (0, 1))


@test
def an_application_may_follow_the_link_itself(reader):
    reader.told(2)
    page = reader.open(stay="")
    bell(page).click()

    articles(page).first.get_by_role("link").click()

    expect(page.get_by_role("dialog")).to_be_hidden()
    until(lambda: reader.counts() == (0, 1))
    assert "item" in page.evaluate("heard") and "works" not in page.url


@test
def a_new_tab_for_an_item_marks_it_and_leaves_the_application_alone(reader):
    reader.told(2)
    page = reader.open(stay="")
    bell(page).click()

    articles(page).first.get_by_role("link").click(button="right")
    with page.context.expect_page():
        articles(page).first.get_by_role("link").click(modifiers=["Control"])

    until(lambda: reader.counts() == (0, 1))
    assert "item" not in page.evaluate("heard")


@test
def archiving_can_be_undone(reader):
    reader.told(3)
    page = reader.open()
    bell(page).click()
    until(lambda: reader.counts() == (0, 3))

    articles(page).nth(1).hover()
    articles(page).nth(1).get_by_role("button", name="Archive").click()
    expect(articles(page)).to_have_count(2)
    until(lambda: reader.counts() == (0, 2))
    shoot(page, "archived")
    page.get_by_role("button", name="Undo").click()

    expect(articles(page)).to_have_count(3)
    expect(articles(page).nth(1)).to_contain_text("Budget")
    until(lambda: reader.counts() == (0, 3))


@test
def everything_can_be_marked_as_read(reader):
    reader.told(3)
    page = reader.open()
    bell(page).click()

    page.get_by_role("button", name="Mark all as read").click()

    until(lambda: reader.counts() == (0, 0))
    expect(page.locator("tidings-inbox .dot:visible")).to_have_count(0)
    expect(page.get_by_role("button", name="Mark all as read")).to_be_hidden()


@test
def more_is_loaded_below_and_stays_there(reader):
    reader.told(9)
    page = reader.open(limit=4)
    bell(page).click()
    expect(articles(page)).to_have_count(4)

    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(8)
    reader.tidings.tell(reader.name, [{"title": "A late thing"}])

    expect(articles(page).first).to_contain_text("A late thing")
    expect(articles(page)).to_have_count(9)
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(10)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    titles = articles(page).all_inner_texts()
    assert len(set(titles)) == 10, titles


def told_of_a_series(reader):
    """Five studies by one artist, and before them something by somebody else."""
    url = reader.site.url
    told = [{"title": "Budget for the spring exhibition", "by": "Ada Byron", "event": {"type": "Comment"}}]
    told += [{"title": f"Study {n}", "by": "Ines Tavoro", "url": f"{url}/works/{n}", "event": {"type": "ArtworkPublished"}} for n in range(5)]
    reader.tidings.tell(reader.name, told)


@test
def groups_are_folded_and_unfold_in_their_place(reader):
    told_of_a_series(reader)
    page = reader.open(group="")
    badge(page, "6")
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    expect(articles(page).first).to_contain_text("Study 4")
    until(lambda: reader.counts() == (0, 6))
    shoot(page, "folded")
    accessible(page)

    articles(page).first.get_by_role("button", name="+4 more").click()

    expect(articles(page)).to_have_count(6)
    expect(articles(page).nth(4)).to_contain_text("Study 0")
    expect(articles(page).nth(5)).to_contain_text("Budget")
    expect(page.get_by_role("button", name="more")).to_have_count(0)
    # What joins the group joins the others, which stay unfolded.
    reader.tidings.tell(reader.name, [{"title": "Study 5", "by": "Ines Tavoro", "event": {"type": "ArtworkPublished"}}])
    expect(articles(page)).to_have_count(7)
    expect(articles(page).first).to_contain_text("Study 5")
    articles(page).nth(1).hover()
    articles(page).nth(1).get_by_role("button", name="Archive").click()
    until(lambda: reader.counts() == (0, 6))
    accessible(page)


@test
def a_folded_group_is_archived_restored_and_read_as_one(reader):
    told_of_a_series(reader)
    page = reader.open(group="", size=(375, 740))
    bell(page).click()
    until(lambda: reader.counts() == (0, 6))
    shoot(page, "folded-phone")

    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(articles(page)).to_have_count(1)
    until(lambda: reader.counts() == (0, 1))
    page.get_by_role("button", name="Undo").click()
    expect(articles(page)).to_have_count(2)
    until(lambda: reader.counts() == (0, 6))
    expect(articles(page).first.get_by_role("button", name="+4 more")).to_be_visible()

    articles(page).first.get_by_role("link").click()

    page.wait_for_url("**/works/4")
    until(lambda: reader.counts() == (0, 1))


@test
def undoing_brings_back_what_stood_in_the_group_and_no_more(reader):
    told_of_a_series(reader)
    ids = [item["id"] for item in reader.tidings.ask("GET", f"/v1/users/{reader.name}/feed")["items"]]
    reader.tidings.ask("POST", f"/v1/users/{reader.name}/feed/marks", {"mark": "archive", "ids": [ids[2]]})
    page = reader.open(group="")
    bell(page).click()
    expect(articles(page).first.get_by_role("button", name="+3 more")).to_be_visible()
    until(lambda: reader.counts() == (0, 5))

    articles(page).first.focus()
    page.keyboard.press("Delete")
    until(lambda: reader.counts() == (0, 1))
    page.get_by_role("button", name="Undo").click()

    until(lambda: reader.counts() == (0, 5))


@test
def a_group_that_grows_is_listed_once_though_more_was_loaded(reader):
    things = [{"title": f"Word {n}", "by": f"Artist {n}", "event": {"type": "Comment"}} for n in range(6)]
    things.insert(1, {"title": "Word 0 again", "by": "Artist 0", "event": {"type": "Comment"}})
    reader.tidings.tell(reader.name, things)
    page = reader.open(group="", limit=4)
    bell(page).click()
    expect(articles(page)).to_have_count(4)
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(6)

    reader.tidings.tell(reader.name, [{"title": "Word 0 anew", "by": "Artist 0", "event": {"type": "Comment"}}])

    expect(articles(page).first).to_contain_text("Word 0 anew")
    expect(articles(page)).to_have_count(6)
    expect(articles(page).get_by_role("button", name="+2 more")).to_have_count(1)


@test
def everything_works_by_keyboard(reader):
    reader.told(6)
    page = reader.open(limit=4)
    badge(page, "6")
    keys = page.keyboard

    keys.press("Tab")
    keys.press("Enter")
    expect(articles(page)).to_have_count(4)
    assert "panel" in focused(page)
    keys.press("PageDown")
    keys.press("PageDown")
    expect(articles(page).nth(1)).to_be_focused()
    shoot(page, "keyboard")
    keys.press("PageUp")
    expect(articles(page).nth(0)).to_be_focused()
    keys.press("Control+End")
    assert "more" in focused(page)
    keys.press("Enter")
    expect(articles(page).nth(4)).to_be_focused()
    keys.press("Control+Home")
    assert "close" in focused(page)
    keys.press("PageDown")
    keys.press("Delete")
    expect(articles(page)).to_have_count(5)
    expect(articles(page).nth(0)).to_be_focused()
    until(lambda: reader.counts() == (0, 5))
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(bell(page)).to_be_focused()
    keys.press("Enter")
    keys.press("PageDown")
    expect(articles(page).nth(0)).to_be_focused()
    keys.press("Enter")
    page.wait_for_url("**/works/2")
    until(lambda: reader.counts() == (0, 4))


@test
def tabs_agree_and_one_of_them_polls_for_both(reader):
    reader.told(2)
    one = reader.open()
    two = reader.open(one.context)
    badge(one, "2")
    badge(two, "2")
    polls = len(reader.site.asked("GET", "/feed/count"))
    one.wait_for_timeout(5000)
    assert len(reader.site.asked("GET", "/feed/count")) - polls <= 6, "both polled"

    bell(two).click()
    badge(two, None)
    badge(one, None)
    bell(one).click()
    expect(articles(one)).to_have_count(2)
    articles(one).first.hover()
    articles(one).first.get_by_role("button", name="Archive").click()

    expect(articles(two)).to_have_count(1)


@test
def the_stream_is_held_by_one_tab_for_all(reader):
    reader.told(1)
    reader.site.streams = []
    one = reader.open(stream="")
    two = reader.open(one.context, stream="")
    badge(one, "1")
    badge(two, "1")
    until(lambda: len(reader.site.streams) == 1)

    reader.tidings.tell(reader.name, [{"title": "A streamed thing"}])
    reader.site.stream(reader.tidings.counts(reader.name))
    badge(one, "2")
    badge(two, "2")
    assert len(reader.site.asked("GET", "/feed/stream")) == 1
    polls = len(reader.site.asked("GET", "/feed/count"))
    one.wait_for_timeout(2500)
    assert len(reader.site.asked("GET", "/feed/count")) == polls, "polled beside a stream"
    one.close()

    until(lambda: len(reader.site.asked("GET", "/feed/stream")) == 2)
    reader.tidings.tell(reader.name, [{"title": "Another"}])
    until(lambda: len(reader.site.streams) == 1)
    reader.site.stream(reader.tidings.counts(reader.name))
    badge(two, "3")


@test
def without_a_stream_it_polls(reader):
    reader.expected = ["404", "405", "501"]
    reader.told(1)
    page = reader.open(stream="")
    badge(page, "1")

    reader.tidings.tell(reader.name, [{"title": "A polled thing"}])

    badge(page, "2")


@test
def an_expired_token_is_renewed_once(reader):
    reader.expected = ["401"]
    reader.told(1)
    page = reader.open(refresh="")
    badge(page, "1")

    reader.site.tokens, reader.site.next_token = {"newer"}, "newer"
    bell(page).click()

    expect(articles(page)).to_have_count(1)
    until(lambda: reader.counts() == (0, 1))
    assert len(reader.site.asked("GET", "/token")) == 1


@test
def a_refused_token_is_said_and_not_asked_with_again(reader):
    reader.expected = ["401"]
    reader.told(1)
    page = reader.open(token="expired")
    bell(page).click()
    expect(page.get_by_text("Please sign in again")).to_be_visible()
    shoot(page, "expired")
    accessible(page)
    asked = len(reader.site.seen)
    page.wait_for_timeout(2500)
    assert len(reader.site.seen) == asked

    page.locator("tidings-inbox").evaluate("inbox => inbox.setAttribute('token', 'good')")

    expect(articles(page)).to_have_count(1)
    assert "error" in page.evaluate("heard")


@test
def the_server_may_go_away_and_come_back(reader):
    reader.expected = ["ERR_"]
    reader.told(2)
    page = reader.open()
    badge(page, "2")

    reader.site.down = True
    bell(page).click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()
    badge(page, "2")
    shoot(page, "error")
    accessible(page)
    reader.site.down = False

    expect(articles(page)).to_have_count(2)
    expect(page.get_by_text("Cannot be loaded right now")).to_be_hidden()
    badge(page, None)


@test
def a_mark_that_fails_is_taken_back(reader):
    reader.expected = ["ERR_"]
    reader.told(2)
    page = reader.open()
    bell(page).click()
    until(lambda: reader.counts() == (0, 2))

    reader.site.down = True
    articles(page).first.hover()
    articles(page).first.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()
    expect(articles(page)).to_have_count(2)
    reader.site.down = False

    expect(page.get_by_text("Cannot be loaded right now")).to_be_hidden()
    assert reader.counts() == (0, 2)


@test
def an_answer_from_before_a_mark_does_not_bring_the_badge_back(reader):
    reader.told(2)
    page = reader.open()
    badge(page, "2")

    reader.site.slow = True
    bell(page).click()
    page.evaluate("""() => {
        window.badges = [];
        const badge = document.querySelector('tidings-inbox').shadowRoot.querySelector('.badge');
        new MutationObserver(() => badges.push(badge.hidden ? '' : badge.textContent)).observe(badge, { attributes: true, childList: true });
    }""")
    badge(page, None)
    page.wait_for_timeout(3000)

    seen = page.evaluate("badges")
    assert set(seen[seen.index(""):]) == {""}, seen


@test
def hostile_texts_stay_texts(reader):
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
    reader.expected = ["404"]
    reader.tidings.tell(reader.name, [
        {"title": evil, "by": evil, "event": {"text": evil, "actor": {"id": evil[:60], "name": evil[:60]}}},
        {"title": "W" * 400, "image": f"{reader.site.url}/pictures/none.svg", "url": f"{reader.site.url}/works/1", "event": {"text": "x" * 400}},
        {"title": "\u202eruoy si siht\u202d", "by": "\u05d0\u05d1\u05d2", "event": {"text": "\u0645\u0631\u062d\u0628\u0627 (1)"}},
        {"title": " ", "event": {"type": "<b>", "text": "\u200b"}},
    ])
    page = reader.open()
    bell(page).click()

    expect(articles(page)).to_have_count(4)
    expect(page.get_by_text("<img src=x").first).to_be_visible()
    expect(page.locator("tidings-inbox img")).to_have_count(0)
    assert page.locator("tidings-inbox script").count() == 0
    shoot(page, "hostile")
    accessible(page)


@test
def nothing_new_is_said_kindly(reader):
    page = reader.open(size=(1000, 500))
    bell(page).click()

    expect(page.get_by_text("All caught up")).to_be_visible()
    badge(page, None)
    shoot(page, "empty")
    accessible(page)


@test
def it_fits_a_phone(reader):
    reader.told(6)
    page = reader.open(size=(375, 720))
    bell(page).click()

    expect(articles(page)).to_have_count(6)
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 375 and box["y"] + box["height"] <= 720, box
    shoot(page, "phone")
    accessible(page)


@test
def it_is_dark_where_the_page_is(reader):
    reader.told(6)
    page = reader.open(dark=True, preferences="/works/preferences")
    bell(page).click()

    expect(articles(page)).to_have_count(6)
    assert page.get_by_role("link", name="Preferences").get_attribute("href").endswith("/works/preferences")
    shoot(page, "open-dark")
    accessible(page)


@test
def it_runs_from_right_to_left_in_the_pages_language(reader):
    reader.told(4)
    labels = {"label-bell": "الإشعارات", "label-new": "{n} جديدة", "label-unread": "غير مقروء:", "phrase-comment": "{who} علّق على {what}"}
    page = reader.open(dir="rtl", lang="ar", **labels)
    page.get_by_role("button", name="الإشعارات").click()

    expect(articles(page)).to_have_count(4)
    expect(articles(page).nth(1)).to_contain_text("علّق على")
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] < 100, box
    shoot(page, "rtl")
    accessible(page)


@test
def it_can_start_open_and_phrases_say_what_happened(reader):
    reader.told(4)
    page = reader.open(open="", **{"phrase-comment": "{who} commented on {what}", "phrase-artworkpublished": "{who} published {what}"})

    expect(articles(page).nth(1)).to_contain_text("Ada Byron commented on Budget")
    expect(page.get_by_role("dialog")).to_be_visible()
    shoot(page, "phrases")
    accessible(page)


def looks(page):
    """The computed colors of an unread dot, a new row and the focus ring of an item."""
    page.keyboard.press("PageDown")
    expect(articles(page).first).to_be_focused()
    return page.evaluate("""() => {
        const style = part => getComputedStyle(inbox.shadowRoot.querySelector(part)), item = style('.item');
        return [style('.dot').borderTopColor, style('.row').backgroundColor, item.outlineStyle + item.outlineColor];
    }""")


@test
def a_page_may_name_its_color_as_it_likes(reader):
    reader.told(2)
    reader.site.style += ":root { --accent: #0a0 } tidings-inbox { --tidings-accent: var(--accent) }"
    page = reader.open()
    bell(page).click()
    expect(articles(page)).to_have_count(2)

    dot, row, ring = looks(page)

    assert (dot, ring) == ("rgb(0, 170, 0)", "solidrgb(0, 170, 0)")
    assert row not in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"), row
    shoot(page, "themed")


@test
def no_variable_of_a_page_changes_the_widget(reader):
    reader.told(2)
    plain = reader.open()
    bell(plain).click()
    expect(articles(plain)).to_have_count(2)
    expected = looks(plain)
    plain.close()
    source = (ROOT / "widget/widget.js").read_text()
    own = {name for name in re.findall(r"--[\w-]+", source) if not name.startswith("--tidings-")}
    assert own and all(name.startswith("--_") for name in own), own
    usual = ["--accent", "--ink", "--dim", "--line", "--paper", "--hover"]
    junk = "".join(f"{name}: 12px;" for name in [*own, *usual])
    reader.site.style += f"* {{ {junk} }} tidings-inbox {{ {junk} }}"
    reader.tidings.tell(reader.name, [{"title": "A late thing"}])
    other = reader.open(plain.context)
    bell(other).click()
    expect(articles(other)).to_have_count(3)

    assert looks(other) == expected


@test
def text_styles_of_a_page_do_not_reach_the_panel(reader):
    reader.told(2)
    reader.site.style += "header { white-space: nowrap; text-transform: uppercase; letter-spacing: 4px; text-align: right; line-height: 3 }"
    page = reader.open()
    bell(page).click()
    expect(articles(page)).to_have_count(2)

    names = ["whiteSpace", "textTransform", "letterSpacing", "textAlign", "lineHeight"]
    styles = page.evaluate("names => { const style = getComputedStyle(inbox.shadowRoot.querySelector('.what')); return names.map(name => style[name]) }", names)
    assert styles == ["normal", "none", "normal", "start", "20px"], styles


@test
def an_origin_that_is_not_listed_is_named_in_the_console(reader):
    reader.expected = ["CORS", "ERR_FAILED", "cors_origins"]
    reader.site.policy = reader.site.policy.replace("connect-src 'self'", f"connect-src {reader.tidings.url}")
    page = reader.open(server=reader.tidings.url)
    bell(page).click()
    expect(page.get_by_text("Cannot be loaded right now")).to_be_visible()

    said = [text for text in reader.console if "server.cors_origins" in text]
    assert said == [f'tidings-inbox: {reader.tidings.url}/ is down, or server.cors_origins lacks "{reader.site.url}"'], reader.console


@test
def a_refused_request_is_not_repeated(reader):
    reader.told(1)
    for status in (403, 400, 404):
        reader.expected = [str(status)]
        reader.site.refusal = status
        page = reader.open(stream="")
        bell(page).click()
        expect(page.get_by_text("Not available.")).to_be_visible()
        expect(page.get_by_role("button", name="Try again")).to_be_hidden()
        sent = len(reader.site.seen)
        page.keyboard.press("Escape")
        bell(page).click()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(2500)
        assert len(reader.site.seen) == sent, reader.site.seen[sent:]
        shoot(page, "refused")

        reader.site.refusal = None
        page.evaluate("inbox.setAttribute('token', 'good')")
        expect(articles(page)).to_have_count(1)
        page.close()


@test
def buttons_are_large_enough_for_a_thumb(reader):
    reader.told(3)
    told_of_a_series(reader)
    page = reader.open(size=(375, 720), limit=2, group="", preferences="/works/preferences")
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    articles(page).last.focus()
    page.keyboard.press("Delete")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()

    expect(page.get_by_text("Mark all as read")).to_be_visible()
    small = page.evaluate("""() => [...inbox.shadowRoot.querySelectorAll('button, a.icon')]
        .map(button => [button.className, button.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.width < 44 || box.height < 44)).map(([name, box]) => `${name}: ${box.width} × ${box.height}`)""")
    assert small == [], small
    shoot(page, "thumb")
    accessible(page)


@test
def long_labels_keep_every_button_inside_the_panel(reader):
    reader.told(2)
    labels = {"label-bell": "Benachrichtigungen", "label-read-all": "Alle Benachrichtigungen als gelesen markieren"}
    page = reader.open(size=(320, 640), preferences="/works/preferences", lang="de", **labels)
    page.get_by_role("button", name="Benachrichtigungen", exact=False).first.click()
    expect(articles(page)).to_have_count(2)

    cut = page.evaluate("""() => {
        const panel = inbox.shadowRoot.querySelector('.panel').getBoundingClientRect();
        return [...inbox.shadowRoot.querySelectorAll('.header button, .header a')].filter(one => one.getBoundingClientRect().right > panel.right).length;
    }""")
    assert cut == 0
    shoot(page, "long-labels")
    accessible(page)


@test
def the_badge_can_have_a_highest_number(reader):
    reader.told(3)
    page = reader.open(**{"badge-max": 2})

    badge(page, "2+")
    expect(page.get_by_role("button", name="Notifications, 3 new")).to_be_visible()
    page.evaluate("inbox.setAttribute('badge-max', 3)")
    reader.tidings.tell(reader.name, [{"title": "A late thing"}])
    badge(page, "3+")


@test
def a_badge_of_two_digits_keeps_its_line(reader):
    reader.told(12)
    reader.site.style += "body { overflow-wrap: anywhere }"
    page = reader.open()

    badge(page, "12")
    assert page.locator("tidings-inbox .badge").bounding_box()["height"] == 20


@test
def a_change_of_user_leaves_nothing_of_the_previous_one(reader):
    reader.told(3)
    other = f"{reader.name}b"
    reader.tidings.tell(other, [{"title": "A thing of another user"}])
    page = reader.open(stay="")
    page.evaluate("""() => {
        window.gone = [];
        inbox.renderItem = (item, place) => {
            place.textContent = item.object.title;
            return () => gone.push(item.id);
        };
    }""")
    bell(page).click()
    expect(articles(page)).to_have_count(3)
    until(lambda: reader.counts() == (0, 3))
    sent = []
    page.on("request", lambda request: f"/users/{other}/" in request.url and sent.append(request.headers.get("authorization")))
    reader.site.tokens = {"good", "others"}

    left = page.evaluate("""user => {
        const old = [...inbox.shadowRoot.querySelectorAll('article button, article a')];
        inbox.setAttribute('user', user);
        inbox.setAttribute('token', 'others');
        return [inbox.children.length, inbox.shadowRoot.querySelectorAll('article').length, old.filter(one => one.isConnected).length, gone.length];
    }""", other)

    assert left == [0, 0, 0, 3], left
    expect(articles(page)).to_have_count(1)
    expect(page.locator("tidings-inbox > [slot]")).to_have_text("A thing of another user")
    until(lambda: reader.tidings.counts(other)["unseen"] == 0)
    assert sent and set(sent) == {"Bearer others"}, sent
    assert reader.counts() == (0, 3)


@test
def an_element_that_is_moved_keeps_its_items_and_its_open_panel(reader):
    reader.told(3)
    page = reader.open(limit=2)
    badge(page, "3")
    shown = page.evaluate("() => { document.querySelector('main').prepend(inbox); return inbox.shadowRoot.querySelector('.badge').checkVisibility() }")
    assert shown, "the badge went away"
    bell(page).click()
    page.get_by_role("button", name="Show more").click()
    expect(articles(page)).to_have_count(3)

    for move in ("document.querySelector('header').append(inbox)", "document.querySelector('main').moveBefore?.(inbox, null)"):
        page.evaluate(move)
        polls = len(reader.site.asked("GET", "/feed?"))
        until(lambda: len(reader.site.asked("GET", "/feed?")) > polls)
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(articles(page)).to_have_count(3)
    reader.tidings.tell(reader.name, [{"title": "A late thing"}])
    expect(articles(page)).to_have_count(4)


@test
def a_removed_element_can_be_closed_and_opened(reader):
    reader.told(2)
    page = reader.open(open="")
    expect(articles(page)).to_have_count(2)

    page.evaluate("inbox.remove(); inbox.removeAttribute('open')")
    page.evaluate("document.body.append(inbox)")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.evaluate("inbox.remove(); inbox.setAttribute('open', ''); document.body.append(inbox)")

    expect(page.get_by_role("dialog")).to_be_visible()
    expect(articles(page)).to_have_count(2)


@test
def a_mark_is_saved_though_the_application_removes_the_element(reader):
    reader.expected = ["401"]
    reader.told(2)
    page = reader.open(stay="", refresh="")
    bell(page).click()
    until(lambda: reader.counts() == (0, 2))
    reader.site.tokens, reader.site.next_token = {"newer"}, "newer"
    page.evaluate("document.addEventListener('tidings-item', () => inbox.remove())")

    articles(page).first.get_by_role("link").click()

    until(lambda: reader.counts() == (0, 1))
    polls = len(reader.site.asked("GET", "/feed"))
    page.wait_for_timeout(2500)
    assert len(reader.site.asked("GET", "/feed")) == polls, "a removed element polls"


@test
def several_widgets_share_a_page(reader):
    reader.told(2)
    other = f"{reader.name}b"
    reader.tidings.tell(other, [{"title": "A thing of another user"}])
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
    accessible(page)


@test
def a_hidden_element_is_not_shown(reader):
    reader.told(1)
    page = reader.open(hidden="")

    expect(badge_of := page.locator("tidings-inbox .badge")).to_be_hidden()
    page.evaluate("inbox.hidden = false")
    expect(badge_of).to_be_visible()


@test
def texts_come_in_the_language_of_the_page(reader):
    reader.told(1)
    page = reader.open(lang="de-AT")
    page.get_by_role("button", name="Benachrichtigungen, 1 neu").click()

    expect(articles(page)).to_have_count(1)
    dialog = page.get_by_role("dialog", name="Benachrichtigungen")
    for name in ("Alle", "Ungelesen", "Alle als gelesen markieren", "Schließen", "Archivieren"):
        expect(dialog.get_by_role("button", name=name, exact=True)).to_be_visible()
    shoot(page, "german")
    accessible(page)
    page.evaluate("inbox.lang = 'ja'")
    expect(page.get_by_role("dialog", name="お知らせ")).to_be_visible()


@test
def headings_and_phrases_come_with_the_feed(reader):
    ada = {"type": "Reply", "actor": {"id": "ada", "name": "Ada Byron"}}
    topic = {"title": "I agree", "data": {"about": {"title": "Budget"}}, "event": ada}
    reader.tidings.tell(reader.name, [topic, {"title": "A reply of nobody known", "event": {"type": "Reply"}}])
    page = reader.open()
    bell(page).click()

    expect(articles(page)).to_have_count(2)
    expect(articles(page).filter(has_text="Ada Byron replied to Budget")).to_have_count(1)
    expect(articles(page).filter(has_text="A reply of nobody known")).to_contain_text("Replies · ")


@test
def the_unread_are_listed_alone(reader):
    reader.told(3)
    page = reader.open(limit=2)
    bell(page).click()
    expect(articles(page)).to_have_count(2)
    until(lambda: reader.counts() == (0, 3))
    ids = [item["id"] for item in reader.tidings.ask("GET", f"/v1/users/{reader.name}/feed")["items"]]
    reader.tidings.ask("POST", f"/v1/users/{reader.name}/feed/marks", {"mark": "read", "ids": [ids[0]]})

    page.get_by_role("button", name="Unread", exact=True).click()

    expect(articles(page)).to_have_count(2)
    expect(articles(page).first).to_contain_text("Budget")
    expect(page.get_by_role("button", name="Unread", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    shoot(page, "unread")
    accessible(page)
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_text("All caught up")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    expect(articles(page)).to_have_count(2)


@test
def new_items_and_counts_are_events(reader):
    reader.told(1)
    page = reader.open()
    badge(page, "1")
    assert page.evaluate("details") == [{"unseen": 1, "unread": 1}]

    reader.tidings.tell(reader.name, [{"title": "A late thing", "event": {"type": "Reply"}}])

    until(lambda: "new" in page.evaluate("heard"))
    heard = dict(zip(page.evaluate("heard"), page.evaluate("details")))
    assert heard["count"] == {"unseen": 2, "unread": 2}, heard
    [item] = heard["new"]
    assert (item["object"]["title"], item["heading"]) == ("A late thing", "Replies"), item


@test
def an_inline_widget_is_a_part_of_the_page(reader):
    reader.told(3)
    page = reader.open(inline="", open="")

    expect(articles(page)).to_have_count(3)
    until(lambda: reader.counts() == (0, 3))
    expect(bell(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Close")).to_have_count(0)
    expect(page.get_by_role("region", name="Notifications")).to_be_visible()
    assert page.evaluate("document.activeElement === document.body"), "it took the focus"
    shoot(page, "inline")
    accessible(page)
    reader.tidings.tell(reader.name, [{"title": "A late thing"}])
    expect(articles(page)).to_have_count(4)
    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(articles(page)).to_have_count(3)


@test
def a_page_can_render_the_items(reader):
    reader.told(2)
    reader.site.style += ".read { text-decoration: line-through } tidings-inbox em { color: #00f }"
    page = reader.open(stay="")
    page.evaluate("""() => {
        window.gone = [];
        inbox.renderItem = (item, place) => {
            const title = document.createElement('em'), button = document.createElement('button');
            title.textContent = `${item.heading}: ${item.object.title}`;
            button.textContent = 'Like';
            place.append(title, button);
            return () => gone.push(item.id);
        };
    }""")
    bell(page).click()

    expect(page.locator("em:visible")).to_have_count(2)
    expect(page.locator("em").nth(1)).to_have_text("Comment: Budget for the spring exhibition")
    expect(articles(page).get_by_role("heading").first).to_be_hidden()
    until(lambda: reader.counts() == (0, 2))
    shoot(page, "rendered")
    accessible(page)
    page.get_by_role("button", name="Like").first.click()
    page.keyboard.press("PageDown")
    expect(articles(page).nth(1)).to_be_focused()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.locator("em").first.click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(lambda: reader.counts() == (0, 1))
    assert "item" in page.evaluate("heard")
    bell(page).click()
    expect(page.locator("tidings-inbox > .read em")).to_have_count(1)
    articles(page).first.focus()
    page.keyboard.press("Delete")
    expect(page.locator("tidings-inbox em")).to_have_count(1)
    assert len(page.evaluate("gone")) == 1


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
