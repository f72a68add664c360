"""Who calls in the tests of the Python client: a `Client`, or an `AsyncClient` in a loop.

The rule: a test is written once and runs as both. Time is the caller's own, so that nothing waits,
unless a test asks for real time; chance is the number that the test sets.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time

import httpx
import runner
from stage import KEY, until
from tidings_client import AsyncClient, Client, TidingsError

SECRET = "a-secret-of-at-least-32-characters-for-tests"
# What the server is told beyond the store and its key.
CONFIG = f'[tokens]\nsecret = "{SECRET}"\n'


def user_token(user, expires_in=600):
    """What an application signs for a person's browser."""
    now = int(time.time())
    said = {"sub": user, "aud": "tidings", "iat": now - 3600, "exp": now + expires_in}
    parts = [{"alg": "HS256", "typ": "JWT"}, said]
    text = ".".join(map(coded, [json.dumps(part).encode() for part in parts]))
    return f"{text}.{coded(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256))}"


def coded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def both(test):
    """Lists a test twice, to be given a caller of either kind."""
    for kind in ("sync", "async"):
        def one(caller):
            test(caller)
        one.__name__, one.kind = f"{test.__name__}_{kind}", kind
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


class Caller:
    def __init__(self, kind, number, tidings, proxy):
        self.kind, self.user, self.tidings, self.proxy = kind, f"{kind}-{number}", tidings, proxy
        self.loop = asyncio.new_event_loop() if kind == "async" else None
        self.now, self.chance, self.slept, self.opened = 1000.0, 0.0, [], []
        self.during_sleep = lambda: None
        proxy.reset()

    def client(self, token=KEY, *, path="", real=False, **settings):
        make, open_http = (AsyncClient, httpx.AsyncClient) if self.loop else (Client, httpx.Client)
        http = open_http(verify=False)  # else each reads all certificates
        self.opened.append(http)
        client = make(self.proxy.url + path, token, http=http, **settings)
        client._random = lambda: self.chance
        if not real:
            client._clock, client._sleep = lambda: self.now, self.sleep
        return client

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        self.during_sleep()

    def get(self, value):
        return self.loop.run_until_complete(value) if self.loop else value

    def each(self, values):
        if not self.loop:
            yield from values
            return
        try:
            while True:
                try:
                    value = self.get(anext(values))
                except StopAsyncIteration:
                    return
                yield value
        finally:
            self.get(values.aclose())

    def error(self, ask):
        """The error that asking ends with."""
        try:
            self.get(ask())
        except TidingsError as error:
            return error
        raise AssertionError("it did not fail")

    def asked(self):
        return [(entry["method"], entry["target"]) for entry in self.proxy.seen]

    def bodies(self):
        return [json.loads(entry["body"]) for entry in self.proxy.seen]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for http in self.opened:
            self.get(http.aclose()) if self.loop else http.close()
        if self.loop:
            self.loop.close()
