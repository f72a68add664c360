"""The clients' types, held against the description of the API and read by mypy and TypeScript.

The rule: a field that the API gets is a field of both clients, or a test fails; so is a call.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import get_args
from unittest.mock import create_autospec

import httpx
import runner
from stage import ROOT
from tidings_client import AsyncClient, Client, records

DESCRIPTION = json.loads((ROOT / "src/wire/openapi.json").read_text())
SCHEMAS = DESCRIPTION["components"]["schemas"]
TYPED = """Event Actor Receipt Progress Digest User UserWithId UserPatch UserView Preferences Follow
    Mute Mutes Object ObjectWithId ObjectView Item Page Group GroupPage Counts Batch""".split()
# Calls that the clients leave to others, as docs/clients.md says: an operator's, and the stream.
LEFT_OUT = {
    "streamFeed", "closeBatch", "cancelBatch", "getSuppressions", "postSuppressions",
    "getSuppression", "deleteSuppression",
}


def described(name):
    """The fields of a schema, and those that must be there."""
    schema = SCHEMAS[name]
    fields, needed = dict(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        more, must = described(part["$ref"].rsplit("/", 1)[1])
        fields, needed = {**more, **fields}, needed | must
    return fields, needed


def asked_of(path, method="get"):
    parameters = DESCRIPTION["paths"][path][method]["parameters"]
    return {one["name"] for one in parameters if one["in"] == "query"}


def mark_bodies():
    """The fields of a mark up to a cursor, and of one by ids."""
    return [set(SCHEMAS[name]["properties"]) for name in ("MarkTo", "MarkIds")]


def fields_and_needed(name):
    fields, needed = described(name)
    # Where the path says it, a body need not.
    return set(fields) - ({"id"} if name in ("User", "Object") else set()), needed


@runner.test
def the_types_of_the_python_client_are_those_of_the_description():
    for name in TYPED:
        fields, needed = fields_and_needed(name)
        of = getattr(records, name)
        assert set(of.__annotations__) == fields, (name, set(of.__annotations__) ^ fields)
        assert of.__required_keys__ == needed, (name, of.__required_keys__ ^ needed)
    for name in ("Mark", "Route", "Cadence", "Weekday", "BatchState"):
        assert list(get_args(getattr(records, name))) == SCHEMAS[name]["enum"], name
    marked = set(inspect.signature(Client("http://of.none", "key").mark).parameters)
    assert marked - {"user"} == set().union(*mark_bodies())
    of_feed = set(records.FeedQuery.__annotations__) | {"group"}
    assert of_feed == asked_of("/v1/users/{id}/feed")
    assert set(records.BatchQuery.__annotations__) == asked_of("/v1/batches")


@runner.test
def the_types_of_the_javascript_client_are_those_of_the_description():
    text = (ROOT / "clients/js/tidings.d.ts").read_text()
    found = {}
    for name, extends, body in re.findall(
            r"^(?:export )?interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}", text, re.M | re.S):
        fields = dict(re.findall(r"^  (\w+)(\??):", body, re.M))
        found[name] = {**found.get(extends, {}), **fields}
    found["Object"] = found["ObjectFields"]
    found["Event"] = {**found["EventFields"], "to": "?", "followers_of": "?", "near": "?"}

    for name in TYPED:
        fields, needed = fields_and_needed(name)
        assert set(found[name]) == fields, (name, set(found[name]) ^ fields)
        must = {field for field, mark in found[name].items() if not mark}
        assert must == needed, (name, must ^ needed)
    assert [set(found["MarkedTo"]), set(found["MarkedIds"])] == [
        fields - {"mark"} for fields in mark_bodies()]
    assert set(found["FeedQuery"]) | {"group"} == asked_of("/v1/users/{id}/feed")
    assert set(found["BatchQuery"]) == asked_of("/v1/batches")


@runner.test
def every_call_of_the_javascript_client_is_declared():
    module = (ROOT / "clients/js/tidings.js").read_text()
    types = (ROOT / "clients/js/tidings.d.ts").read_text()
    name = re.compile(r"^  (?:async )?(\w+)\(", re.M)

    real = set(name.findall(module[module.index("export class Tidings {"):]))
    declared = set(name.findall(types[types.index("export class Tidings {"):]))

    assert real == declared and len(real) > 25, real ^ declared


@runner.test
def both_python_clients_have_the_same_methods_with_real_signatures():
    functions = inspect.getmembers(Client, inspect.isfunction)
    names = [name for name, _ in functions if not name.startswith("_") and name != "close"]
    assert len(names) > 25, names
    for name in names:
        one, other = (inspect.signature(getattr(of, name)) for of in (Client, AsyncClient))
        assert one.parameters == other.parameters, name
        kinds = {parameter.kind for parameter in one.parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, name
        assert "->" in str(one), name


@runner.test
def an_application_can_mock_a_client_or_its_transport():
    counts = {"unseen": 3, "unread": 4, "cursor": "c"}
    client = create_autospec(Client, instance=True)
    client.count.return_value = counts
    assert client.count("mara") == counts
    try:
        client.count()
        raise AssertionError("the mock takes any arguments")
    except TypeError:
        pass
    assert inspect.iscoroutinefunction(create_autospec(AsyncClient).count)

    def answer(request):
        assert request.url.path == "/v1/users/mara/feed/count"
        return httpx.Response(200, json=counts)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    assert Client("https://news.example.org", "key", http=http).count("mara") == counts


@runner.test
def mypy_reads_the_python_client_strictly():
    with tempfile.TemporaryDirectory() as cache:
        said = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
             ROOT / "clients/python/tidings_client", ROOT / "tests/clients/typed.py"],
            env={**os.environ, "MYPYPATH": str(ROOT / "clients/python")},
            capture_output=True, text=True,
        )
    assert said.returncode == 0, said.stdout + said.stderr


def read_by_typescript(node, names):
    """Whether TypeScript finds a fault in the types, or in how typed.ts uses them."""
    tsc = os.environ.get("TIDINGS_TEST_TSC")
    if names:
        return False
    if not tsc:
        print("THE TYPES OF THE JAVASCRIPT CLIENT WERE NOT READ: there is no TypeScript (npm)")
        runner.say(0, 0, 1)
        return False
    flags = "--strict --noEmit --target es2022 --lib es2022,dom --module nodenext".split()
    said = subprocess.run(
        [node, tsc, *flags, ROOT / "tests/clients/typed.mts"], capture_output=True, text=True)
    print(f"test typescript_reads_the_javascript_client_strictly ... {said.stdout or 'ok'}")
    runner.say(int(said.returncode == 0), int(said.returncode != 0))
    return said.returncode != 0


def excluded(proxies):
    """Whether either client's tests made other calls than all but those that are left out."""
    calls = {
        call["operationId"]: (method.upper(), re.sub(r"\{\w+\}", "[^/]+", path))
        for path, methods in DESCRIPTION["paths"].items() if path.startswith("/v1/")
        for method, call in methods.items() if method != "parameters"
    }
    python, *javascript = [proxy.ever for proxy in proxies]
    failed = 0
    for language, ever in (("python", python), ("javascript", set().union(*javascript))):
        made = {
            name for name, (method, pattern) in calls.items()
            if any(one == method and re.fullmatch(pattern, path) for one, path in ever)
        }
        wrong = sorted(made ^ (calls.keys() - LEFT_OUT))
        failed += bool(wrong)
        print(f"test the_{language}_client_makes_every_call ... {wrong or 'ok'}")
    runner.say(2 - failed, failed)
    return bool(failed)
