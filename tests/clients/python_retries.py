"""Tests of the retries, deadlines, tokens and errors of the Python client.

Each test runs with `Client` and with `AsyncClient`. Tests check requests as the proxy received them.
Keep the tests in line with retries.test.mjs, which tests the JavaScript client.
"""

import asyncio
import pickle
import time
from email.utils import formatdate

import runner
from fixture import event, sync_and_async, user_token
from stage import KEY, wait_until
from tidings_client import AsyncClient, TidingsError

RETRYABLE = [429, 502, 503, 504]
PERMANENT = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501]


@sync_and_async
def a_retry_after_a_lost_response_sends_the_same_key_and_publishes_once(fixture):
    fixture.proxy.reset(["lose", "lose"])

    receipt = fixture.result(fixture.client().publish(event(fixture.user)))

    first, *retries = fixture.bodies()
    assert retries == [first, first] and len(first[0]["key"]) == 32, fixture.bodies()
    assert receipt["duplicate"]
    wait_until(lambda: fixture.tidings.counts(fixture.user)["unread"])
    progress = fixture.tidings.ask("GET", f"/v1/events/{receipt['id']}")
    assert progress["counts"] == {"people": 1, "pushed": 1, "capped": 0}, progress
    assert fixture.tidings.counts(fixture.user)["unread"] == 1


@sync_and_async
def temporary_failures_are_retried(fixture):
    for fault in ["cut", "drop", "lose", *({"status": status} for status in RETRYABLE)]:
        fixture.proxy.reset([fault])

        assert fixture.result(fixture.client().count(fixture.user))["unread"] == 0, fault

        assert len(fixture.proxy.requests) == 2, (fault, fixture.proxy.requests)
    fixture.proxy.reset(["hold"])
    client = fixture.client(real_time=True, timeout=1)
    assert fixture.result(client.count(fixture.user))["unread"] == 0
    assert len(fixture.proxy.requests) == 2


@sync_and_async
def a_failed_connection_is_a_retryable_error(fixture):
    client = fixture.client(attempts=3)
    client._url = "http://127.0.0.1:1"

    error = fixture.error(lambda: client.count(fixture.user))

    assert (error.code, error.status, error.retryable) == ("unreachable", None, True), error
    assert len(fixture.sleeps) == 2


@sync_and_async
def permanent_failures_are_not_retried(fixture):
    client = fixture.client()
    for status in PERMANENT:
        fixture.proxy.reset([{"status": status, "body": {"code": "a_code", "detail": "a detail"}}])

        error = fixture.error(lambda: client.publish(event(fixture.user)))

        assert (error.status, error.code, error.detail) == (status, "a_code", "a detail"), error
        assert not error.retryable and len(fixture.proxy.requests) == 1, status
    assert fixture.sleeps == []


@sync_and_async
def errors_have_the_code_of_the_server(fixture):
    client, user = fixture.client(), fixture.user
    other_user = fixture.client(user_token("another-user"))
    wrong_key = fixture.client("a-wrong-key")
    fixture.result(client.publish(event(user), key=f"used {user}"))
    failures = [
        (400, "invalid_body", lambda: client.publish({"type": "Comment", "objects": ["c"]})),
        (401, "unauthorized", lambda: wrong_key.count(user)),
        (403, "forbidden", lambda: other_user.count(user)),
        (404, "unknown_user", lambda: client.user(user)),
        (409, "idempotency_key_reused",
         lambda: client.publish(event(user, objects=["Comment:c2"]), key=f"used {user}")),
        (422, "time_out_of_range", lambda: client.publish(event(user, at="2014-04-19T10:00:00Z"))),
    ]
    for status, code, call in failures:
        fixture.proxy.reset()

        error = fixture.error(call)

        assert (error.status, error.code, error.retryable) == (status, code, False), error
        assert len(fixture.proxy.requests) == 1, code
    assert error.location == "events[0]" and str(error).startswith("422 time_out_of_range: ")


@sync_and_async
def an_error_has_all_fields_of_the_response(fixture):
    body = {"code": "store_unavailable", "detail": "away", "location": "there"}
    headers = {"X-Request-Id": "r-17", "Retry-After": "3"}
    fixture.proxy.reset([{"status": 503, "body": body, "headers": headers}] * 2)

    error = fixture.error(lambda: fixture.client(attempts=2).count(fixture.user))

    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy, TidingsError)
        assert (copy.status, copy.code, copy.detail) == (503, "store_unavailable", "away")
        assert (copy.location, copy.request_id) == ("there", "r-17")
        assert (copy.retryable, copy.retry_after) == (True, 3.0)


