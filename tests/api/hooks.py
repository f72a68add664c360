"""What Schemathesis is told because JSON Schema cannot say it.

The rule: the description says what it can; each exception here is named with its reason, and is as small as can
be. What would be refused for such a reason is not sent, or the refusal is let pass where the request is seen to
earn it; the same refusal of another request fails the run.
"""

import atexit
import copy
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote

import schemathesis
from hypothesis import strategies
from schemathesis.openapi.checks import RejectedPositiveData

COUNTS = Counter()
DONE = set()
USED = set()
# Names that every database of zones has had for long.
ZONES = ["Europe/Paris", "UTC", "America/Argentina/Buenos_Aires", "Asia/Kolkata", "Etc/GMT+12", "America/Port-au-Prince"]
ADDRESSES = ["mara@example.org", "x@a.b", "ünal@müller.example"]


def moments():
    """Of an event: from the first day of the window on (the server's has 61 days), until now."""
    now = datetime.now(timezone.utc)
    return [(now - timedelta(days=days, minutes=1)).isoformat(timespec="seconds") for days in (0, 1, 30, 59)]


# Which zones there are: a list that grows every year, and would be an enum of 600.
schemathesis.openapi.format("time-zone", strategies.sampled_from(ZONES))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    paths, schemas = raw_schema["paths"], raw_schema["components"]["schemas"]
    # Which moments events can be of: the window moves with the clock.
    schemas["Event"]["properties"]["at"] = {"enum": [None, *moments()]}
    # Which cursors a page of suppressions gives: its last address, in hexadecimal digits.
    [after] = [one for one in paths["/v1/suppressions"]["get"]["parameters"] if one["name"] == "after"]
    after["schema"] = {"enum": [text.encode().hex() for text in ADDRESSES]}
    # What each event of a stream is: OpenAPI 3.1 describes the stream as one text.
    stream = paths["/v1/users/{id}/feed/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    counted = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"$ref": "#/components/schemas/Counts"}}
    stream["schema"] = {"type": "object", "required": ["id", "data"], "properties": {"id": {"$ref": "#/components/schemas/Cursor"}, "data": counted}}
    # Which ids there are: the server makes them.
    for path, known in json.loads(os.environ.get("TIDINGS_API_IDS", "{}")).items():
        paths[path]["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"$ref": "#/components/schemas/Id"}, "example": known}]
    # An id in the body of what has one in its path must be that one.
    for path, name in (("/v1/users/{id}", "User"), ("/v1/objects/{model}/{id}", "Object")):
        body = copy.deepcopy(schemas[name])
        del body["properties"]["id"]
        paths[path]["put"]["requestBody"]["content"]["application/json"]["schema"] = body


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    # JSON Schema takes 7.0 for an integer. Whole numbers are sent in digits alone, as ids are their digits.
    whole = in_digits(case.body)
    if whole is not case.body:
        case.body = whole
    # A header is of the request, so it is for one event, and says nothing else than that event's field does; and
    # what was used before is another event's.
    body, key = case.body, (case.headers or {}).get("Idempotency-Key")
    if key is not None:
        if isinstance(body, list) or isinstance(body, dict) and {"events", "key"} & set(body) or key in USED:
            case.headers = {name: value for name, value in case.headers.items() if name != "Idempotency-Key"}
        USED.add(key)


def in_digits(value):
    """The same, if it has no number such as 7.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        items = [in_digits(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value)) else value
    if isinstance(value, dict):
        fields = {name: in_digits(field) for name, field in value.items()}
        return fields if any(fields[name] is not value[name] for name in value) else value
    return value


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if isinstance(failure, RejectedPositiveData):
        for earned in (too_many_bytes, too_long_together, too_much_data, no_hours, no_brand, no_address, no_url):
            if earned(case, response):
                COUNTS["let pass: " + earned.__doc__] += 1
                return False
    return True


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, field in value.items():
            yield name
            yield from texts(field)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def too_many_bytes(case, response):
    """a text has more bytes than are kept; maxLength counts characters"""
    told = re.search(r"(?:longer than|more than the) ([0-9]+) (?:bytes|that can be kept)", response.text)
    sent = (decoded(case.path_parameters), decoded(case.query), dict(case.headers or {}), case.body)
    return told and any(len(text) <= int(told[1]) < len(text.encode()) for value in sent for text in texts(value))


def too_long_together(case, response):
    """an object's key, its model and its id, has at most 256 bytes"""
    named = decoded(case.path_parameters or {})
    return "model" in named and len(f"{named['model']}:{named['id']}".encode()) > 256


def too_much_data(case, response):
    """an event's data has at most 2 KiB of JSON"""
    body = case.body
    events = body if isinstance(body, list) else body.get("events", [body]) if isinstance(body, dict) else []
    size = lambda data: len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
    return "that an event's data has" in response.text and any(size(event.get("data")) > 2000 for event in events)


def no_hours(case, response):
    """quiet hours end at another time than they begin, and a form says both or neither"""
    body = case.body if isinstance(case.body, dict) else {}
    users = [body, *(user for user in body.get("users", []) if isinstance(user, dict))] if body else case.body
    hours = [user.get("quiet") for user in users if isinstance(user, dict)] if isinstance(users, list) else []
    form = body.get("quiet-from", ""), body.get("quiet-to", "")
    same = any(isinstance(one, dict) and one.get("from") == one.get("to") for one in hours)
    return same or form[0] == form[1] != "" or bool(form[0]) != bool(form[1])


def no_brand(case, response):
    """a brand is one of the configuration"""
    told = re.search(r'"brand \\"([a-z0-9_-]+)\\" is not configured', response.text)
    named = case.body if isinstance(case.body, list) else [case.body]
    named = [more for one in named if isinstance(one, dict) for more in [one, *one.get("users", []), *one.get("events", [])]]
    return told and any(isinstance(one, dict) and one.get("brand") == told[1] for one in named)


def no_address(case, response):
    """a domain beyond ASCII follows IDNA, and a local part has at most 64 bytes"""
    reason = re.search(r"domain that cannot receive email|local part longer than 64 bytes", response.text)
    sent = (decoded(case.path_parameters), decoded(case.query), case.body)
    return reason and any("@" in text and not text.isascii() for value in sent for text in texts(value))


def no_url(case, response):
    """an object's URL follows the URL Standard, and holds no character that cannot be seen"""
    reason = re.search(r"object (?:url|image) .* (?:is not a web address|holds a character that cannot be seen)", response.text)
    plain = re.compile(r"https?://[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?(/[!-~]*)?", re.IGNORECASE)
    links = [text for text in texts(case.body) if re.match("https?:", text, re.IGNORECASE)]
    return reason and not all(plain.fullmatch(link) for link in links)


def decoded(value):
    if isinstance(value, Mapping):
        return {name: unquote(field) if isinstance(field, str) else field for name, field in value.items()}
    return value


@schemathesis.hook
def after_call(context, case, response):
    COUNTS["requests"] += 1
    if response.status_code < 400:
        DONE.add(case.operation.label)
    COUNTS[f"{response.status_code // 100}xx"] += 1


def tell():
    with open(os.environ["TIDINGS_API_COUNTS"], "w", encoding="utf-8") as file:
        json.dump({"counts": COUNTS, "done": sorted(DONE)}, file)


if "TIDINGS_API_COUNTS" in os.environ:
    atexit.register(tell)
