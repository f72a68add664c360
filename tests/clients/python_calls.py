"""Tests of the requests, iterators and polls of the Python client.

Each test runs with `Client` and with `AsyncClient`. Tests check requests as the proxy received them.
Keep the tests in line with calls.test.mjs, which tests the JavaScript client.
"""

from itertools import islice
from urllib.parse import quote

from fixture import event, publish_to_feed, sync_and_async
from stage import KEY, wait_until
from tidings_client import TidingsError

# Names that a client must escape in paths.
SPECIAL_NAMES = [
    "a/b", "%2F", "é", "?", "a?b=c&d#e", "a b+c", "a/../b", "...", "%2e%2e", "🦆", "\\", ";",
]


@sync_and_async
def every_event_is_sent_with_an_idempotency_key(fixture):
    client = fixture.client()

    fixture.result(client.publish(event(fixture.user)))
    fixture.result(client.publish(event(fixture.user)))
    fixture.result(client.publish(event(fixture.user, key=f"event {fixture.user}")))
    fixture.result(client.publish(event(fixture.user), key=f"call {fixture.user}"))

    keys = [body[0]["key"] for body in fixture.bodies()]
    assert len(set(keys)) == 4, keys
    assert keys[2:] == [f"event {fixture.user}", f"call {fixture.user}"]


@sync_and_async
def publish_many_sends_at_most_1000_events_per_request(fixture):
    client = fixture.client(timeout=100, deadline=999)
    events = [event(fixture.user, objects=[f"Comment:{index}"]) for index in range(2500)]
    fixture.proxy.reset(["pass", "lose"], idle=True)

    receipts = fixture.result(client.publish_many(iter(events)))

    sizes = [len(body) for body in fixture.bodies()]
    assert sizes == [1000, 1000, 1000, 500], sizes
    first, lost, again, last = fixture.bodies()
    assert lost == again, "a retry sends the same keys"
    assert len({event["key"] for event in first + again + last}) == 2500
    assert len({receipt["id"] for receipt in receipts}) == 2500
    duplicates = [index for index, receipt in enumerate(receipts) if receipt["duplicate"]]
    assert duplicates == list(range(1000, 2000)), "their first response was lost"
    assert fixture.result(client.event(receipts[1700]["id"]))["objects"] == ["Comment:1700"]
    assert "key" not in events[0], "publish_many does not change its arguments"
    assert fixture.result(client.publish_many([])) == []


@sync_and_async
def large_records_are_split_by_size(fixture):
    objects = [{"id": f"Big:{index}", "data": "é" * 450_000} for index in range(20)]
    fixture.proxy.reset([{"status": 200, "body": {"taken": 1}}] * 2)

    count = fixture.result(fixture.client().put_objects(objects))

    sizes = [len(body) for body in fixture.bodies()]
    assert count == 2 and sizes == [17, 3], sizes


@sync_and_async
def a_poll_yields_changes_and_sends_the_last_etag(fixture):
    yielded, lengths = [], []

    def publish_on_second_sleep():
        lengths.append(len(yielded))
        if len(lengths) == 2:
            publish_to_feed(fixture, 1)

    fixture.on_sleep = publish_on_second_sleep
    for counts in fixture.iterate(fixture.client().poll(fixture.user)):
        yielded.append(counts["unread"])
        if len(yielded) == 2:
            break

    first, second, third = fixture.proxy.requests
    assert yielded == [0, 1] and lengths == [1, 1], (yielded, lengths)
    assert [request["status"] for request in fixture.proxy.requests] == [200, 304, 200]
    assert "if-none-match" not in first["headers"]
    assert second["headers"]["if-none-match"] == third["headers"]["if-none-match"]
    intervals = [float(request["interval"]) for request in fixture.proxy.requests]
    assert fixture.sleeps == intervals[:2] and min(intervals) > 1, (fixture.sleeps, intervals)


@sync_and_async
def a_poll_of_the_feed_yields_pages(fixture):
    publish_to_feed(fixture, 3)
    fixture.on_sleep = lambda: publish_to_feed(fixture, 1)

    pages = islice(fixture.iterate(fixture.client().poll_feed(fixture.user, {"limit": 2})), 2)

    first, second = ([item["object"]["id"] for item in page["items"]] for page in pages)
    assert (first, second) == (["Comment:2", "Comment:1"], ["Comment:3", "Comment:2"])