@sync_and_async
def a_response_from_another_server_is_an_error(fixture):
    pages = [
        ({"status": 404, "body": "<h1>Lost</h1>"}, "no_code"),
        ({"status": 404, "body": "[1]"}, "no_code"),
        ({"status": 200, "body": "<h1>Sign in</h1>"}, "invalid_answer"),
        ({"status": 302, "headers": {"Location": "/elsewhere"}}, "no_code"),
    ]
    for page, code in pages:
        fixture.proxy.reset([page])

        error = fixture.error(lambda: fixture.client().count(fixture.user))

        assert (error.status, error.code, error.retryable) == (page["status"], code, False), error
        assert len(fixture.proxy.requests) == 1


@sync_and_async
def retry_after_is_obeyed_in_seconds_and_as_a_date(fixture):
    date = "Mon, 23 Nov 2026 10:00:00 GMT"
    cases = [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Mon, 23 Nov 2026 10:00:30 GMT", "Date": date}, 30.0),
        ({"Retry-After": "Mon, 23 Nov 2026 09:00:00 GMT", "Date": date}, 0.0),
        ({"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
    ]
    client = fixture.client()
    for status in (429, 503):
        for headers, seconds in cases:
            fixture.proxy.reset([{"status": status, "headers": headers}])
            fixture.sleeps.clear()

            fixture.result(client.count(fixture.user))

            assert fixture.sleeps == [seconds], (headers, fixture.sleeps)
    in_30_seconds = formatdate(time.time() + 30, usegmt=True)
    fixture.proxy.reset([{"status": 503, "headers": {"Retry-After": in_30_seconds}}])
    fixture.result(client.count(fixture.user))
    assert 0 < fixture.sleeps[-1] <= 30, "without a Date header, the client uses its own clock"
    fixture.random = 1.0
    fixture.proxy.reset([{"status": 503, "headers": {"Retry-After": "7"}}])
    fixture.result(fixture.client().count(fixture.user))
    assert fixture.sleeps[-1] == 7.5, "the jitter is added"


@sync_and_async
def backoff_is_capped_and_attempts_are_limited(fixture):
    fixture.random = 1.0
    fixture.proxy.reset([{"status": 503}] * 20)
    fixture.error(lambda: fixture.client().count(fixture.user))
    assert (fixture.sleeps, len(fixture.proxy.requests)) == ([0.5, 1, 2, 4], 5), fixture.sleeps

    fixture.sleeps.clear()
    fixture.proxy.reset([{"status": 503}] * 20)
    fixture.error(lambda: fixture.client(attempts=9, deadline=1000).count(fixture.user))
    assert fixture.sleeps == [0.5, 1, 2, 4, 8, 16, 20, 20], fixture.sleeps

    fixture.sleeps.clear()
    fixture.random = 0.25
    fixture.proxy.reset([{"status": 503}] * 2)
    fixture.result(fixture.client().count(fixture.user))
    assert fixture.sleeps == [0.125, 0.25], "full jitter"


@sync_and_async
def no_wait_exceeds_the_deadline(fixture):
    fixture.proxy.reset([{"status": 503, "headers": {"Retry-After": "61"}}])
    error = fixture.error(lambda: fixture.client().count(fixture.user))
    assert (error.retry_after, fixture.sleeps) == (61.0, []), error

    fixture.random, start = 1.0, fixture.now
    fixture.proxy.reset([{"status": 503}] * 99)
    fixture.error(lambda: fixture.client(attempts=99, deadline=10).count(fixture.user))
    assert fixture.sleeps == [0.5, 1, 2, 4] and fixture.now - start < 10, fixture.sleeps


@sync_and_async
def the_deadline_ends_calls_without_a_response(fixture):
    for fault, timeout in (("hold", 30), ("drip", 30), ("hold", 0.25)):
        fixture.proxy.reset([fault] * 99)
        client = fixture.client(real_time=True, deadline=0.6, timeout=timeout, attempts=99)
        start = time.monotonic()

        error = fixture.error(lambda: client.publish(event(fixture.user)))

        elapsed = time.monotonic() - start
        fixture.proxy.release()
        assert 0.5 < elapsed < 10, (fault, timeout, elapsed)
        assert (error.code, error.retryable) == ("timeout", True), error
        assert all(body == error.unsent for body in fixture.bodies()), "a retry sends the same key"


@sync_and_async
def unsent_events_can_be_published_again(fixture):
    client = fixture.client(timeout=100, deadline=999)
    events = [event(fixture.user, objects=[f"Comment:{index}"]) for index in range(1500)]
    fixture.proxy.reset(["pass", "lose", {"status": 400}], idle=True)

    error = fixture.error(lambda: client.publish_many(events))

    assert (len(error.receipts), len(error.unsent)) == (1000, 500)
    assert error.unsent == fixture.bodies()[-1]
    receipts = fixture.result(client.publish_many(error.unsent))
    assert [receipt["duplicate"] for receipt in receipts] == [True] * 500, "the first attempt published them"


@sync_and_async
def an_expired_user_token_is_renewed_once(fixture):
    calls = []
    tokens = [user_token(fixture.user, -300), user_token(fixture.user)]

    def get_token():
        calls.append(1)
        return tokens[min(len(calls), 2) - 1]

    client = fixture.client(get_token)
    fixture.proxy.reset(["pass", {"status": 503}])
    assert fixture.result(client.count(fixture.user))["unread"] == 0
    assert [request["status"] for request in fixture.proxy.requests] == [401, 503, 200] and len(calls) == 2
    sent = [request["headers"]["authorization"] for request in fixture.proxy.requests]
    assert sent == [f"Bearer {tokens[0]}"] + [f"Bearer {tokens[1]}"] * 2

    fixture.result(client.count(fixture.user))
    assert len(calls) == 2, "the token is cached"


@sync_and_async
def a_renewed_token_that_is_rejected_is_an_error(fixture):
    calls = []

    def get_token():
        calls.append(1)
        return user_token(fixture.user, -300)

    error = fixture.error(lambda: fixture.client(get_token).count(fixture.user))
    assert (error.status, len(calls), len(fixture.proxy.requests)) == (401, 2, 2), error

    fixture.proxy.reset()
    error = fixture.error(lambda: fixture.client(user_token(fixture.user, -300)).count(fixture.user))
    assert (error.status, len(fixture.proxy.requests)) == (401, 1)


@sync_and_async
def a_failed_token_callback_is_retried(fixture):
    calls = []

    def get_token():
        calls.append(1)
        if len(calls) < 3:
            raise OSError("the session server is down")
        return user_token(fixture.user)

    assert fixture.result(fixture.client(get_token).count(fixture.user))["unread"] == 0
    calls.clear()
    error = fixture.error(lambda: fixture.client(get_token, attempts=2).count(fixture.user))
    assert (error.code, error.retryable) == ("no_token", True), error
    assert "the session server is down" in error.detail


@sync_and_async
def tokens_are_trimmed_and_never_shown_in_errors(fixture):
    fixture.result(fixture.client(f" {KEY}\n").count(fixture.user))
    for bad in ("", "se\ncret", "secrét"):
        try:
            fixture.client(bad)
            raise AssertionError(bad)
        except TidingsError as error:
            assert error.code == "invalid_token" and "secr" not in str(error)


@sync_and_async
def a_retried_delete_succeeds_if_the_first_response_was_lost(fixture):
    client, user = fixture.client(), fixture.user
    fixture.result(client.put_user(user, {"name": "Mara"}))
    fixture.proxy.reset(["lose"])
    assert fixture.result(client.delete_user(user)) is None
    assert [request["status"] for request in fixture.proxy.requests] == [204, 404]

    for faults in ([], [{"status": 429}]):
        fixture.proxy.reset(faults)
        error = fixture.error(lambda: client.delete_user(user))
        assert error.code == "unknown_user", "no earlier attempt can have deleted the user"


@runner.test
def an_async_client_times_out_token_callbacks_and_can_be_canceled():
    async def never():
        await asyncio.Event().wait()

    async def run():
        start = time.monotonic()
        async with AsyncClient("http://127.0.0.1:1", never, deadline=0.3) as client:
            try:
                await client.count("mara")
                raise AssertionError
            except TidingsError as error:
                assert error.code == "timeout", error
            assert time.monotonic() - start < 10
            task = asyncio.create_task(client.count("mara"))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                raise AssertionError
            except asyncio.CancelledError:
                pass

    asyncio.run(run())
