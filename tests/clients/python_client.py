"""The tests of the Python client, each as `Client` and as `AsyncClient`.

The rule: what a test says of a request is what the proxy saw of it, and of an event what is in the
feed; time is told, so nothing waits. client.test.mjs says the same of the JavaScript client.
"""

import json
import pickle
import time
from itertools import islice
from urllib.parse import quote

import runner
from caller import user_token
from stage import KEY, until
from tidings_client import TidingsError

PASSING = [429, 502, 503, 504]
REFUSED = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501]
# What a path must carry as it is.
HOSTILE = ["a/b", "%2F", "é", "?", "a?b=c&d#e", "a b+c", "a/../b", "...", "%2e%2e", "🦆", "\\", ";"]


def both(test):
    for kind in ("sync", "async"):
        def one(caller, test=test):
            test(caller)
        one.__name__, one.kinds = f"{test.__name__}_{kind}", kind
        runner.test(one)
    return test


def event(user, **more):
    return {"type": "Comment", "objects": ["Comment:c1"], "to": [user], **more}


def told(caller, count, **more):
    """Publishes past the proxy, and waits until it is in the feed."""
    before = caller.tidings.counts(caller.user)["unread"]
    ids = [f"Comment:{before + at}" for at in range(count)]
    events = [event(caller.user, objects=[id], **more) for id in ids]
    caller.tidings.ask("POST", "/v1/events", events)
    until(lambda: caller.tidings.counts(caller.user)["unread"] == before + count)
    return ids


@both
def a_lost_answer_is_asked_for_again_under_the_same_key_and_the_event_is_there_once(caller):
    caller.proxy.reset(["lose", "lose"])

    receipt = caller.get(caller.client().publish(event(caller.user)))

    first, *again = caller.bodies()
    assert again == [first, first] and len(first[0]["key"]) == 32, caller.bodies()
    assert receipt["known"]
    until(lambda: caller.tidings.counts(caller.user)["unread"])
    time_of_it = caller.tidings.ask("GET", f"/v1/events/{receipt['id']}")
    assert time_of_it["counts"] == {"people": 1, "pushed": 1, "capped": 0}, time_of_it
    assert caller.tidings.counts(caller.user)["unread"] == 1


@both
def every_event_has_a_key_its_own_or_the_calls(caller):
    client = caller.client()

    caller.get(client.publish(event(caller.user)))
    caller.get(client.publish(event(caller.user)))
    caller.get(client.publish(event(caller.user, key=f"its own {caller.user}")))
    caller.get(client.publish(event(caller.user), key=f"the call's {caller.user}"))

    keys = [body[0]["key"] for body in caller.bodies()]
    assert len(set(keys)) == 4, keys
    assert keys[2:] == [f"its own {caller.user}", f"the call's {caller.user}"]


@both
def what_fails_in_passing_is_tried_again(caller):
    for fault in ["cut", "drop", "lose", *({"status": status} for status in PASSING)]:
        caller.proxy.reset([fault])

        assert caller.get(caller.client().count(caller.user))["unread"] == 0, fault

        assert len(caller.proxy.seen) == 2, (fault, caller.proxy.seen)
    caller.proxy.reset(["hold"])
    client = caller.client(real=True, timeout=0.3)
    assert caller.get(client.count(caller.user))["unread"] == 0
    assert len(caller.proxy.seen) == 2


@both
def a_connection_that_cannot_be_made_is_an_error_that_may_pass(caller):
    client = caller.client(attempts=3)
    client._url = "http://127.0.0.1:1"

    error = caller.error(lambda: client.count(caller.user))

    assert (error.code, error.status, error.retryable) == ("unreachable", None, True), error
    assert len(caller.slept) == 2