@sync_and_async
def a_poll_obeys_its_interval_and_skips_equal_responses_without_an_etag(fixture):
    def response(unread, **headers):
        return {"status": 200, "body": {"unread": unread}, "headers": headers}

    intervals = [{"X-Poll-Interval": "90"}, {}, {"X-Poll-Interval": "soon"}, {"X-Poll-Interval": "0"}]
    fixture.proxy.reset([response(1, **headers) for headers in intervals] + [response(2)])
    fixture.random = 1.0

    counts = list(islice(fixture.iterate(fixture.client().poll(fixture.user)), 2))

    assert counts == [{"unread": 1}, {"unread": 2}], counts
    assert fixture.sleeps == [108.0, 36.0, 36.0, 1.2], fixture.sleeps


@sync_and_async
def a_poll_continues_after_temporary_errors_and_ends_on_a_permanent_one(fixture):
    temporary = [{"status": 503, "headers": {"Retry-After": "99"}}, "drop", {"status": 500}]
    unavailable = [{"status": 503, "headers": {"Retry-After": "999999"}}]
    ok = {"status": 200, "body": {"unread": 0}, "headers": {"X-Poll-Interval": "30"}}
    fixture.proxy.reset([*temporary, ok, *unavailable, *[{"status": 503}] * 12, {"status": 403}])
    fixture.random, yielded, errors = 1.0, [], []

    try:
        for counts in fixture.iterate(fixture.client().poll(fixture.user, on_error=errors.append)):
            yielded.append(counts["unread"])
        raise AssertionError("the poll ended without an error")
    except TidingsError as error:
        assert error.status == 403, error

    assert yielded == [0] and len(errors) == 16
    assert [error.status for error in errors[:3]] == [503, None, 500]
    assert fixture.sleeps[:4] == [99.5, 1, 2, 36.0], fixture.sleeps
    assert fixture.sleeps[4:] == [3600, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300], fixture.sleeps


@sync_and_async
def a_closed_poll_sends_no_more_requests(fixture):
    values = fixture.client().poll(fixture.user)
    if fixture.loop:
        fixture.result(anext(values))
        fixture.result(values.aclose())
    else:
        next(values)
        values.close()

    assert list(fixture.iterate(values)) == [] and len(fixture.proxy.requests) == 1


@sync_and_async
def items_yields_each_item_once_while_events_arrive(fixture):
    ids = publish_to_feed(fixture, 23)

    yielded = []
    for item in islice(fixture.iterate(fixture.client().items(fixture.user, {"limit": 5})), 99):
        yielded.append(item["object"]["id"])
        if len(yielded) % 5 == 1:
            publish_to_feed(fixture, 2)

    assert yielded == ids[::-1], yielded
    assert len(fixture.proxy.requests) == 5, "no page is requested twice"


@sync_and_async
def iterators_yield_all_groups_batches_users_and_follows(fixture):
    client, user = fixture.client(), fixture.user
    objects = [{"id": f"Comment:{index}", "data": {"about": f"thread:{index % 3}"}} for index in range(9)]
    users = [{"id": f"{user}/{index}"} for index in range(5)]
    keys = [f"artist:{index}" for index in range(7)]
    profile = {"email": "a@example.org", "confirmed": True, "types": {"Comment": {"route": "batch"}}}
    assert fixture.result(client.put_objects(objects)) == 9
    assert fixture.result(client.put_users(users)) == 5
    assert fixture.result(client.put_follows([{"user": user, "key": key} for key in keys])) == 7
    fixture.result(client.put_user(user, profile))
    publish_to_feed(fixture, 9)
    for key in ("acme", "globex", "initech"):
        publish_to_feed(fixture, 1, batch_key=key)
    batches = {"user": user, "limit": 1}
    wait_until(lambda: len(list(fixture.iterate(client.batches(batches)))) == 4)
    fixture.proxy.reset()

    groups = list(islice(fixture.iterate(client.all_groups(user, {"limit": 2})), 99))
    about = [group["about"] for group in groups]
    user_ids = [one["id"] for one in islice(fixture.iterate(client.users(after=user, limit=2)), 5)]
    follows = list(islice(fixture.iterate(client.follows(user, limit=3)), 99))
    later_follows = list(fixture.iterate(client.follows(user, after="artist:4")))
    batch_keys = [batch["key"] for batch in islice(fixture.iterate(client.batches(batches)), 99)]

    assert set(about) >= {"thread:0", "thread:1", "thread:2"}, about
    assert len(about) == len(set(about)), about
    assert user_ids == [record["id"] for record in users]
    assert (follows, later_follows) == (keys, keys[5:])
    assert sorted(batch_keys) == ["key:acme", "key:globex", "key:initech", "type:Comment"], batch_keys
    newest = next(fixture.iterate(client.batches(batches)))
    assert fixture.result(client.batch(newest["id"]))["user"] == user


