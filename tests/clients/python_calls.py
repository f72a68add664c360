"""The tests of the Python client: what travels, walks of pages, and polls.

The rule: each is run as `Client` and as `AsyncClient`, and what it says of a request is what the
proxy saw of it. calls.test.mjs says the same of the JavaScript client.
"""

from itertools import islice
from urllib.parse import quote

from caller import both, event, told
from stage import KEY, until
from tidings_client import TidingsError

# What a path must carry as it is.
HOSTILE = [
    "a/b", "%2F", "é", "?", "a?b=c&d#e", "a b+c", "a/../b", "...", "%2e%2e", "🦆", "\\", ";",
]


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
def many_events_are_cut_into_requests_of_1000(caller):
    client = caller.client(timeout=100, deadline=999)
    events = [event(caller.user, objects=[f"Comment:{at}"]) for at in range(2500)]
    caller.proxy.reset(["pass", "lose"], idle=True)

    receipts = caller.get(client.publish_many(iter(events)))

    sizes = [len(body) for body in caller.bodies()]
    assert sizes == [1000, 1000, 1000, 500], sizes
    first, lost, again, last = caller.bodies()
    assert lost == again, "the same keys"
    assert len({one["key"] for one in first + again + last}) == 2500
    assert len({receipt["id"] for receipt in receipts}) == 2500
    repeated = [at for at, receipt in enumerate(receipts) if receipt["duplicate"]]
    assert repeated == list(range(1000, 2000)), "those whose answer was lost"
    assert caller.get(client.event(receipts[1700]["id"]))["objects"] == ["Comment:1700"]
    assert "key" not in events[0], "what was given is not changed"
    assert caller.get(client.publish_many([])) == []


@both
def records_are_cut_by_their_size_too(caller):
    objects = [{"id": f"Big:{at}", "data": "é" * 450_000} for at in range(20)]
    caller.proxy.reset([{"status": 200, "body": {"taken": 1}}] * 2)

    taken = caller.get(caller.client().put_objects(objects))

    sizes = [len(body) for body in caller.bodies()]
    assert taken == 2 and sizes == [17, 3], sizes


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
    assert caller.slept == said[:2] and min(said) > 1, (caller.slept, said)


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
    emailed = {"email": "a@example.org", "confirmed": True, "types": {"Comment": {"route": "batch"}}}
    assert caller.get(client.put_objects(objects)) == 9
    assert caller.get(client.put_users(people)) == 5
    assert caller.get(client.put_follows([{"user": user, "key": key} for key in keys])) == 7
    caller.get(client.put_user(user, emailed))
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

    assert set(about) >= {"thread:0", "thread:1", "thread:2"}, about
    assert len(about) == len(set(about)), about
    assert listed == [f"{user}/{at}" for at in range(5)]
    assert (followed, some) == (keys, keys[5:])
    assert sorted(gathered) == ["key:acme", "key:globex", "key:initech", "type:Comment"], gathered
    newest = next(caller.each(client.batches(batches)))
    assert caller.get(client.batch(newest["id"]))["user"] == user


@both
def a_page_is_asked_for_only_when_it_is_needed(caller):
    told(caller, 6)

    items = caller.client().items(caller.user, {"limit": 3})
    assert caller.asked() == []
    list(islice(caller.each(items), 3))

    assert caller.asked() == [("GET", f"/v1/users/{caller.user}/feed?limit=3")]


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
        asked = ("GET", f"/v1/users/{key}/feed?about={part}&type={part}")
        assert asked in caller.asked()


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
        forms = ["users", "follows", "follows", "objects", "objects"]
        assert caller.asked() == [("POST", f"/v1/{form}") for form in forms]
        assert name in [one["id"] for one in caller.each(client.users(limit=1000))]
        assert name in list(caller.each(client.follows(user)))
    caller.proxy.reset()
    for name in (".", "..", ""):
        for ask in (lambda: client.user(name), lambda: client.delete_user(name),
                    lambda: client.unfollow(user, name), lambda: client.count(name)):
            assert caller.error(ask).code == "invalid_parameter"
    assert caller.asked() == []


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
    narrow = {"type": "Comment", "day": first[:8], "about": "Comment:none"}
    only = caller.get(client.mark(user, "seen", to=read["cursor"], **narrow))

    assert (seen["unseen"], seen["unread"]) == (1, 4), "what arrived since is not marked"
    assert (read["unseen"], read["unread"]) == (1, 3)
    assert only["unseen"] == 1, "about something else"
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
    caller.get(client.mute(user, "artist:1"))
    caller.get(client.mute(user, "a/b", {"until": "2100-01-01T00:00:00Z", "title": "Budget"}))
    caller.get(client.unmute(user, "artist:1"))
    muted = caller.get(client.mutes(user))["mutes"]
    assert [(one["subject"], one["title"]) for one in muted] == [("a/b", "Budget")]

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
    back = caller.get(client.retract("Comment", f"Late:{user}"))
    assert "no record of" in back.pop("warnings")[0]
    assert back == {"taken": 0, "omitted": 0, "objects": [f"Late:{user}"]}
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


@both
def a_client_closes_what_it_opened_and_nothing_else(caller):
    async def use_async():
        async with type(caller.client())(caller.proxy.url, KEY) as client:
            assert (await client.count(caller.user))["unread"] == 0
        return client

    def use():
        with type(caller.client())(caller.proxy.url, KEY) as client:
            assert client.count(caller.user)["unread"] == 0
        return client

    client, given = (caller.get(use_async()) if caller.loop else use()), caller.client()
    caller.get(given.aclose()) if caller.loop else given.close()

    assert client._http.is_closed and not given._http.is_closed
