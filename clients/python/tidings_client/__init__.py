"""Clients for tidings: `Client` blocks, and `AsyncClient` has the same methods as coroutines.

`_Core` and `_Calls` implement requests, retries and pages once, as coroutines. In a `Client` these
coroutines block and never suspend, so one `send` completes them. docs/clients.md describes the
retries and how to test with a client.
"""

from __future__ import annotations

import inspect
import json
import random
import re
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar, Union, cast
from urllib.parse import quote, urlencode

import anyio
import httpx

from .records import Batch, BatchQuery, Counts, Event, FeedQuery, Follow, Group, GroupPage, Id, Ids
from .records import Item, Mark, Mute, Mutes, Object, ObjectView, ObjectWithId, Page, Preferences
from .records import PreferencesView, Progress, Receipt, Retracted, Str, User, UserPatch, UserView
from .records import TidingsError as TidingsError
from .records import UserWithId, error_from_response

_GROUPED = {"group": "about"}
_MIN_SECONDS = 0.05  # seconds that must remain for another request


class _Answer(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes


T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
_Coroutine = Coroutine[Any, Any, T]
_Items = AsyncGenerator[T, None]
_OnError = Union[Callable[[TidingsError], object], None]


def _run(coroutine: _Coroutine[T]) -> T:
    """Returns the value of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("the token callback of a Client must not wait; use AsyncClient")


def _iterate(values: _Items[T]) -> Generator[T, None, None]:
    while True:
        try:
            value = _run(values.__anext__())
        except StopAsyncIteration:
            return
        yield value


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _path(*names: Id) -> str:
    for name in names:
        if str(name) in ("", ".", ".."):
            raise TidingsError("invalid_parameter", f"{name!r} cannot be a part of a path")
    return "/v1/" + "/".join(quote(str(name), safe="") for name in names)


def _query(query: Mapping[str, Any]) -> str:
    pairs = [(name, value) for name, value in query.items() if value is not None]
    return "?" + urlencode(pairs, quote_via=quote) if pairs else ""


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _split(records: Iterable[Mapping[str, Any]]) -> Generator[bytes, None, None]:
    """Splits records into bodies of at most 1,000 records and 15 MiB. The server accepts 16 MiB."""
    chunk: list[bytes] = []
    size = 0
    for record in map(_json, records):
        if chunk and (len(chunk) == 1000 or size + len(record) > 15 << 20):
            yield b"[" + b",".join(chunk) + b"]"
            chunk, size = [], 0
        chunk.append(record)
        size += len(record) + 1
    if chunk:
        yield b"[" + b",".join(chunk) + b"]"


def _parse(answer: _Answer) -> Any:
    try:
        return json.loads(answer.body) if answer.status != 204 else None
    except ValueError:
        detail = "the answer is not JSON; is this the address of tidings?"
        raise TidingsError("invalid_answer", detail, status=answer.status) from None


def _check_token(token: object) -> str:
    if isinstance(token, str) and re.fullmatch("[\x21-\x7e]+", token.strip()):
        return token.strip()
    raise TidingsError("invalid_token", "a token is text of visible ASCII characters")


class _Core(Generic[H]):
    """Settings, requests and retries of both clients."""

    _open: Callable[[], H]
    _sleep: Callable[[float], Any]
    _time_limit: Callable[[float], AbstractContextManager[Any]]

    def __init__(
        self, url: str, token: str | Callable[[], Any], *,
        timeout: float = 20, deadline: float = 60, attempts: int = 5, http: H | None = None,
    ) -> None:
        """`token` is a server key, or a callback that returns a user token. The callback is called
        again when the token expires. `timeout` limits one request, `deadline` a call with its
        retries, both in seconds. `http` is an httpx client with your own transport, proxy or
        certificates; closing this client does not close it."""
        if not re.match("https?://.", url):
            raise ValueError(f"{url!r} is not an http or https address")
        self._url, self._timeout, self._deadline = url.rstrip("/"), timeout, deadline
        self._attempts, self._owns_http = attempts, http is None
        self._http: H = http or self._open()
        self._get_token = token if callable(token) else None
        self._token = None if callable(token) else _check_token(token)
        self._clock, self._random = time.monotonic, random.random

    async def _send(self, request: httpx.Request, end: float) -> _Answer:
        raise NotImplementedError

    async def _bearer(self, rejected: Str) -> str:
        if self._get_token is not None and self._token in (None, rejected):
            try:
                self._token = _check_token(await _maybe_await(self._get_token()))
            except Exception as cause:
                raise TidingsError("no_token", repr(cause), retryable=True) from cause
        return self._token or ""

    async def _request(
        self, method: str, path: str, body: bytes | None = None, *,
        attempts: int | None = None, etag: Str = None,
    ) -> _Answer:
        end, tries, lost, rejected = self._clock() + self._deadline, 0, False, None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if etag is not None:
            headers["If-None-Match"] = etag
        while True:
            tries += 1
            seconds = max(_MIN_SECONDS, min(self._timeout, end - self._clock()))
            token: Str = None
            try:
                with self._time_limit(seconds):
                    token = await self._bearer(rejected)
                    headers["Authorization"] = f"Bearer {token}"
                    answer = await self._send(self._http.build_request(
                        method, self._url + path, content=body, headers=headers, timeout=seconds,
                    ), self._clock() + seconds)
                if 200 <= answer.status < 300 or answer.status == 304:
                    return answer
                error = error_from_response(answer.status, answer.headers, answer.body)
                if lost and method == "DELETE" and error.code == "unknown_user":
                    return answer._replace(status=204)  # an earlier attempt deleted it
            except TidingsError as caught:
                error = caught
            except (httpx.RequestError, TimeoutError) as cause:
                timed_out = isinstance(cause, (TimeoutError, httpx.TimeoutException))
                detail = f"{type(cause).__name__}: {cause}"
                code = "timeout" if timed_out else "unreachable"
                error = TidingsError(code, detail, retryable=True)
                error.__cause__ = cause
            lost = lost or (error.retryable and error.status != 429 and error.code != "no_token")
            renew = error.status == 401 and self._get_token is not None and rejected is None
            again = renew or (error.retryable and tries < (attempts or self._attempts))
            wait = 0.0 if renew else self._backoff(error, tries)
            if not again or self._clock() + wait + _MIN_SECONDS >= end:
                raise error
            if renew:
                rejected = token
            else:
                await _maybe_await(self._sleep(wait))

    def _backoff(self, error: TidingsError, tries: int, most: float = 20) -> float:
        """Returns the server's `Retry-After` plus a backoff with full jitter, in seconds."""
        backoff = self._random() * min(most, 0.25 * 2 ** min(tries, 20))
        return float((error.retry_after or 0.0) + backoff)

    async def _call(self, method: str, path: str, value: object = None) -> Any:
        return _parse(await self._request(method, path, None if value is None else _json(value)))

    async def _put(
        self, method: str, names: list[Id], value: object, many: str, record: Mapping[str, Any],
    ) -> None:
        """Writes a record by its path, or by the endpoint for many for names such as `..`."""
        if any(str(name) in (".", "..") for name in names):
            await self._post_many(many, [record])
        else:
            await self._call(method, _path(*names), value)

    async def _post_many(self, path: str, records: Iterable[Mapping[str, Any]]) -> int:
        count = 0
        for body in _split(records):
            count += _parse(await self._request("POST", path, body))["taken"]
        return count

    async def _pages(self, path: str, field: str, cursor: str, query: Mapping[str, Any]) -> _Items[Any]:
        while True:
            page = await self._call("GET", path + _query(query))
            for record in page[field]:
                yield record
            if page["next"] is None:
                return
            query = {**query, cursor: page["next"]}

    async def _poll(self, path: str, on_error: _OnError) -> _Items[Any]:
        etag, last, failures = None, None, 0
        while True:
            try:
                answer = await self._request("GET", path, attempts=1, etag=etag)
            except TidingsError as error:
                if not (error.retryable or (error.status or 0) >= 500):
                    raise
                if on_error is not None:
                    on_error(error)
                failures += 1
                wait = min(3600.0, max(1.0, self._backoff(error, failures, 300)))
            else:
                header = answer.headers.get("X-Poll-Interval", "")
                interval = int(header) if re.fullmatch("[0-9]{1,4}", header) else 30
                wait, failures = max(1, interval) * (1 + self._random() / 5), 0
                if answer.status != 304:
                    etag = answer.headers.get("ETag")
                    if answer.body != last:
                        last = answer.body
                        yield _parse(answer)
            await _maybe_await(self._sleep(wait))

    async def _publish(self, events: Iterable[Event]) -> list[Receipt]:
        keyed: list[Event] = [
            event if event.get("key") is not None else {**event, "key": uuid.uuid4().hex}
            for event in events
        ]
        receipts: list[Receipt] = []
        try:
            for body in _split(keyed):
                receipts += _parse(await self._request("POST", "/v1/events", body))["events"]
        except TidingsError as error:
            error.receipts, error.unsent = receipts, keyed[len(receipts):]
            raise
        return receipts


class _Calls(_Core[H]):
    """The calls, as coroutines."""

    async def publish(self, event: Event, *, key: Str = None) -> Receipt:
        """Publishes an event. Its idempotency key is `key`, its own, or a generated one."""
        return (await self._publish([event if key is None else {**event, "key": key}]))[0]

    async def publish_many(self, events: Iterable[Event]) -> list[Receipt]:
        """Publishes events, at most 1,000 per request. Events without a `key` get a new one."""
        return await self._publish(events)

    async def event(self, id: str) -> Progress:
        return cast(Progress, await self._call("GET", _path("events", id)))

    async def retract(self, type: str, objects: Ids) -> Retracted:
        """Retracts the events of this type about these objects up to now."""
        body = {"type": type, "objects": objects}
        return cast(Retracted, await self._call("DELETE", "/v1/events", body))

    def users(self, *, after: Str = None, limit: int = 1000) -> _Items[UserView]:
        """Yields all users, in the order of their ids, with `limit` users per request."""
        return self._pages("/v1/users", "users", "after", {"after": after, "limit": limit})

    async def user(self, id: Id) -> UserView:
        return cast(UserView, await self._call("GET", _path("users", id)))

    async def put_user(self, id: Id, user: User) -> None:
        await self._put("PUT", ["users", id], user, "/v1/users", {**user, "id": id})

    async def put_users(self, users: Iterable[UserWithId]) -> int:
        return await self._post_many("/v1/users", users)

    async def patch_user(self, id: Id, patch: UserPatch) -> UserView:
        return cast(UserView, await self._call("PATCH", _path("users", id), patch))

    async def delete_user(self, id: Id) -> None:
        await self._call("DELETE", _path("users", id))

    async def preferences(self, user: Id) -> PreferencesView:
        return cast(PreferencesView, await self._call("GET", _path("users", user, "preferences")))

    async def put_preferences(self, user: Id, preferences: Preferences) -> UserView:
        path = _path("users", user, "preferences")
        return cast(UserView, await self._call("PUT", path, preferences))

    def follows(self, user: Id, *, after: Str = None, limit: int = 1000) -> _Items[str]:
        """Yields all keys that a user follows, with `limit` keys per request."""
        query = {"after": after, "limit": limit}
        return self._pages(_path("users", user, "follows"), "follows", "after", query)

    async def follow(self, user: Id, key: str) -> None:
        record = {"user": user, "key": key}
        await self._put("PUT", ["users", user, "follows", key], None, "/v1/follows", record)

    async def unfollow(self, user: Id, key: str) -> None:
        await self._call("DELETE", _path("users", user, "follows", key))

    async def mutes(self, user: Id) -> Mutes:
        """Returns the subjects that a user muted."""
        return cast(Mutes, await self._call("GET", _path("users", user, "mutes")))

    async def mute(self, user: Id, subject: str, mute: Union[Mute, None] = None) -> None:
        """Mutes a thread, a document or a followed key, forever or until a time."""
        await self._call("PUT", _path("users", user, "mutes", subject), mute)

    async def unmute(self, user: Id, subject: str) -> None:
        await self._call("DELETE", _path("users", user, "mutes", subject))

    async def put_follows(self, follows: Iterable[Follow]) -> int:
        return await self._post_many("/v1/follows", follows)

    async def object(self, model: str, id: Id) -> ObjectView:
        return cast(ObjectView, await self._call("GET", _path("objects", model, id)))

    async def put_object(self, model: str, id: Id, object: Object) -> None:
        record = {**object, "id": f"{model}:{id}"}
        await self._put("PUT", ["objects", model, id], object, "/v1/objects", record)

    async def put_objects(self, objects: Iterable[ObjectWithId]) -> int:
        return await self._post_many("/v1/objects", objects)

    async def delete_object(self, model: str, id: Id) -> None:
        record = {"id": f"{model}:{id}", "notifiable": False}  # deleting withdraws it
        await self._put("DELETE", ["objects", model, id], None, "/v1/objects", record)

    async def feed(self, user: Id, query: FeedQuery = {}) -> Page:
        return cast(Page, await self._call("GET", _path("users", user, "feed") + _query(query)))

    def items(self, user: Id, query: FeedQuery = {}) -> _Items[Item]:
        """Yields all items, newest first, with `limit` items per request."""
        return self._pages(_path("users", user, "feed"), "items", "before", query)

    async def groups(self, user: Id, query: FeedQuery = {}) -> GroupPage:
        path = _path("users", user, "feed") + _query({**query, **_GROUPED})
        return cast(GroupPage, await self._call("GET", path))

    def all_groups(self, user: Id, query: FeedQuery = {}) -> _Items[Group]:
        grouped = {**query, **_GROUPED}
        return self._pages(_path("users", user, "feed"), "groups", "before", grouped)

    async def count(self, user: Id) -> Counts:
        return cast(Counts, await self._call("GET", _path("users", user, "feed", "count")))

    async def mark(
        self, user: Id, mark: Mark, *, to: Str = None, ids: list[str] | None = None,
        type: Str = None, category: Str = None, day: Str = None, about: Str = None,
    ) -> Counts:
        """Marks the items `ids`, or the items up to `to` that match `type` and so on."""
        filters = {"type": type, "category": category, "day": day, "about": about}
        fields = {"mark": mark, "to": to, "ids": ids, **filters}
        value = {name: field for name, field in fields.items() if field is not None}
        return cast(Counts, await self._call("POST", _path("users", user, "feed", "marks"), value))

    def poll(self, user: Id, *, on_error: _OnError = None) -> _Items[Counts]:
        """Yields the counts, now and after every change, without end."""
        return self._poll(_path("users", user, "feed", "count"), on_error)

    def poll_feed(self, user: Id, query: FeedQuery = {}, *, on_error: _OnError = None) -> _Items[Page]:
        """Yields a page of the feed, now and after every change, without end."""
        return self._poll(_path("users", user, "feed") + _query(query), on_error)

    def batches(self, query: BatchQuery = {}) -> _Items[Batch]:
        return self._pages("/v1/batches", "batches", "before", query)

    async def batch(self, id: str) -> Batch:
        return cast(Batch, await self._call("GET", _path("batches", id)))


class Client(_Core[httpx.Client]):
    """A blocking client. Threads may share it."""

    _open, _sleep = httpx.Client, staticmethod(time.sleep)
    _time_limit = staticmethod(lambda seconds: nullcontext())

    @property
    def _calls(self) -> _Calls[httpx.Client]:
        """This client as `_Calls`. Their functions use only `_Core`."""
        return cast("_Calls[httpx.Client]", self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    async def _send(self, request: httpx.Request, end: float) -> _Answer:
        body = b""
        with closing(self._http.send(request, stream=True, follow_redirects=False)) as answer:
            for part in answer.iter_bytes():
                body += part
                if self._clock() > end:
                    raise TimeoutError("the answer did not end in time")
        return _Answer(answer.status_code, answer.headers, body)

    def publish(self, event: Event, *, key: Str = None) -> Receipt:
        """Publishes an event. Its idempotency key is `key`, its own, or a generated one."""
        return _run(_Calls.publish(self._calls, event, key=key))

    def publish_many(self, events: Iterable[Event]) -> list[Receipt]:
        """Publishes events, at most 1,000 per request. Events without a `key` get a new one."""
        return _run(_Calls.publish_many(self._calls, events))

    def event(self, id: str) -> Progress:
        return _run(_Calls.event(self._calls, id))

    def retract(self, type: str, objects: Ids) -> Retracted:
        """Retracts the events of this type about these objects up to now."""
        return _run(_Calls.retract(self._calls, type, objects))

    def users(self, *, after: Str = None, limit: int = 1000) -> Generator[UserView, None, None]:
        """Yields all users, in the order of their ids, with `limit` users per request."""
        return _iterate(_Calls.users(self._calls, after=after, limit=limit))

    def user(self, id: Id) -> UserView:
        return _run(_Calls.user(self._calls, id))

    def put_user(self, id: Id, user: User) -> None:
        _run(_Calls.put_user(self._calls, id, user))

    def put_users(self, users: Iterable[UserWithId]) -> int:
        return _run(_Calls.put_users(self._calls, users))

    def patch_user(self, id: Id, patch: UserPatch) -> UserView:
        return _run(_Calls.patch_user(self._calls, id, patch))

    def delete_user(self, id: Id) -> None:
        _run(_Calls.delete_user(self._calls, id))

    def preferences(self, user: Id) -> PreferencesView:
        return _run(_Calls.preferences(self._calls, user))

    def put_preferences(self, user: Id, preferences: Preferences) -> UserView:
        return _run(_Calls.put_preferences(self._calls, user, preferences))

    def follows(
        self, user: Id, *, after: Str = None, limit: int = 1000,
    ) -> Generator[str, None, None]:
        """Yields all keys that a user follows, with `limit` keys per request."""
        return _iterate(_Calls.follows(self._calls, user, after=after, limit=limit))

    def follow(self, user: Id, key: str) -> None:
        _run(_Calls.follow(self._calls, user, key))

    def unfollow(self, user: Id, key: str) -> None:
        _run(_Calls.unfollow(self._calls, user, key))

    def mutes(self, user: Id) -> Mutes:
        """Returns the subjects that a user muted."""
        return _run(_Calls.mutes(self._calls, user))

    def mute(self, user: Id, subject: str, mute: Union[Mute, None] = None) -> None:
        """Mutes a thread, a document or a followed key, forever or until a time."""
        _run(_Calls.mute(self._calls, user, subject, mute))

    def unmute(self, user: Id, subject: str) -> None:
        _run(_Calls.unmute(self._calls, user, subject))

    def put_follows(self, follows: Iterable[Follow]) -> int:
        return _run(_Calls.put_follows(self._calls, follows))

    def object(self, model: str, id: Id) -> ObjectView:
        return _run(_Calls.object(self._calls, model, id))

    def put_object(self, model: str, id: Id, object: Object) -> None:
        _run(_Calls.put_object(self._calls, model, id, object))

    def put_objects(self, objects: Iterable[ObjectWithId]) -> int:
        return _run(_Calls.put_objects(self._calls, objects))

    def delete_object(self, model: str, id: Id) -> None:
        _run(_Calls.delete_object(self._calls, model, id))

    def feed(self, user: Id, query: FeedQuery = {}) -> Page:
        return _run(_Calls.feed(self._calls, user, query))

    def items(self, user: Id, query: FeedQuery = {}) -> Generator[Item, None, None]:
        """Yields all items, newest first, with `limit` items per request."""
        return _iterate(_Calls.items(self._calls, user, query))

    def groups(self, user: Id, query: FeedQuery = {}) -> GroupPage:
        return _run(_Calls.groups(self._calls, user, query))

    def all_groups(self, user: Id, query: FeedQuery = {}) -> Generator[Group, None, None]:
        return _iterate(_Calls.all_groups(self._calls, user, query))

    def count(self, user: Id) -> Counts:
        return _run(_Calls.count(self._calls, user))

    def mark(
        self, user: Id, mark: Mark, *, to: Str = None, ids: list[str] | None = None,
        type: Str = None, category: Str = None, day: Str = None, about: Str = None,
    ) -> Counts:
        """Marks the items `ids`, or the items up to `to` that match `type` and so on."""
        return _run(_Calls.mark(
            self._calls, user, mark, to=to, ids=ids, type=type, category=category, day=day,
            about=about,
        ))

    def poll(self, user: Id, *, on_error: _OnError = None) -> Generator[Counts, None, None]:
        """Yields the counts, now and after every change, without end."""
        return _iterate(_Calls.poll(self._calls, user, on_error=on_error))

    def poll_feed(
        self, user: Id, query: FeedQuery = {}, *, on_error: _OnError = None,
    ) -> Generator[Page, None, None]:
        """Yields a page of the feed, now and after every change, without end."""
        return _iterate(_Calls.poll_feed(self._calls, user, query, on_error=on_error))

    def batches(self, query: BatchQuery = {}) -> Generator[Batch, None, None]:
        return _iterate(_Calls.batches(self._calls, query))

    def batch(self, id: str) -> Batch:
        return _run(_Calls.batch(self._calls, id))


class AsyncClient(_Calls[httpx.AsyncClient]):
    """A client for asyncio and trio."""

    _open, _sleep = httpx.AsyncClient, staticmethod(anyio.sleep)
    _time_limit = staticmethod(anyio.fail_after)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def _send(self, request: httpx.Request, end: float) -> _Answer:
        answer = await self._http.send(request, follow_redirects=False)
        return _Answer(answer.status_code, answer.headers, answer.content)