@sync_and_async
def pages_are_requested_only_when_needed(fixture):
    publish_to_feed(fixture, 6)

    items = fixture.client().items(fixture.user, {"limit": 3})
    assert fixture.requests() == []
    list(islice(fixture.iterate(items), 3))

    assert fixture.requests() == [("GET", f"/v1/users/{fixture.user}/feed?limit=3")]


@sync_and_async
def special_characters_in_names_are_escaped(fixture):
    client, user = fixture.client(), fixture.user
    for name in SPECIAL_NAMES:
        id, model = f"{user}{name}", f"M{name}"
        fixture.proxy.reset()

        fixture.result(client.put_user(id, {"name": name}))
        fixture.result(client.follow(id, name))
        fixture.result(client.put_object(model, name, {"title": name}))

        assert fixture.result(client.user(id))["id"] == id
        assert list(fixture.iterate(client.follows(id))) == [name]
        assert fixture.result(client.object(model, name))["id"] == f"{model}:{name}"
        assert fixture.result(client.feed(id, {"about": name, "type": name}))["items"] == []
        fixture.result(client.unfollow(id, name))
        assert list(fixture.iterate(client.follows(id))) == []
        key, part = quote(id, safe=""), quote(name, safe="")
        assert fixture.requests()[:3] == [
            ("PUT", f"/v1/users/{key}"), ("PUT", f"/v1/users/{key}/follows/{part}"),
            ("PUT", f"/v1/objects/M{part}/{part}"),
        ]
        assert ("GET", f"/v1/users/{key}/feed?about={part}&type={part}") in fixture.requests()


@sync_and_async
def names_that_are_no_path_segments_use_the_endpoints_for_many_or_fail(fixture):
    client, user = fixture.client(), fixture.user
    for name in (".", ".."):
        fixture.proxy.reset()
        fixture.result(client.put_user(name, {"name": "Dot"}))
        fixture.result(client.follow(name, "artist:1"))
        fixture.result(client.follow(user, name))
        fixture.result(client.put_object("Dots", name, {"title": "Dot"}))
        fixture.result(client.delete_object("Dots", name))

        assert fixture.bodies() == [
            [{"name": "Dot", "id": name}], [{"user": name, "key": "artist:1"}],
            [{"user": user, "key": name}], [{"title": "Dot", "id": f"Dots:{name}"}],
            [{"id": f"Dots:{name}", "notifiable": False}],
        ]
        paths = ["users", "follows", "follows", "objects", "objects"]
        assert fixture.requests() == [("POST", f"/v1/{path}") for path in paths]
        assert name in [one["id"] for one in fixture.iterate(client.users(limit=1000))]
        assert name in list(fixture.iterate(client.follows(user)))
    fixture.proxy.reset()
    for name in (".", "..", ""):
        for call in (lambda: client.user(name), lambda: client.delete_user(name),
                     lambda: client.unfollow(user, name), lambda: client.count(name)):
            assert fixture.error(call).code == "invalid_parameter"
    assert fixture.requests() == []


@sync_and_async
def marks_are_retried_and_persist(fixture):
    client, user = fixture.client(), fixture.user
    publish_to_feed(fixture, 3)
    page = fixture.result(client.feed(user))
    newest = page["items"][0]["id"]
    publish_to_feed(fixture, 1)
    fixture.proxy.reset(["lose", "pass", "lose"])

    seen = fixture.result(client.mark(user, "seen", to=page["cursor"]))
    read = fixture.result(client.mark(user, "read", ids=[newest]))
    filters = {"type": "Comment", "day": newest[:8], "about": "Comment:none"}
    filtered = fixture.result(client.mark(user, "seen", to=read["cursor"], **filters))

    assert (seen["unseen"], seen["unread"]) == (1, 4), "a newer event is not marked"
    assert (read["unseen"], read["unread"]) == (1, 3)
    assert filtered["unseen"] == 1, "the filters match no item"
    assert fixture.bodies()[0] == fixture.bodies()[1] == {"mark": "seen", "to": page["cursor"]}
    archived = fixture.result(client.mark(user, "archive", ids=[newest]))
    assert archived["unread"] == 3
    assert len(fixture.result(client.feed(user, {"state": "archived"}))["items"]) == 1
    fixture.result(client.mark(user, "restore", ids=[newest]))
    unread = fixture.result(client.mark(user, "unread", ids=[newest]))
    assert unread["unread"] == 4


