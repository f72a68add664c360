"""Runs each test of the Python client twice: with `Client`, and with `AsyncClient` in an event loop.

By default, a client has a fake clock, so no test waits, and a fixed random number for its backoff.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time

import httpx
import runner
from stage import KEY, wait_until
from tidings_client import AsyncClient, Client, TidingsError

SECRET = "a-secret-of-at-least-32-characters-for-tests"
CONFIG = f'[tokens]\nsecret = "{SECRET}"\n'


def user_token(user, expires_in=600):
    """Returns a user token, signed as an application would sign it."""
    now = int(time.time())
    claims = {"sub": user, "aud": "tidings", "iat": now - 3600, "exp": now + expires_in}
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{text}.{base64url(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256))}"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sync_and_async(test):
    """Registers a test twice, once for each kind of client."""
    for kind in ("sync", "async"):
        def variant(fixture):
            test(fixture)
        variant.__name__, variant.kind = f"{test.__name__}_{kind}", kind
        runner.test(variant)
    return test


def event(user, **fields):
    return {"type": "Comment", "objects": ["Comment:c1"], "to": [user], **fields}


def publish_to_feed(fixture, count, **fields):
    """Publishes events without the proxy, and waits until they are in the feed. Returns the object ids."""
    before = fixture.tidings.counts(fixture.user)["unread"]
    ids = [f"Comment:{before + index}" for index in range(count)]
    events = [event(fixture.user, objects=[id], **fields) for id in ids]
    fixture.tidings.ask("POST", "/v1/events", events)
    wait_until(lambda: fixture.tidings.counts(fixture.user)["unread"] == before + count)
    return ids


class Fixture:
    def __init__(self, kind, number, tidings, proxy):
        self.kind, self.user, self.tidings, self.proxy = kind, f"{kind}-{number}", tidings, proxy
        self.loop = asyncio.new_event_loop() if kind == "async" else None
        self.now, self.random, self.sleeps, self.http_clients = 1000.0, 0.0, [], []
        self.on_sleep = lambda: None
        proxy.reset()

    def client(self, token=KEY, *, path="", real_time=False, **settings):
        make_client, make_http = (AsyncClient, httpx.AsyncClient) if self.loop else (Client, httpx.Client)
        http = make_http(verify=False)  # loading the certificates is slow
        self.http_clients.append(http)
        client = make_client(self.proxy.url + path, token, http=http, **settings)
        client._random = lambda: self.random
        if not real_time:
            client._clock, client._sleep = lambda: self.now, self.sleep
        return client

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds
        self.on_sleep()

    def result(self, value):
        """Returns the result of a call. Awaits it for an async client."""
        return self.loop.run_until_complete(value) if self.loop else value

    def iterate(self, values):
        if not self.loop:
            yield from values
            return
        try:
            while True:
                try:
                    value = self.result(anext(values))
                except StopAsyncIteration:
                    return
                yield value
        finally:
            self.result(values.aclose())

    def error(self, call):
        """Returns the error that the call raises."""
        try:
            self.result(call())
        except TidingsError as error:
            return error
        raise AssertionError("the call did not fail")

    def requests(self):
        return [(entry["method"], entry["target"]) for entry in self.proxy.requests]

    def bodies(self):
        return [json.loads(entry["body"]) for entry in self.proxy.requests]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for http in self.http_clients:
            self.result(http.aclose()) if self.loop else http.close()
        if self.loop:
            self.loop.close()
