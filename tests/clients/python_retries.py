"""The tests of the Python client: what is tried again, what is not, and what errors say.

The rule: each is run as `Client` and as `AsyncClient`, and what it says of a request is what the
proxy saw of it. retries.test.mjs says the same of the JavaScript client.
"""

import asyncio
import pickle
import time
from email.utils import formatdate

import runner
from caller import both, event, user_token
from stage import KEY, until
from tidings_client import AsyncClient, TidingsError

PASSING = [429, 502, 503, 504]
REFUSED = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501]


@both
def a_lost_answer_is_asked_for_again_under_the_same_key_and_the_event_is_there_once(caller):
    caller.proxy.reset(["lose", "lose"])

    receipt = caller.get(caller.client().publish(event(caller.user)))

    first, *again = caller.bodies()
    assert again == [first, first] and len(first[0]["key"]) == 32, caller.bodies()
    assert receipt["duplicate"]
    until(lambda: caller.tidings.counts(caller.user)["unread"])
    time_of_it = caller.tidings.ask("GET", f"/v1/events/{receipt['id']}")
    assert time_of_it["counts"] == {"people": 1, "pushed": 1, "capped": 0}, time_of_it
    assert caller.tidings.counts(caller.user)["unread"] == 1


@both
def what_fails_in_passing_is_tried_again(caller):
    for fault in ["cut", "drop", "lose", *({"status": status} for status in PASSING)]:
        caller.proxy.reset([fault])

        assert caller.get(caller.client().count(caller.user))["unread"] == 0, fault

        assert len(caller.proxy.seen) == 2, (fault, caller.proxy.seen)
    caller.proxy.reset(["hold"])
    client = caller.client(real=True, timeout=1)
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
    client = caller.client()
    for status in (429, 503):
        for headers, seconds in waits:
            caller.proxy.reset([{"status": status, "headers": headers}])
            caller.slept.clear()

            caller.get(client.count(caller.user))

            assert caller.slept == [seconds], (headers, caller.slept)
    in_half_a_minute = formatdate(time.time() + 30, usegmt=True)
    caller.proxy.reset([{"status": 503, "headers": {"Retry-After": in_half_a_minute}}])
    caller.get(client.count(caller.user))
    assert 0 < caller.slept[-1] <= 30, "from now, where the answer says no date"
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
    for fault, timeout in (("hold", 30), ("drip", 30), ("hold", 0.25)):
        caller.proxy.reset([fault] * 99)
        client = caller.client(real=True, deadline=0.6, timeout=timeout, attempts=99)
        began = time.monotonic()

        error = caller.error(lambda: client.publish(event(caller.user)))

        took = time.monotonic() - began
        caller.proxy.release()
        assert 0.5 < took < 10, (fault, timeout, took)
        assert (error.code, error.retryable) == ("timeout", True), error
        assert all(body == error.unsent for body in caller.bodies()), "under the same key"


@both
def what_was_not_accepted_of_many_can_be_published_again(caller):
    client = caller.client(timeout=100, deadline=999)
    events = [event(caller.user, objects=[f"Comment:{at}"]) for at in range(1500)]
    caller.proxy.reset(["pass", "lose", {"status": 400}], idle=True)

    error = caller.error(lambda: client.publish_many(events))

    assert (len(error.receipts), len(error.unsent)) == (1000, 500)
    assert error.unsent == caller.bodies()[-1]
    receipts = caller.get(client.publish_many(error.unsent))
    assert [receipt["duplicate"] for receipt in receipts] == [True] * 500, "none is there twice"


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


@runner.test
def an_async_client_ends_a_token_that_does_not_come_and_what_is_canceled():
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
            assert time.monotonic() - began < 10
            task = asyncio.create_task(client.count("mara"))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                raise AssertionError
            except asyncio.CancelledError:
                pass

    asyncio.run(ask())