@sync_and_async
def users_objects_and_preferences_are_written_changed_and_deleted(fixture):
    client, user = fixture.client(), fixture.user
    fixture.result(client.put_user(user, {"email": "mara@example.org", "confirmed": True}))
    patched = fixture.result(client.patch_user(user, {"name": "Mara", "email": None}))
    assert (patched["name"], patched["email"]) == ("Mara", None)
    updated = fixture.result(client.put_preferences(user, {"digest": {"cadence": "daily", "hour": 7}}))
    assert updated["digest"] and updated["digest"].get("hour") == 7
    assert fixture.result(client.preferences(user))["digest"]["hour"] == 7
    assert fixture.result(client.follow(user, "artist:1")) is None
    fixture.result(client.mute(user, "artist:1"))
    fixture.result(client.mute(user, "a/b", {"until": "2100-01-01T00:00:00Z", "title": "Budget"}))
    fixture.result(client.unmute(user, "artist:1"))
    mutes = fixture.result(client.mutes(user))["mutes"]
    assert [(mute["subject"], mute["title"]) for mute in mutes] == [("a/b", "Budget")]

    fixture.result(client.put_object("Work", user, {"title": "A Work", "data": {"year": 1785}}))
    assert fixture.result(client.object("Work", user))["data"] == {"year": 1785}
    fixture.result(client.publish(event(user, objects=[f"Work:{user}"])))
    wait_until(lambda: fixture.tidings.counts(user)["unread"] == 1)
    groups = fixture.result(client.groups(user))["groups"]
    assert [group["count"] for group in groups] == [1]
    fixture.result(client.delete_object("Work", user))
    assert fixture.result(client.object("Work", user))["notifiable"] is False
    wait_until(lambda: fixture.tidings.counts(user)["unread"] == 0)

    fixture.result(client.publish(event(user, objects=[f"Late:{user}"])))
    wait_until(lambda: fixture.tidings.counts(user)["unread"] == 1)
    retracted = fixture.result(client.retract("Comment", f"Late:{user}"))
    assert "no record of" in retracted.pop("warnings")[0]
    assert retracted == {"taken": 0, "omitted": 0, "objects": [f"Late:{user}"]}
    wait_until(lambda: fixture.tidings.counts(user)["unread"] == 0)
    fixture.result(client.delete_user(user))
    assert fixture.error(lambda: client.user(user)).code == "unknown_user"


@sync_and_async
def the_server_url_may_have_a_path_and_is_validated(fixture):
    fixture.proxy.reset([{"status": 200, "body": {}}] * 2)
    fixture.result(fixture.client(path="/inbox/").count("mara"))
    fixture.result(fixture.client(path="/").count("mara"))
    targets = [target for _, target in fixture.requests()]
    assert targets == ["/inbox/v1/users/mara/feed/count", "/v1/users/mara/feed/count"]
    try:
        type(fixture.client())("127.0.0.1:8080", KEY)
        raise AssertionError
    except ValueError as error:
        assert "127.0.0.1:8080" in str(error)


@sync_and_async
def a_client_closes_only_the_http_client_that_it_created(fixture):
    async def use_async():
        async with type(fixture.client())(fixture.proxy.url, KEY) as client:
            assert (await client.count(fixture.user))["unread"] == 0
        return client

    def use():
        with type(fixture.client())(fixture.proxy.url, KEY) as client:
            assert client.count(fixture.user)["unread"] == 0
        return client

    client, with_http = (fixture.result(use_async()) if fixture.loop else use()), fixture.client()
    fixture.result(with_http.aclose()) if fixture.loop else with_http.close()

    assert client._http.is_closed and not with_http._http.is_closed
