"""The types of requests and responses, and the error of the clients.

Types are named as in openapi.json, and docs/api.md of tidings describes their fields.
Types that are named `…May` hold the optional fields.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypedDict, Union

Str = Union[str, None]
Id = Union[str, int]
Ids = Union[str, int, list[Id], list[str], list[int]]
Point = Union[tuple[float, float], list[float]]
Mark = Literal["seen", "read", "unread", "archive", "restore"]
Route = Literal["never", "immediate", "batch", "digest"]
Cadence = Literal["never", "daily", "weekly"]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
BatchState = Literal["open", "closing", "closed", "canceled"]
ItemState = Literal["unseen", "seen", "read", "archived"]
FeedState = Literal["current", "unseen", "unread", "read", "archived", "all"]
DeliveryState = Literal["pending", "sending", "sent", "failed", "canceled", "unknown"]

Near = TypedDict("Near", {"point": Point, "km": float})
_HasId = TypedDict("_HasId", {"id": str})
_ActorMay = TypedDict("_ActorMay", {"name": str, "url": str, "image": str}, total=False)
_EventMust = TypedDict("_EventMust", {"type": str, "objects": Ids})
_ReceiptMust = TypedDict("_ReceiptMust", {"id": str, "duplicate": bool})
_ReceiptMay = TypedDict("_ReceiptMay", {"warnings": list[str]}, total=False)
_ChoiceMust = TypedDict("_ChoiceMust", {"route": Route})
_ChoiceMay = TypedDict("_ChoiceMay", {"window": Str}, total=False)
_AnyId = TypedDict("_AnyId", {"id": Id})


class Actor(_HasId, _ActorMay): ...


_EventMay = TypedDict("_EventMay", {
    "to": Ids, "followers_of": Ids, "near": Near, "except": Ids, "key": str, "batch_key": str,
    "actor": Union[Id, Actor], "notify_actor": bool, "brand": str, "text": Str, "data": Any, "at": Str,
}, total=False)


class Event(_EventMust, _EventMay): ...
class Receipt(_ReceiptMust, _ReceiptMay): ...
class TypeChoice(_ChoiceMust, _ChoiceMay): ...


_Reach = TypedDict("_Reach", {"people": int, "pushed": int, "capped": int})
Progress = TypedDict("Progress", {
    "id": str, "type": str, "objects": list[str], "batch_key": Str, "at": str, "day": str,
    "state": Literal["pending", "done"], "counts": _Reach,
})
_RetractedMay = TypedDict("_RetractedMay", {"warnings": list[str]}, total=False)


class Retracted(_RetractedMay):
    taken: int
    omitted: int
    objects: list[str]

Quiet = TypedDict("Quiet", {"from": str, "to": str})
Digest = TypedDict("Digest", {
    "cadence": Union[Cadence, None], "weekday": Union[Weekday, None], "hour": Union[int, None],
}, total=False)
User = TypedDict("User", {
    "email": Str, "name": Str, "confirmed": Union[bool, None], "tz": Str,
    "quiet": Union[Quiet, None], "locale": Str, "brand": Str,
    "loc": Union[Point, None], "digest": Union[Digest, None],
    "types": Union[dict[str, Union[TypeChoice, None]], None],
    "suppressed": Union[bool, None],
    "unsubscribed": Union[bool, None],
}, total=False)
UserPatch = TypedDict("UserPatch", {
    "email": Str, "name": Str, "confirmed": Union[bool, None], "tz": Str,
    "quiet": Union[Quiet, None], "locale": Str, "brand": Str,
    "loc": Union[Point, None], "digest": Digest, "types": dict[str, Union[TypeChoice, None]],
    "suppressed": Union[bool, None], "unsubscribed": bool,
}, total=False)
UserView = TypedDict("UserView", {
    "id": str, "email": Str, "name": Str, "confirmed": bool, "tz": Str,
    "quiet": Union[Quiet, None], "locale": Str, "brand": Str,
    "loc": Union[list[float], None], "digest": Union[Digest, None],
    "types": Union[dict[str, TypeChoice], None], "suppressed": Union[bool, None],
    "unsubscribed": Union[bool, None],
})
Preferences = TypedDict("Preferences", {
    "digest": Digest, "tz": Str, "quiet": Union[Quiet, None],
    "types": dict[str, Union[TypeChoice, None]],
}, total=False)
TypeView = TypedDict("TypeView", {
    "heading": str, "category": Str, "route": Route, "window": Str, "chosen": bool,
    "mandatory": Str, "feed": bool,
})
Category = TypedDict("Category", {"name": Str, "types": list[str]})
PreferencesView = TypedDict("PreferencesView", {
    "digest": Digest, "tz": str, "quiet": Union[Quiet, None], "types": dict[str, TypeView],
    "categories": list[Category],
})
Mute = TypedDict("Mute", {"until": Str, "title": Str}, total=False)
Muted = TypedDict("Muted", {"subject": str, "title": Str, "at": str, "until": Str})
Mutes = TypedDict("Mutes", {"mutes": list[Muted]})
Follow = TypedDict("Follow", {"user": Id, "key": str})
Object = TypedDict("Object", {
    "notifiable": bool, "title": Str, "url": Str, "image": Str, "by": Str, "at": Str,
    "place": Union[Point, None], "data": Any,
}, total=False)


class UserWithId(_AnyId, User): ...
class ObjectWithId(_HasId, Object): ...


ObjectView = TypedDict("ObjectView", {
    "id": str, "notifiable": bool, "title": Str, "url": Str, "image": Str, "by": Str, "at": Str,
    "place": Union[list[float], None], "data": Any,
})
_ItemMust = TypedDict("_ItemMust", {
    "id": str, "type": str, "object": ObjectView, "at": str, "state": ItemState, "mailed": bool,
})
_ItemMay = TypedDict("_ItemMay", {
    "actor": Actor, "text": str, "data": Any, "reason": str, "heading": str, "phrase": str,
    "about": str,
}, total=False)


class Item(_ItemMust, _ItemMay): ...


Counts = TypedDict("Counts", {"unseen": int, "unread": int, "cursor": str})
Page = TypedDict("Page", {
    "items": list[Item], "next": Str, "unseen": int, "unread": int, "cursor": str,
})
Group = TypedDict("Group", {
    "id": str, "day": str, "type": str, "about": str, "count": int, "unseen": int, "unread": int,
    "at": str, "items": list[Item], "items_url": str,
})
GroupPage = TypedDict("GroupPage", {
    "groups": list[Group], "next": Str, "unseen": int, "unread": int, "cursor": str,
})
FeedQuery = TypedDict("FeedQuery", {
    "limit": int, "before": str, "after": str, "type": str, "category": str, "state": FeedState,
    "day": str, "about": str, "lang": str,
}, total=False)
BatchItem = TypedDict("BatchItem", {"type": str, "object": str, "title": Str, "at": str})
BatchDelivery = TypedDict("BatchDelivery", {"id": str, "state": DeliveryState, "reason": Str})
Batch = TypedDict("Batch", {
    "id": str, "user": str, "key": str, "state": BatchState, "count": int,
    "items": list[BatchItem], "more": int, "lead_sent": bool, "opened_at": str,
    "last_event_at": str, "closes_at": str, "held_until": Str,
    "settled_at": Str, "delivery": Union[BatchDelivery, None],
})
BatchQuery = TypedDict("BatchQuery", {
    "user": str, "key": str, "state": BatchState, "limit": int, "before": str,
}, total=False)


class TidingsError(Exception):
    """A failed call. `code` is an error code of the server or of this client."""

    status: int | None = None  # None without a response
    location: str | None = None  # the invalid part of the request
    request_id: str | None = None  # X-Request-Id of the response
    retryable: bool = False  # whether a later retry is safe and may succeed
    retry_after: float | None = None  # seconds from Retry-After

    def __init__(self, code: str, detail: str, **more: Any) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail
        self.receipts: list[Receipt] = []  # accepted before the failure
        self.unsent: list[Event] = []  # the others, with keys: publish them again
        self.__dict__.update(more)

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.status, self.code) if part) + f": {self.detail}"


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> TidingsError:
    """Returns the error of a failed response. `headers` must ignore case."""
    try:
        problem = dict(json.loads(body))
    except (ValueError, TypeError):
        problem = {}  # such as an HTML page of a proxy
    return TidingsError(
        str(problem.get("code") or "no_code"), str(problem.get("detail") or "no detail was given"),
        status=status, location=problem.get("location"), request_id=headers.get("X-Request-Id"),
        retryable=status in (429, 502, 503, 504), retry_after=_retry_after(headers),
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of `Retry-After`. A date is compared with the `Date` of the response."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", value):
        return float(value)
    try:
        then = parsedate_to_datetime(value).timestamp()
        sent = headers.get("Date")
        now = parsedate_to_datetime(sent).timestamp() if sent else time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, then - now)