@both
def what_is_refused_is_not_tried_again(caller):
    client = caller.client()
    for status in REFUSED:
        caller.proxy.reset([{"status": status, "body": {"code": "told", "detail": "so"}}])

        error = caller.error(lambda: client.publish(event(caller.user)))

        assert (error.status, error.code, error.detail) == (status, "told", "so"), error
        assert not error.retryable and len(caller.proxy.seen) == 1, status
    assert caller.slept == []


@both
def what_tidings_refuses_is_told_by_its_code(caller):
    client, user = caller.client(), caller.user
    others = caller.client(user_token("somebody-else"))
    wrong = caller.client("a-wrong-key")
    caller.get(client.publish(event(user), key=f"used {user}"))
    refused = [
        (400, "invalid_body", lambda: client.publish({"type": "Comment", "objects": ["c"]})),
        (401, "unauthorized", lambda: wrong.count(user)),
        (403, "forbidden", lambda: others.count(user)),
        (404, "unknown_user", lambda: client.user(user)),
        (409, "idempotency_key_reused",
         lambda: client.publish(event(user, objects=["Comment:c2"]), key=f"used {user}")),
        (422, "time_out_of_range", lambda: client.publish(event(user, at="2014-04-19T10:00:00Z"))),
    ]
    for status, code, ask in refused:
        caller.proxy.reset()

        error = caller.error(ask)

        assert (error.status, error.code, error.retryable) == (status, code, False), error
        assert len(caller.proxy.seen) == 1, code
    assert error.location == "events[0]" and str(error).startswith("422 time_out_of_range: ")


@both
def an_error_says_all_that_the_answer_did(caller):
    body = {"code": "store_unavailable", "detail": "away", "location": "there"}
    headers = {"X-Request-Id": "r-17", "Retry-After": "3"}
    caller.proxy.reset([{"status": 503, "body": body, "headers": headers}] * 2)

    error = caller.error(lambda: caller.client(attempts=2).count(caller.user))

    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, TidingsError)
        assert (one.status, one.code, one.detail) == (503, "store_unavailable", "away")
        assert (one.location, one.request_id) == ("there", "r-17")
        assert (one.retryable, one.retry_after) == (True, 3.0)


@both
def a_page_of_a_proxy_is_an_error_too(caller):
    pages = [
        ({"status": 404, "body": "<h1>Lost</h1>"}, "no_code"),
        ({"status": 404, "body": "[1]"}, "no_code"),
        ({"status": 200, "body": "<h1>Sign in</h1>"}, "invalid_answer"),
        ({"status": 302, "headers": {"Location": "/elsewhere"}}, "no_code"),
    ]
    for page, code in pages:
        caller.proxy.reset([page])

        error = caller.error(lambda: caller.client().count(caller.user))

        assert (error.status, error.code, error.retryable) == (page["status"], code, False), error
        assert len(caller.proxy.seen) == 1


