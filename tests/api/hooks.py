"""Schemathesis hooks for rules of the API that JSON Schema cannot express.

Hooks change the generated requests to obey these rules, or ignore a rejection if the request broke one of
them. Any other rejection of a valid request fails the run. Each exception is as narrow as possible.
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
SUCCEEDED = set()
USED_KEYS = set()
# Every time zone database has had these names for years.
ZONES = [
    "Europe/Paris", "UTC", "America/Argentina/Buenos_Aires", "Asia/Kolkata", "Etc/GMT+12", "America/Port-au-Prince",
]
ADDRESSES = ["mara@example.org", "x@a.b", "ünal@müller.example"]


def event_times():
    """Returns times from the last 60 days. The window of the server has 61 days."""
    now = datetime.now(timezone.utc)
    return [(now - timedelta(days=days, minutes=1)).isoformat(timespec="seconds") for days in (0, 1, 30, 59)]


# The list of zones grows every year, and would be an enum of 600 names.
schemathesis.openapi.format("time-zone", strategies.sampled_from(ZONES))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    paths, schemas = raw_schema["paths"], raw_schema["components"]["schemas"]
    # The window of allowed event times moves with the clock.
    schemas["Event"]["properties"]["at"] = {"enum": [None, *event_times()]}
    # A cursor of suppressions is the last address of a page, in hexadecimal digits.
    parameters = paths["/v1/suppressions"]["get"]["parameters"]
    [after] = [parameter for parameter in parameters if parameter["name"] == "after"]
    after["schema"] = {"enum": [text.encode().hex() for text in ADDRESSES]}
    # OpenAPI 3.1 describes a stream as one text. This describes one event of it.
    stream = paths["/v1/users/{id}/feed/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    counts = {"$ref": "#/components/schemas/Counts"}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": counts}
    fields = {"id": {"$ref": "#/components/schemas/Cursor"}, "data": data}
    stream["schema"] = {"type": "object", "required": ["id", "data"], "properties": fields}
    # The server generates these ids.
    id_schema = {"$ref": "#/components/schemas/Id"}
    for path, id in json.loads(os.environ.get("TIDINGS_API_IDS", "{}")).items():
        paths[path]["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": id_schema, "example": id}]
    # An id in the body must equal the id in the path.
    for path, name in (("/v1/users/{id}", "User"), ("/v1/objects/{model}/{id}", "Object")):
        body = copy.deepcopy(schemas[name])
        del body["properties"]["id"]
        paths[path]["put"]["requestBody"]["content"]["application/json"]["schema"] = body


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    # JSON Schema accepts 7.0 as an integer. The server does not, because an id is the text of its digits.
    body = with_integers(case.body)
    if body is not case.body:
        case.body = body
    # The header needs a body of one event without a key of its own. A used key belongs to another event.
    body, key = case.body, (case.headers or {}).get("Idempotency-Key")
    if key is not None:
        if isinstance(body, list) or isinstance(body, dict) and {"events", "key"} & set(body) or key in USED_KEYS:
            case.headers = {name: value for name, value in case.headers.items() if name != "Idempotency-Key"}
        USED_KEYS.add(key)


def with_integers(value):
    """Converts numbers such as 7.0 to integers. Returns `value` itself if it has none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        items = [with_integers(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value)) else value
    if isinstance(value, dict):
        fields = {name: with_integers(field) for name, field in value.items()}
        return fields if any(fields[name] is not value[name] for name in value) else value
    return value


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if isinstance(failure, RejectedPositiveData):
        for is_exception in (
            text_too_long, object_key_too_long, data_too_large, invalid_hours, unknown_brand, invalid_address,
            invalid_url,
        ):
            if is_exception(case, response):
                COUNTS["ignored rejections: " + is_exception.__doc__] += 1
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


def text_too_long(case, response):
    """a text has too many bytes; maxLength counts characters"""
    limit = re.search(r"(?:longer than|more than the) ([0-9]+) (?:bytes|that can be kept)", response.text)
    sent = (decoded(case.path_parameters), decoded(case.query), dict(case.headers or {}), case.body)
    return limit and any(len(text) <= int(limit[1]) < len(text.encode()) for value in sent for text in texts(value))


def object_key_too_long(case, response):
    """an object's model and id have at most 256 bytes together"""
    path = decoded(case.path_parameters or {})
    return "model" in path and len(f"{path['model']}:{path['id']}".encode()) > 256


def data_too_large(case, response):
    """an event's data has at most 2 KiB of JSON"""
    body = case.body
    events = body if isinstance(body, list) else body.get("events", [body]) if isinstance(body, dict) else []
    size = lambda data: len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
    return "that an event's data has" in response.text and any(size(event.get("data")) > 2000 for event in events)


def invalid_hours(case, response):
    """quiet hours must not end when they start, and a form needs both times or neither"""
    body = case.body if isinstance(case.body, dict) else {}
    users = [body, *(user for user in body.get("users", []) if isinstance(user, dict))] if body else case.body
    hours = [user.get("quiet") for user in users if isinstance(user, dict)] if isinstance(users, list) else []
    form = body.get("quiet-from", ""), body.get("quiet-to", "")
    empty = any(isinstance(quiet, dict) and quiet.get("from") == quiet.get("to") for quiet in hours)
    return empty or form[0] == form[1] != "" or bool(form[0]) != bool(form[1])


def unknown_brand(case, response):
    """a brand must be configured"""
    brand = re.search(r'"brand \\"([a-z0-9_-]+)\\" is not configured', response.text)
    bodies = [body for body in (case.body if isinstance(case.body, list) else [case.body]) if isinstance(body, dict)]
    records = [record for body in bodies for record in [body, *body.get("users", []), *body.get("events", [])]]
    return brand and any(isinstance(record, dict) and record.get("brand") == brand[1] for record in records)


def invalid_address(case, response):
    """a domain that is not ASCII must follow IDNA, and a local part has at most 64 bytes"""
    reason = re.search(r"domain that cannot receive email|local part longer than 64 bytes", response.text)
    sent = (decoded(case.path_parameters), decoded(case.query), case.body)
    return reason and any("@" in text and not text.isascii() for value in sent for text in texts(value))


def invalid_url(case, response):
    """an object's URL must follow the URL Standard, without invisible characters"""
    reason = re.search(
        r"object (?:url|image) .* (?:is not a web address|holds a character that cannot be seen)", response.text)
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
        SUCCEEDED.add(case.operation.label)
    COUNTS[f"{response.status_code // 100}xx"] += 1


def write_counts():
    with open(os.environ["TIDINGS_API_COUNTS"], "w", encoding="utf-8") as file:
        json.dump({"counts": COUNTS, "succeeded": sorted(SUCCEEDED)}, file)


if "TIDINGS_API_COUNTS" in os.environ:
    atexit.register(write_counts)