@both
def retry_after_is_kept_in_seconds_and_as_a_date(caller):
    date = "Mon, 23 Nov 2026 10:00:00 GMT"
    waits = [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Mon, 23 Nov 2026 10:00:30 GMT", "Date": date}, 30.0),
        ({"Retry-After": "Mon, 23 Nov 2026 09:00:00 GMT", "Date": date}, 0.0),
        ({"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
    ]
    for status in (429, 503):
        for headers, seconds in waits:
            caller.proxy.reset([{"status": status, "headers": headers}])
            caller.slept.clear()

            caller.get(caller.client().count(caller.user))

            assert caller.slept == [seconds], (headers, caller.slept)
    caller.chance = 1.0
    caller.proxy.reset([{"status": 503, "headers": {"Retry-After": "7"}}])
    caller.get(caller.client().count(caller.user))
    assert caller.slept[-1] == 7.5, "the jitter comes on top of it"


@both
def waits_grow_up_to_a_bound_and_tries_are_counted(caller):
    caller.chance = 1.0
    caller.proxy.reset([{"status": 503}] * 20)
    caller.error(lambda: caller.client().count(caller.user))
    assert (caller.slept, len(caller.proxy.seen)) == ([0.5, 1, 2, 4], 5), caller.slept

    caller.slept.clear()
    caller.proxy.reset([{"status": 503}] * 20)
    caller.error(lambda: caller.client(attempts=9, deadline=1000).count(caller.user))
    assert caller.slept == [0.5, 1, 2, 4, 8, 16, 20, 20], caller.slept

    caller.slept.clear()
    caller.chance = 0.25
    caller.proxy.reset([{"status": 503}] * 2)
    caller.get(caller.client().count(caller.user))
    assert caller.slept == [0.125, 0.25], "of the whole span"


@both
def no_wait_goes_beyond_the_deadline(caller):
    caller.proxy.reset([{"status": 503, "headers": {"Retry-After": "61"}}])
    error = caller.error(lambda: caller.client().count(caller.user))
    assert (error.retry_after, caller.slept) == (61.0, []), error

    caller.chance, began = 1.0, caller.now
    caller.proxy.reset([{"status": 503}] * 99)
    caller.error(lambda: caller.client(attempts=99, deadline=10).count(caller.user))
    assert caller.slept == [0.5, 1, 2, 4] and caller.now - began < 10, caller.slept


@both
def the_deadline_ends_what_does_not_answer(caller):
    for fault in ("hold", "drip"):
        caller.proxy.reset([fault] * 9)
        client = caller.client(real=True, deadline=0.6, timeout=0.4)
        began = time.monotonic()

        error = caller.error(lambda: client.publish(event(caller.user)))

        took = time.monotonic() - began
        caller.proxy.release()
        assert 0.5 < took < 2, (fault, took)
        assert (error.code, error.retryable) == ("timeout", True), error
        assert len(caller.proxy.seen) == 2, "the second got what was left"
        assert len({body[0]["key"] for body in caller.bodies()}) == 1
        assert error.unsent == caller.bodies()[0], error.unsent


@both
def many_events_are_cut_into_requests_of_1000(caller):
    client, user = caller.client(), caller.user
    events = [event(user, objects=[f"Comment:{at}"]) for at in range(2500)]
    caller.proxy.reset(["pass", "lose"])

    receipts = caller.get(client.publish_many(iter(events)))

    sizes = [len(body) for body in caller.bodies()]
    assert sizes == [1000, 1000, 1000, 500], sizes
    first, lost, again, last = caller.bodies()
    assert lost == again, "the same keys"
    assert len({one["key"] for one in first + again + last}) == 2500
    assert len({receipt["id"] for receipt in receipts}) == 2500
    assert [receipt["known"] for receipt in receipts] == [False] * 1000 + [True] * 1000 + [False] * 500
    assert caller.get(client.event(receipts[1700]["id"]))["objects"] == ["Comment:1700"]
    assert "key" not in events[0], "what was given is not changed"
    assert caller.get(client.publish_many([])) == []


@both
def what_was_not_accepted_of_many_can_be_published_again(caller):
    client, user = caller.client(), caller.user
    events = [event(user, objects=[f"Comment:{at}"]) for at in range(1500)]
    caller.proxy.reset(["pass", "lose", {"status": 400}])

    error = caller.error(lambda: client.publish_many(events))

    assert (len(error.receipts), len(error.unsent)) == (1000, 500)
    assert error.unsent == caller.bodies()[-1]
    receipts = caller.get(client.publish_many(error.unsent))
    assert [receipt["known"] for receipt in receipts] == [True] * 500, "none is there twice"


@both
def records_are_cut_by_their_size_too(caller):
    objects = [{"id": f"Big:{at}", "data": "é" * 450_000} for at in range(20)]

    taken = caller.get(caller.client(timeout=60).put_objects(objects))

    sizes = [len(body) for body in caller.bodies()]
    assert taken == 20 and sizes == [17, 3], sizes


@both
def a_poll_yields_what_changed_and_sends_the_tag_of_what_it_has(caller):
    rounds = []

    def between():
        rounds.append(len(heard))
        if len(rounds) == 2:
            told(caller, 1)

    heard, caller.during_sleep = [], between
    for counts in caller.each(caller.client().poll(caller.user)):
        heard.append(counts["unread"])
        if len(heard) == 2:
            break

    first, second, third = caller.proxy.seen
    assert heard == [0, 1] and rounds == [1, 1], (heard, rounds)
    assert [one["status"] for one in caller.proxy.seen] == [200, 304, 200]
    assert "if-none-match" not in first["headers"]
    assert second["headers"]["if-none-match"] == third["headers"]["if-none-match"]
    said = [float(one["interval"]) for one in caller.proxy.seen]
    assert caller.slept == said[:2] and min(said) >= 30, (caller.slept, said)


@both
def a_poll_of_the_feed_yields_pages(caller):
    told(caller, 3)
    caller.during_sleep = lambda: told(caller, 1)

    pages = islice(caller.each(caller.client().poll_feed(caller.user, {"limit": 2})), 2)

    first, second = ([item["object"]["id"] for item in page["items"]] for page in pages)
    assert (first, second) == (["Comment:2", "Comment:1"], ["Comment:3", "Comment:2"])


@both
def a_poll_waits_as_it_is_told_and_yields_nothing_twice_where_tags_are_lost(caller):
    def answer(unread, **headers):
        return {"status": 200, "body": {"unread": unread}, "headers": headers}

    waits = [{"X-Poll-Interval": "90"}, {}, {"X-Poll-Interval": "soon"}, {"X-Poll-Interval": "0"}]
    caller.proxy.reset([answer(1, **headers) for headers in waits] + [answer(2)])
    caller.chance = 1.0

    heard = list(islice(caller.each(caller.client().poll(caller.user)), 2))

    assert heard == [{"unread": 1}, {"unread": 2}], heard
    assert caller.slept == [108.0, 36.0, 36.0, 1.2], caller.slept


@both
def a_poll_goes_on_after_errors_and_ends_when_it_is_refused(caller):
    passing = [{"status": 503, "headers": {"Retry-After": "99"}}, "drop", {"status": 500}]
    away = [{"status": 503, "headers": {"Retry-After": "999999"}}]
    good = {"status": 200, "body": {"unread": 0}, "headers": {"X-Poll-Interval": "30"}}
    caller.proxy.reset([*passing, good, *away, *[{"status": 503}] * 12, {"status": 403}])
    caller.chance, heard, failed = 1.0, [], []

    def poll():
        return caller.each(caller.client().poll(caller.user, on_error=failed.append))

    try:
        for counts in poll():
            heard.append(counts["unread"])
        raise AssertionError("it ended")
    except TidingsError as error:
        assert error.status == 403, error

    assert heard == [0] and len(failed) == 16
    assert [error.status for error in failed[:3]] == [503, None, 500]
    assert caller.slept[:4] == [99.5, 1, 2, 36.0], caller.slept
    assert caller.slept[4:] == [3600, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300], caller.slept


@both
def a_poll_can_be_closed(caller):
    values = caller.client().poll(caller.user)
    if caller.loop:
        caller.get(anext(values))
        caller.get(values.aclose())
    else:
        next(values)
        values.close()

    assert list(caller.each(values)) == [] and len(caller.proxy.seen) == 1


@both
def all_items_are_walked_once_while_events_arrive(caller):
    ids = told(caller, 23)

    walked = []
    for item in islice(caller.each(caller.client().items(caller.user, {"limit": 5})), 99):
        walked.append(item["object"]["id"])
        if len(walked) % 5 == 1:
            told(caller, 2)

    assert walked == ids[::-1], walked
    assert len(caller.proxy.seen) == 5, "no page was asked for twice"


@both
def groups_batches_users_and_follows_are_walked_to_their_end(caller):
    client, user = caller.client(), caller.user
    objects = [{"id": f"Comment:{at}", "data": {"about": f"thread:{at % 3}"}} for at in range(9)]
    people = [{"id": f"{user}/{at}"} for at in range(5)]
    keys = [f"artist:{at}" for at in range(7)]
    mailed = {"email": "a@example.org", "confirmed": True, "types": {"Comment": {"route": "batch"}}}
    assert caller.get(client.put_objects(objects)) == 9
    assert caller.get(client.put_users(people)) == 5
    assert caller.get(client.put_follows([{"user": user, "key": key} for key in keys])) == 7
    caller.get(client.put_user(user, mailed))
    told(caller, 9)
    for key in ("acme", "globex", "initech"):
        told(caller, 1, batch_key=key)
    batches = {"user": user, "limit": 1}
    until(lambda: len(list(caller.each(client.batches(batches)))) == 4)
    caller.proxy.reset()

    found = list(islice(caller.each(client.all_groups(user, {"limit": 2})), 99))
    about = [group["about"] for group in found]
    listed = [one["id"] for one in islice(caller.each(client.users(after=user, limit=2)), 5)]
    followed = list(islice(caller.each(client.follows(user, limit=3)), 99))
    some = list(caller.each(client.follows(user, after="artist:4")))
    gathered = [batch["key"] for batch in islice(caller.each(client.batches(batches)), 99)]

    assert set(about) >= {"thread:0", "thread:1", "thread:2"} and len(about) == len(set(about)), about
    assert listed == [f"{user}/{at}" for at in range(5)]
    assert (followed, some) == (keys, keys[5:])
    assert sorted(gathered) == ["key:acme", "key:globex", "key:initech", "type:Comment"], gathered
    assert caller.get(client.batch(caller_batch(caller, client)))["user"] == user


def caller_batch(caller, client):
    return next(caller.each(client.batches({"user": caller.user})))["id"]


@both
def a_page_is_asked_for_only_when_it_is_needed(caller):
    told(caller, 6)

    items = caller.client().items(caller.user, {"limit": 3})
    assert caller.asked() == []
    list(islice(caller.each(items), 3))

    assert caller.asked() == [("GET", f"/v1/users/{caller.user}/feed?limit=3")]


@both
def a_user_token_is_asked_for_again_once_when_it_expired(caller):
    calls = []
    tokens = [user_token(caller.user, -300), user_token(caller.user)]

    def give():
        calls.append(1)
        return tokens[min(len(calls), 2) - 1]

    client = caller.client(give)
    caller.proxy.reset(["pass", {"status": 503}])
    assert caller.get(client.count(caller.user))["unread"] == 0
    assert [one["status"] for one in caller.proxy.seen] == [401, 503, 200] and len(calls) == 2
    sent = [one["headers"]["authorization"] for one in caller.proxy.seen]
    assert sent == [f"Bearer {tokens[0]}"] + [f"Bearer {tokens[1]}"] * 2

    caller.get(client.count(caller.user))
    assert len(calls) == 2, "it is kept"


@both
def a_token_that_stays_refused_is_an_error(caller):
    calls = []

    def give():
        calls.append(1)
        return user_token(caller.user, -300)

    error = caller.error(lambda: caller.client(give).count(caller.user))
    assert (error.status, len(calls), len(caller.proxy.seen)) == (401, 2, 2), error

    caller.proxy.reset()
    error = caller.error(lambda: caller.client(user_token(caller.user, -300)).count(caller.user))
    assert (error.status, len(caller.proxy.seen)) == (401, 1)


@both
def a_token_that_cannot_be_had_is_asked_for_again(caller):
    calls = []

    def give():
        calls.append(1)
        if len(calls) < 3:
            raise OSError("the session server is away")
        return user_token(caller.user)

    assert caller.get(caller.client(give).count(caller.user))["unread"] == 0
    calls.clear()
    error = caller.error(lambda: caller.client(give, attempts=2).count(caller.user))
    assert (error.code, error.retryable) == ("no_token", True), error
    assert "the session server is away" in error.detail


@both
def a_token_is_taken_without_white_space_and_never_shown(caller):
    caller.get(caller.client(f" {KEY}\n").count(caller.user))
    for bad in ("", "se\ncret", "secrét"):
        try:
            caller.client(bad)
            raise AssertionError(bad)
        except TidingsError as error:
            assert error.code == "invalid_token" and "secr" not in str(error)


@both
def hostile_names_travel_unchanged(caller):
    client, user = caller.client(), caller.user
    for name in HOSTILE:
        id, model = f"{user}{name}", f"M{name}"
        caller.proxy.reset()

        caller.get(client.put_user(id, {"name": name}))
        caller.get(client.follow(id, name))
        caller.get(client.put_object(model, name, {"title": name}))

        assert caller.get(client.user(id))["id"] == id
        assert list(caller.each(client.follows(id))) == [name]
        assert caller.get(client.object(model, name))["id"] == f"{model}:{name}"
        assert caller.get(client.feed(id, {"about": name, "type": name}))["items"] == []
        caller.get(client.unfollow(id, name))
        assert list(caller.each(client.follows(id))) == []
        key, part = quote(id, safe=""), quote(name, safe="")
        assert caller.asked()[:3] == [
            ("PUT", f"/v1/users/{key}"), ("PUT", f"/v1/users/{key}/follows/{part}"),
            ("PUT", f"/v1/objects/M{part}/{part}"),
        ]


@both
def names_that_no_path_can_carry_go_by_the_forms_for_many_or_not_at_all(caller):
    client, user = caller.client(), caller.user
    for name in (".", ".."):
        caller.proxy.reset()
        caller.get(client.put_user(name, {"name": "Dot"}))
        caller.get(client.follow(name, "artist:1"))
        caller.get(client.follow(user, name))
        caller.get(client.put_object("Dots", name, {"title": "Dot"}))
        caller.get(client.delete_object("Dots", name))

        assert caller.bodies() == [
            [{"name": "Dot", "id": name}], [{"user": name, "key": "artist:1"}],
            [{"user": user, "key": name}], [{"title": "Dot", "id": f"Dots:{name}"}],
            [{"id": f"Dots:{name}", "notifiable": False}],
        ]
        assert {target for _, target in caller.asked()} == {"/v1/users", "/v1/follows", "/v1/objects"}
        assert name in [one["id"] for one in caller.each(client.users(limit=1000))]
        assert name in list(caller.each(client.follows(user)))
    caller.proxy.reset()
    for name in (".", "..", ""):
        for ask in (lambda: client.user(name), lambda: client.delete_user(name),
                    lambda: client.unfollow(user, name), lambda: client.count(name)):
            assert caller.error(ask).code == "invalid_parameter"
    assert caller.asked() == []


@both
def a_removal_whose_answer_was_lost_has_succeeded(caller):
    client, user = caller.client(), caller.user
    caller.get(client.put_user(user, {"name": "Mara"}))
    caller.proxy.reset(["lose"])
    assert caller.get(client.delete_user(user)) is None
    assert [one["status"] for one in caller.proxy.seen] == [204, 404]

    for passing in ([], [{"status": 429}]):
        caller.proxy.reset(passing)
        error = caller.error(lambda: client.delete_user(user))
        assert error.code == "unknown_user", "there never was one"


@both
def marks_are_repeated_and_hold(caller):
    client, user = caller.client(), caller.user
    told(caller, 3)
    page = caller.get(client.feed(user))
    first = page["items"][0]["id"]
    told(caller, 1)
    caller.proxy.reset(["lose", "pass", "lose"])

    seen = caller.get(client.mark(user, "seen", to=page["cursor"]))
    read = caller.get(client.mark(user, "read", ids=[first]))
    only = caller.get(client.mark(user, "seen", to=read["cursor"], type="Other"))

    assert (seen["unseen"], seen["unread"]) == (1, 4), "what arrived since is not marked"
    assert (read["unseen"], read["unread"]) == (1, 3)
    assert only["unseen"] == 1, "of another type"
    assert caller.bodies()[0] == caller.bodies()[1] == {"mark": "seen", "to": page["cursor"]}
    archived = caller.get(client.mark(user, "archive", ids=[first]))
    assert archived["unread"] == 3
    assert len(caller.get(client.feed(user, {"state": "archived"}))["items"]) == 1
    caller.get(client.mark(user, "restore", ids=[first]))
    unread = caller.get(client.mark(user, "unread", ids=[first]))
    assert unread["unread"] == 4


@both
def people_objects_and_preferences_are_put_changed_and_removed(caller):
    client, user = caller.client(), caller.user
    caller.get(client.put_user(user, {"email": "mara@example.org", "confirmed": True}))
    patched = caller.get(client.patch_user(user, {"name": "Mara", "email": None}))
    assert (patched["name"], patched["email"]) == ("Mara", None)
    chosen = caller.get(client.put_preferences(user, {"digest": {"cadence": "daily", "hour": 7}}))
    assert chosen["digest"] and chosen["digest"].get("hour") == 7
    assert caller.get(client.preferences(user))["digest"]["hour"] == 7
    assert caller.get(client.follow(user, "artist:1")) is None

    caller.get(client.put_object("Work", user, {"title": "A Work", "data": {"year": 1785}}))
    assert caller.get(client.object("Work", user))["data"] == {"year": 1785}
    caller.get(client.publish(event(user, objects=[f"Work:{user}"])))
    until(lambda: caller.tidings.counts(user)["unread"] == 1)
    grouped = caller.get(client.groups(user))["groups"]
    assert [group["count"] for group in grouped] == [1]
    caller.get(client.delete_object("Work", user))
    assert caller.get(client.object("Work", user))["notifiable"] is False
    until(lambda: caller.tidings.counts(user)["unread"] == 0)

    caller.get(client.publish(event(user, objects=[f"Late:{user}"])))
    until(lambda: caller.tidings.counts(user)["unread"] == 1)
    assert caller.get(client.retract("Comment", f"Late:{user}")) == {"taken": 0, "not_kept": 0}
    until(lambda: caller.tidings.counts(user)["unread"] == 0)
    caller.get(client.delete_user(user))
    assert caller.error(lambda: client.user(user)).code == "unknown_user"


@both
def an_address_may_have_a_path_and_must_be_one(caller):
    caller.proxy.reset([{"status": 200, "body": {}}] * 2)
    caller.get(caller.client(path="/inbox/").count("mara"))
    caller.get(caller.client(path="/").count("mara"))
    asked = [target for _, target in caller.asked()]
    assert asked == ["/inbox/v1/users/mara/feed/count", "/v1/users/mara/feed/count"]
    try:
        type(caller.client())("127.0.0.1:8080", KEY)
        raise AssertionError
    except ValueError as error:
        assert "127.0.0.1:8080" in str(error)


@runner.test
def an_async_client_ends_a_token_that_does_not_come_and_what_is_canceled():
    import asyncio

    from tidings_client import AsyncClient

    async def never():
        await asyncio.Event().wait()

    async def ask():
        began = time.monotonic()
        async with AsyncClient("http://127.0.0.1:1", never, deadline=0.3) as client:
            try:
                await client.count("mara")
                raise AssertionError
            except TidingsError as error:
                assert error.code == "timeout", error
            assert time.monotonic() - began < 2
            task = asyncio.create_task(client.count("mara"))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                raise AssertionError
            except asyncio.CancelledError:
                pass

    asyncio.run(ask())
